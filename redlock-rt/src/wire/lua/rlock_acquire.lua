-- Takes a free lock for a new hold.
--
-- Prelude: lock_hash, take
-- KEYS: 1 the lock (HASH: owner -> hold count)
-- ARGV: 1 lease in ms, 2 owner
-- Returns: nil = taken; else the milliseconds for which the present holder has it (-1: no TTL)
--
-- Invariants: those of the prelude.
-- Redisson: RLock.tryLockInner.
return take(KEYS[1], ARGV[1], ARGV[2], function() end)
