-- Releases the lock for all holders of one mode, and wakes waiters: one waiter if it was read, all
-- waiters if it was written.
--
-- Prelude: undeclared_keys, lock_hash
-- KEYS: 1 the lock (HASH: mode, field -> hold count)
-- ARGV: 1 the mode, 2 start of the names of all keys that carry leases, 3 channel,
--       4 publish command
-- Returns: {1 = it was held in that mode, 1 = announced or 0 = Redis refused to}; else 0 = it was not
--
-- Invariants:
-- * Holders of the other mode keep the lock. A key or a hash that is not a lock is refused
--   (WRONGTYPE), not deleted.
-- * The keys of the readers' leases are deleted too, and so are the read holds of a writer.
-- * For an invalid hold count (another program wrote it) at most 1000 leases are read: a script
--   that does not end stops the server.
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
