-- One text for SQLite and PostgreSQL. Times are milliseconds since 1970, identifiers are UUIDs
-- (version 7, so that they sort by time), yes and no are 1 and 0.

CREATE TABLE vouchers (
    id          TEXT   NOT NULL PRIMARY KEY,
    name        TEXT   NOT NULL UNIQUE,
    price_cents BIGINT NOT NULL CHECK (price_cents >= 0),
    created_at  BIGINT NOT NULL
);

CREATE TABLE sales (
    voucher_id     TEXT   NOT NULL PRIMARY KEY REFERENCES vouchers (id),
    stock_at_start BIGINT NOT NULL CHECK (stock_at_start >= 0),
    stock          BIGINT NOT NULL CHECK (stock >= 0),
    begins_at      BIGINT NOT NULL,
    ends_at        BIGINT NOT NULL CHECK (ends_at > begins_at),
    lock_kind      TEXT   NOT NULL,
    waiting_room   BIGINT NOT NULL
);

CREATE TABLE settlements (
    id           TEXT   NOT NULL PRIMARY KEY,
    orders       BIGINT NOT NULL,
    amount_cents BIGINT NOT NULL,
    token        BIGINT NOT NULL,
    settled_at   BIGINT NOT NULL
);

-- No unique index on (voucher_id, user_id): it would hide what the lock is for.
CREATE TABLE orders (
    id            TEXT   NOT NULL PRIMARY KEY,
    voucher_id    TEXT   NOT NULL REFERENCES vouchers (id),
    user_id       BIGINT NOT NULL,
    placed_at     BIGINT NOT NULL,
    paid_at       BIGINT,
    offered       BIGINT NOT NULL DEFAULT 0,
    settlement_id TEXT   REFERENCES settlements (id)
);

CREATE INDEX orders_by_user ON orders (voucher_id, user_id);
CREATE INDEX orders_of_user ON orders (user_id, placed_at);

-- The greatest fencing token that was seen for a name.
CREATE TABLE fences (
    name  TEXT   NOT NULL PRIMARY KEY,
    token BIGINT NOT NULL
);
