-- Sets the total number of permits, which includes held permits.
--
-- Prelude: permits
-- KEYS: 1 the semaphore (STRING: free permits), 2 leases (ZSET: id of 16 bytes -> epoch ms), 3 note
--   of this operation (STRING)
-- ARGV: 1 channel, 2 publish command, 3 permits, 4 ms for which the operation is noted
-- Returns: the free permits afterwards; negative if more are held than the new total; if waiters
--   were to be woken, also by the sweep, {these, 1 + receivers or 0 = Redis refused to}
--
-- Invariants:
-- * A repeat finds the note and returns the first reply: it does not undo a later change.
-- * Held permits stay held.
-- * An existing TTL stays.
-- Redisson: RPermitExpirableSemaphore.setPermits.
local noted = redis.call('GET', KEYS[3])
if noted then
    return answer(tonumber(noted))
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
redis.call('SET', KEYS[3], string.format('%.0f', wanted), 'PX', ARGV[4])
return answer(wanted)
