-- Who serves at present, and the rushes that the instances drive together.

CREATE TABLE instances (
    id      TEXT   NOT NULL PRIMARY KEY,
    url     TEXT   NOT NULL,
    seen_at BIGINT NOT NULL
);

CREATE TABLE rushes (
    id                TEXT   NOT NULL PRIMARY KEY,
    voucher_id        TEXT   NOT NULL REFERENCES vouchers (id),
    users             BIGINT NOT NULL,
    requests_per_user BIGINT NOT NULL,
    concurrency       BIGINT NOT NULL,
    begun_at          BIGINT NOT NULL
);

-- The part of a rush that one instance drives, and how far it is (a JSON object).
CREATE TABLE rush_shares (
    rush_id     TEXT   NOT NULL REFERENCES rushes (id),
    instance_id TEXT   NOT NULL,
    part        BIGINT NOT NULL,
    parts       BIGINT NOT NULL,
    taken       BIGINT NOT NULL DEFAULT 0,
    done        BIGINT NOT NULL DEFAULT 0,
    report      TEXT   NOT NULL DEFAULT '',
    reported_at BIGINT NOT NULL DEFAULT 0,
    PRIMARY KEY (rush_id, instance_id)
);

CREATE INDEX rush_shares_of_instance ON rush_shares (instance_id, taken);
