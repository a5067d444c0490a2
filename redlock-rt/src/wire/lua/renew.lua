-- Lengthens the leases of many holds in one call; the watchdog's script, for locks of every kind.
--
-- Prelude: permit_ids
-- KEYS: 1..n the locks (HASH: field -> hold count; of permits, STRING)
-- ARGV: 4i-3 lease of hold i in ms (0: only look), 4i-2 field of hold i, 4i-1 prefix of the keys that
--   carry the leases of a read hold (empty: the lock's own TTL does) or the sorted set of the permits'
--   leases, 4i ids of the permits of hold i in hexadecimal, concatenated (empty: no permits)
-- Returns: a list of n: 1 = renewed, 0 = the hold does not exist, -1 = another owner has the lock
--
-- Invariants:
-- * Never re-creates a lost hold and never shortens a lease. A read hold whose leases are all over
--   is lost, although other readers may keep the lock, and its field in it.
-- * The lock outlives every read hold of the call, also one that is only verified: another client's
--   renewal may have shortened the TTL (Redisson's sets it to its own lease).
-- * A hold with a count of 0 has ended (lock_min_hold).
-- * One key of another type fails the whole call before it changes that key; the watchdog then
--   asks for each half alone.
-- * A hold of several permits is lost if one of them is gone; the others are still renewed, until
--   the hold is released.
-- * The keys of a read hold, and the set of permits, are in the slot of their lock.
-- * For an invalid hold count (another program wrote it) at most 1000 leases are read: a script
--   that does not end stops the server.
-- Redisson: LockTask.renew, ReadLockTask.renew; it renews no permits.
local replies = {}
local now

local function renew_permits(key, set, digits, lease)
    if not now then
        local time = redis.call('TIME')
        now = time[1] * 1000 + math.floor(time[2] / 1000)
    end
    local alive, deadline = 1, string.format('%.0f', now + lease)
    local wanted = {}
    for _, id in ipairs(raw_ids(digits)) do
        local score = tonumber(redis.call('ZSCORE', set, id) or 0)
        if score <= now then
            alive = 0
        elseif score < now + lease then
            wanted[#wanted + 1] = deadline
            wanted[#wanted + 1] = id
        end
    end
    -- Lua passes at most some thousand arguments.
    for at = 1, #wanted, 1000 do
        redis.call('ZADD', set, 'XX', unpack(wanted, at, math.min(at + 999, #wanted)))
    end
    -- Somebody has taken the TTL from the semaphore: the leases would end alone.
    if redis.call('PTTL', set) >= 0 and redis.call('PTTL', key) == -1 then
        redis.pcall('PERSIST', set)
    end
    return alive
end

for i, key in ipairs(KEYS) do
    local lease, field, prefix = tonumber(ARGV[4 * i - 3]), ARGV[4 * i - 2], ARGV[4 * i - 1]
    local ids = ARGV[4 * i]
    local count = ids == '' and redis.call('HGET', key, field)
    if ids ~= '' then
        replies[i] = renew_permits(key, prefix, ids, lease)
    elseif count == '0' then
        replies[i] = 0
    elseif count then
        local wanted, alive = lease, prefix == ''
        if prefix ~= '' then
            for hold = 1, math.min(tonumber(count) or 0, 1000) do
                local held = prefix .. ':' .. hold
                local rest = redis.call('PTTL', held)
                alive = alive or rest ~= -2
                if rest >= 0 and rest < lease then
                    redis.call('PEXPIRE', held, ARGV[4 * i - 3])
                elseif rest > wanted then
                    wanted = rest
                end
            end
        end
        local ttl = redis.call('PTTL', key)
        if alive and ttl >= 0 and ttl < wanted then
            redis.call('PEXPIRE', key, string.format('%.0f', wanted))
        end
        replies[i] = alive and 1 or 0
    else
        replies[i] = -redis.call('EXISTS', key)
    end
end
return replies
