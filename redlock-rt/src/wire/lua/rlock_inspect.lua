-- Tells who holds a lock.
--
-- KEYS: 1 the lock (HASH: owner -> hold count)
-- ARGV: none
-- Returns: {} = free; else {owner, hold count, remaining ms (-1: no TTL)}
--
-- Invariants: reads only; one consistent answer.
-- Redisson: isLocked, getHoldCount, remainTimeToLive, each a command of its own.
local fields = redis.call('HGETALL', KEYS[1])
if #fields == 0 then
    return {}
end
return {fields[1], tonumber(fields[2]), redis.call('PTTL', KEYS[1])}
