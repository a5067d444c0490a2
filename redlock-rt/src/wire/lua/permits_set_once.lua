-- Sets the total number of permits if none is set.
--
-- Prelude: permits
-- KEYS: 1 the semaphore (STRING: free permits), 2 leases (ZSET: id of 16 bytes -> epoch ms), 3 note
--   of this operation (STRING)
-- ARGV: 1 channel, 2 publish command, 3 permits, 4 ms for which the operation is noted
-- Returns: 1 = set, 0 = there is a number already; if waiters were to be woken, also by the sweep,
--   {that, 1 + receivers or 0 = Redis refused to}
--
-- Invariants:
-- * A repeat finds the note and returns the first reply.
-- * Permits that are held from a deleted semaphore count, so there are never more in use.
-- Redisson: RPermitExpirableSemaphore.trySetPermits, which does not count them.
if redis.call('EXISTS', KEYS[3]) == 1 then
    return answer(1)
end
if free then
    return answer(0)
end
redis.call('SET', KEYS[3], 1, 'PX', ARGV[4])
redis.call('SET', KEYS[1], string.format('%.0f', ARGV[3] - redis.call('ZCARD', KEYS[2])))
align_ttl()
publish(ARGV[3])
return answer(1)
