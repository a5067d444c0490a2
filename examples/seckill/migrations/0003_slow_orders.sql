-- One order in so many takes longer than locks without renewal live; none for 0.

ALTER TABLE sales ADD COLUMN stall_one_in BIGINT NOT NULL DEFAULT 0;
