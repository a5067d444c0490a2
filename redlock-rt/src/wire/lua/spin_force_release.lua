-- Frees a lock whoever holds it; nobody is told.
--
-- KEYS: 1 the lock (HASH: owner -> hold count)
-- ARGV: none
-- Returns: 1 = it was held, 0 = it was free
--
-- Invariants: a key that is no lock is refused (WRONGTYPE) rather than deleted.
-- Redisson: RSpinLock.forceUnlock.
if redis.call('HLEN', KEYS[1]) == 0 then
    return 0
end
redis.call('DEL', KEYS[1])
return 1
