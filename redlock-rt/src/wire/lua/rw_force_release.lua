-- Takes the lock from all who have it in one mode, and wakes who waits: a waiter where it was read,
-- all of them where it was written.
--
-- Prelude: lock_hash
-- KEYS: 1 the lock (HASH: mode, field -> hold count)
-- ARGV: 1 the mode, 2 start of the names of all keys that carry leases, 3 channel,
--       4 publish command
-- Returns: {1 = it was held in that mode, 1 = announced or 0 = Redis refused to}; else 0 = it was not
--
-- Invariants:
-- * Who has it in the other mode keeps it. A key, or a hash, that is no lock is refused (WRONGTYPE)
--   rather than deleted.
-- * The keys that carry the readers' leases go with it, and so do the read holds that a writer has
--   besides.
-- * Of a hold count that cannot be one (somebody else wrote it) no more than 1000 leases are looked
--   at: a script that does not end stops the server.
-- Redisson: WriteLock.forceUnlock, and ReadLock.forceUnlock, which leaves those keys to expire.
local lock = KEYS[1]
local flaw = not_a_lock(lock, true)
if flaw then
    return flaw
end
if redis.call('HGET', lock, 'mode') ~= ARGV[1] then
    return 0
end
local fields = redis.call('HGETALL', lock)
for at = 1, #fields, 2 do
    for hold = 1, math.min(tonumber(fields[at + 1]) or 0, 1000) do
        redis.call('DEL', ARGV[2] .. ':' .. fields[at] .. ':rwlock_timeout:' .. hold)
    end
end
redis.call('DEL', lock)
return {1, type(redis.pcall(ARGV[4], ARGV[3], ARGV[1] == 'read' and '0' or '1')) == 'number' and 1 or 0}
