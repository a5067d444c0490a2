-- Ends a write hold, and keeps the lock taken for a while: it is free when its TTL is over.
--
-- Prelude: undeclared_keys, rw_leases
-- KEYS: 1 the lock (HASH: mode, field -> hold count)
-- ARGV: 1 field of the hold, 2 for how long in ms, 3 start of the names of all keys that carry
--   leases, 4 channel, 5 publish command
-- Returns: {2 = kept or 1 = only writing ended: the same owner still reads, 1 = announced or 0 = Redis
--   refused to}; else 0 = the lock does not exist, -1 = another owner has it
--
-- Invariants:
-- * As those of lock_min_hold, which is for the other kinds.
-- * Read holds of the same owner stay: the lock is then a read lock with the longest of their
--   leases, and waiting readers are woken, since they may have it too. A read hold whose leases are
--   over does not count.
-- Redisson: has no equivalent; its clients see a holder that does not release.
local lock = KEYS[1]
if redis.call('HEXISTS', lock, ARGV[1]) == 0 then
    return -redis.call('EXISTS', lock)
end
local function publish(answer, payload)
    return {answer, type(redis.pcall(ARGV[5], ARGV[4], payload)) == 'number' and 1 or 0}
end
local longest = lease_of_all(ARGV[3], redis.call('HGETALL', lock))
if longest ~= 0 then
    redis.call('HDEL', lock, ARGV[1])
    redis.call('HSET', lock, 'mode', 'read')
    if longest > 0 then
        redis.call('PEXPIRE', lock, string.format('%.0f', longest))
    end
    return publish(1, '1')
end
redis.call('PEXPIRE', lock, ARGV[2])
-- Behind a write, so that a full memory does not refuse it.
redis.call('HSET', lock, ARGV[1], 0)
redis.pcall(ARGV[5], ARGV[4], '1')
return publish(2, '0')
