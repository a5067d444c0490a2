-- Gives one permit back by its id, for callers without a guard.
--
-- Prelude: permit_ids, permits
-- KEYS: 1 the semaphore (STRING: free permits), 2 leases (ZSET: id of 16 bytes -> epoch ms), 3 note
--   of this operation (STRING)
-- ARGV: 1 channel, 2 publish command, 3 id of the permit in hexadecimal, 4 ms for which the operation
--   is noted
-- Returns: 1 = given back, 0 = there is no such permit, or its lease is over; if waiters were to be
--   woken, also by the sweep, {that, 1 + receivers or 0 = Redis refused to}
--
-- Invariants:
-- * A repeat finds the note and returns the first reply.
-- Redisson: RPermitExpirableSemaphore.tryRelease.
if redis.call('EXISTS', KEYS[3]) == 1 then
    return answer(1)
end
for _, id in ipairs(raw_ids(ARGV[3])) do
    if redis.call('ZREM', KEYS[2], id) == 1 then
        redis.call('SET', KEYS[3], 1, 'PX', ARGV[4])
        add(1)
        return answer(1)
    end
end
return answer(0)
