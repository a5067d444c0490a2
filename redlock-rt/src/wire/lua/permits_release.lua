-- Gives the permits of a hold back, and wakes waiters.
--
-- Prelude: permits
-- KEYS: 1 the semaphore (STRING: free permits), 2 leases (ZSET: id of 16 bytes -> epoch ms), 3 note
--   that this owner was withdrawn (STRING)
-- ARGV: 1 channel, 2 publish command, 3 ids of the permits in hexadecimal, one behind the other, 4 ms
--   for which a withdrawal is noted (0: it is not)
-- Returns: 1 = all were held and given back, 0 = at least one was not held any more; where waiters were
--   to be woken, also by the sweep, {that, 1 = announced or 0 = Redis refused to}
--
-- Invariants:
-- * Only a permit that is in the set is given back, so a late or repeated call makes none.
-- Redisson: RPermitExpirableSemaphore.release.
local given, ids = 0, raw_ids(ARGV[3])
for _, id in ipairs(ids) do
    given = given + redis.call('ZREM', KEYS[2], id)
end
add(given)
-- Last: where memory is full, Redis refuses a script only before it has written something.
if tonumber(ARGV[4]) > 0 then
    redis.call('SET', KEYS[3], 1, 'PX', ARGV[4])
end
return answer(given == #ids and 1 or 0)
