-- Calls of the payment service for this order of which nobody knows how they ended. While there are
-- any and it is not paid, the order keeps its owner and is not removed: the money may be taken.

ALTER TABLE orders ADD COLUMN paying BIGINT NOT NULL DEFAULT 0;
