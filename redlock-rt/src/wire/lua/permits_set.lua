-- Sets the total number of permits, which includes held permits; or only if none is set.
--
-- Prelude: permits
-- KEYS: 1 the semaphore (STRING: free permits), 2 leases (ZSET: id of 16 bytes -> epoch ms), 3 note
--   of this operation (STRING)
-- ARGV: 1 channel, 2 publish command, 3 permits, 4 ms for which the operation is noted, 5 `once` = only
--   if none is set, else empty
-- Returns: the free permits afterwards; negative if more are held than the new total. `once`: 1 = set,
--   0 = there is a number already. If waiters were to be woken, also by the sweep, {these, 1 + receivers
--   or 0 = Redis refused to}
--
-- Invariants:
-- * A repeat finds the note and returns the first reply: it does not undo a later change.
-- * Held permits stay held. Those of a deleted semaphore count, so there are never more in use.
-- * An existing TTL stays.
-- Redisson: RPermitExpirableSemaphore.setPermits; trySetPermits, which does not count permits of a deleted
--   semaphore.
local noted = redis.call('GET', KEYS[3])
if noted then
    return answer(tonumber(noted))
end
if free and ARGV[5] == 'once' then
    return answer(0)
end
local wanted = tonumber(ARGV[3]) - redis.call('ZCARD', KEYS[2])
if not free then
    redis.call('SET', KEYS[1], string.format('%.0f', wanted))
    publish(ARGV[3])
elseif wanted ~= free then
    redis.call('INCRBY', KEYS[1], string.format('%.0f', wanted - free))
    publish(ARGV[3])
end
align_ttl()
local reply = ARGV[5] == 'once' and 1 or wanted
redis.call('SET', KEYS[3], string.format('%.0f', reply), 'PX', ARGV[4])
return answer(reply)
