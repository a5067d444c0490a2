-- Gives the permits of a hold back, and wakes waiters.
--
-- Prelude: permits
-- KEYS: 1 the semaphore (STRING: free permits), 2 leases (ZSET: id of 16 bytes -> epoch ms)
-- ARGV: 1 channel, 2 publish command, 3 ids of the permits in hexadecimal, one behind the other
-- Returns: 1 = all were held and given back, 0 = at least one was not held any more
--
-- Invariants:
-- * Only a permit that is in the set is given back, so a late or repeated call makes none.
-- Redisson: RPermitExpirableSemaphore.release.
local given, ids = 0, raw_ids(ARGV[3])
for _, id in ipairs(ids) do
    given = given + redis.call('ZREM', KEYS[2], id)
end
add(given)
return given == #ids and 1 or 0
