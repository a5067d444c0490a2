-- Takes the lock from all its readers, and wakes a waiter.
--
-- KEYS: 1 the lock (HASH: mode, field -> hold count)
-- ARGV: 1 start of the names of all keys that carry leases, 2 channel, 3 publish command
-- Returns: 1 = it was held for reading, 0 = it was not
--
-- Invariants:
-- * A writer keeps the lock. A key that is no lock is refused (WRONGTYPE) rather than deleted.
-- * The keys that carry the readers' leases go with it.
-- * Of a hold count that cannot be one (somebody else wrote it) no more than 1000 leases are looked
--   at: a script that does not end stops the server.
-- Redisson: ReadLock.forceUnlock, which leaves those to expire.
local lock = KEYS[1]
if redis.call('HGET', lock, 'mode') ~= 'read' then
    return 0
end
local fields = redis.call('HGETALL', lock)
for at = 1, #fields, 2 do
    for hold = 1, math.min(tonumber(fields[at + 1]) or 0, 1000) do
        redis.call('DEL', ARGV[1] .. ':' .. fields[at] .. ':rwlock_timeout:' .. hold)
    end
end
redis.call('DEL', lock)
redis.pcall(ARGV[3], ARGV[2], '0')
return 1
