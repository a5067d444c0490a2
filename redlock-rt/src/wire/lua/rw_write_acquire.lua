-- Takes a lock for writing, for a new hold.
--
-- Prelude: undeclared_keys, lock_hash, rw_leases
-- KEYS: 1 the lock (HASH: mode, field -> hold count), 2 writers that wait and are preferred (ZSET:
--   OWNER/MS -> until when in epoch ms)
-- ARGV: 1 lease in ms, 2 its wish, 3 field of the hold, 4 field of the read hold under which it is taken
--   (empty: none), 5 start of the names of all keys that carry leases, 6 for how many ms to keep
--   new readers out if it is refused (0: not at all)
-- Returns: nil = taken; else the milliseconds for which the present holders have it (-1: no TTL;
--   -2: the hold under which it is taken is gone)
--
-- Invariants:
-- * Taken if the lock is free, or if the caller's own read hold is the only live one: readers whose
--   leases are over are removed then.
-- * An owner number is used for one write hold only. So if it is here, this same call ran before
--   and its reply was lost. A repeat sets the same count and never shortens the lease.
-- * A hash that is not a lock is refused (WRONGTYPE).
-- * The wish of a preferred writer lasts only while the writer asks again in time; it ends when the
--   writer gets the lock.
-- * If an ACL forbids PEXPIRE, nothing is left: without a lease the lock would stay for ever.
-- Redisson: WriteLock.tryLockInner, where re-entry adds the leases up.
local lock, wish, field, under = KEYS[1], ARGV[2], ARGV[3], ARGV[4]
local ttl = redis.call('PTTL', lock)
local mode = ttl ~= -2 and redis.call('HGET', lock, 'mode')
local function is_only_reader()
    local fields = redis.call('HGETALL', lock)
    local over = {}
    for at = 1, #fields, 2 do
        local other = fields[at]
        if other ~= 'mode' and other ~= under then
            if lease_of(ARGV[5], other, fields[at + 1]) ~= 0 then
                return false
            end
            over[#over + 1] = other
        end
    end
    for _, other in ipairs(over) do
        redis.call('HDEL', lock, other)
    end
    return true
end
local repeated = mode == 'write' and redis.call('HEXISTS', lock, field) == 1
if under ~= '' and not repeated and redis.call('HEXISTS', lock, under) == 0 then
    return -2
end
local taken = ttl == -2
    or repeated
    or under ~= '' and mode == 'read' and is_only_reader()
local flaw = not taken and not_a_lock(lock)
if flaw then
    return flaw
end
if taken and ttl == -2 then
    redis.call('HSET', lock, 'mode', 'write', field, 1)
    local leased = redis.pcall('PEXPIRE', lock, ARGV[1])
    if type(leased) == 'table' then
        redis.call('HDEL', lock, 'mode', field)
        return leased
    end
elseif taken then
    if ttl >= 0 and ttl < tonumber(ARGV[1]) then
        redis.call('PEXPIRE', lock, ARGV[1])
    end
    redis.call('HSET', lock, 'mode', 'write', field, 1)
elseif ARGV[6] ~= '0' then
    local time = redis.call('TIME')
    local now = time[1] * 1000 + math.floor(time[2] / 1000)
    redis.call('ZREMRANGEBYSCORE', KEYS[2], '-inf', string.format('%.0f', now))
    redis.call('ZADD', KEYS[2], string.format('%.0f', now + ARGV[6]), wish)
    if redis.call('PTTL', KEYS[2]) < tonumber(ARGV[6]) then
        redis.call('PEXPIRE', KEYS[2], ARGV[6])
    end
end
if taken then
    redis.call('ZREM', KEYS[2], wish)
    return nil
end
return ttl
