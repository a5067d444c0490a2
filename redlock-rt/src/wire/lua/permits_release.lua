-- Gives the permits of a hold back, and wakes waiters.
--
-- Prelude: permit_ids, permits
-- KEYS: 1 the semaphore (STRING: free permits), 2 leases (ZSET: id of 16 bytes -> epoch ms), 3 note
--   that this owner was withdrawn (STRING)
-- ARGV: 1 channel, 2 publish command, 3 ids of the permits in hexadecimal, concatenated, 4 ms for
--   which a withdrawal is noted (0: it is not)
-- Returns: 1 = all were held and given back, 0 = at least one was no longer held; if waiters were to
--   be woken, also by the sweep, {that, 1 + receivers or 0 = Redis refused to}
--
-- Invariants:
-- * Only a permit that is in the set is given back, so a late or repeated call creates no permits.
-- Redisson: RPermitExpirableSemaphore.release.
local given, ids = 0, raw_ids(ARGV[3])
for _, id in ipairs(ids) do
    given = given + redis.call('ZREM', KEYS[2], id)
end
add(given)
-- Last: if memory is full, Redis refuses commands of a script only before its first write.
if tonumber(ARGV[4]) > 0 then
    redis.call('SET', KEYS[3], 1, 'PX', ARGV[4])
end
return answer(given == #ids and 1 or 0)
