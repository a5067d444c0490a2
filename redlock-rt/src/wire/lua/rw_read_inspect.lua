-- Returns the holders of a lock for reading.
--
-- Prelude: undeclared_keys, lock_hash, looked_at, rw_leases
-- KEYS: 1 the lock (HASH: mode, field -> hold count)
-- ARGV: 1 start of the names of all keys that carry leases
-- Returns: {} = nobody; else for each reader its owner, its hold count and the remaining ms of its
--   lease (0: it is over and other readers keep the lock; -1: no TTL)
--
-- Invariants: reads only; one consistent reply. The readers are those of a read lock, and the read
--   holds of the writer itself. The holder of a lock of another kind is not a reader; a hash that
--   is not a lock is refused (WRONGTYPE).
-- Redisson: ReadLock.isLocked, getHoldCount, remainTimeToLive, each a command of its own.
local readers = {}
if not redis.call('HGET', KEYS[1], 'mode') then
    return readers
end
local fields = redis.call('HGETALL', KEYS[1])
for at = 1, #fields, 2 do
    local field, count = fields[at], tonumber(fields[at + 1])
    if field ~= 'mode' and count and string.sub(field, -6) ~= ':write' then
        readers[#readers + 1] = field
        readers[#readers + 1] = count
        readers[#readers + 1] = lease_of(ARGV[1], field, count)
    end
end
return readers
