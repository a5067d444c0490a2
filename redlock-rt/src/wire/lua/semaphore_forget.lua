-- Ends a hold of a semaphore without giving its permits back.
--
-- KEYS: 1 our holds (HASH: owner -> permits)
-- ARGV: 1 owner
-- Returns: 1 = forgotten, 0 = there was nothing to forget
--
-- Invariants:
-- * Only our own note of it goes: the permits stay taken until somebody adds as many.
-- Redisson: has none; there nobody knows who has a permit.
return redis.call('HDEL', KEYS[1], ARGV[1])
