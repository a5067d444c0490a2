-- Returns the holder of a lock.
--
-- Prelude: lock_hash, looked_at
-- KEYS: 1 the lock (HASH: owner -> hold count)
-- ARGV: none
-- Returns: {} = free; else {owner, hold count, remaining ms (-1: no TTL)}
--
-- Invariants: reads only; one consistent reply. A hash that is not a lock is refused (WRONGTYPE).
--   For a lock of another kind under the same name (a read-write lock has a field `mode`), one of
--   its holders is returned.
-- Redisson: isLocked, getHoldCount, remainTimeToLive, each a command of its own.
local fields = redis.call('HGETALL', KEYS[1])
for at = 1, #fields, 2 do
    if fields[at] ~= 'mode' then
        return {fields[at], tonumber(fields[at + 1]) or 0, redis.call('PTTL', KEYS[1])}
    end
end
return {}
