-- Lengthens the leases of many holds in one call; the watchdog's script, for locks of every kind.
--
-- Prelude: undeclared_keys, permit_ids, rw_leases, loss
-- KEYS: 1..n the locks (HASH: field -> hold count; of permits, STRING; of a barrier, the sorted set itself)
-- ARGV: 5i-4 lease of hold i in ms (0: only look), 5i-3 field of hold i, 5i-2 prefix of the keys that
--   carry the leases of a read hold (empty: the lock's own TTL does) or the sorted set of the permits'
--   leases, 5i-1 ids of the permits of hold i in hexadecimal, concatenated (empty: no permits), 5i the
--   longest lease that any call of hold i has asked for in ms
-- Returns: a list of n: 1 = renewed, 3 = renewed, and it lives for longer than any call of the hold has
--   asked for, 0 = the hold does not exist, -1 = another owner has the lock, a text = the note for a hold
--   that was stolen
--
-- Invariants:
-- * Never re-creates a lost hold and never shortens a lease: it may come late, behind a call that asked
--   for more. A read hold whose leases are all over is lost, although other readers may keep the lock,
--   and its field in it.
-- * A lease that is too long (another program changed the TTL, or the server's clock was set back) is
--   reported, and the client cuts it by the script for re-entry and extension. The TTL of a read lock is
--   too long if it is longer than the lease of each reader.
-- * The lock outlives every read hold of the call, also one that is only verified: another client's
--   renewal may have shortened the TTL (Redisson's sets it to its own lease).
-- * A hold with a count of 0 has ended (lock_min_hold).
-- * One key of another type fails the whole call before it changes that key; the watchdog then
--   asks for each half alone.
-- * A hold of several permits is lost if one of them is gone; the others are still renewed, until
--   the hold is released.
-- * The keys of a read hold, and the set of permits, are in the slot of their lock.
-- * The set of a barrier's parties keeps its TTL: it follows no other key's.
-- * For an invalid hold count (another program wrote it) at most 1000 leases are read: a script
--   that does not end stops the server.
-- Redisson: LockTask.renew, ReadLockTask.renew; it renews no permits.
local replies = {}
local now

local function renew_permits(key, set, digits, lease, most)
    if not now then
        local time = redis.call('TIME')
        now = time[1] * 1000 + math.floor(time[2] / 1000)
    end
    local alive, deadline = 1, string.format('%.0f', now + lease)
    local wanted, long = {}, false
    for _, id in ipairs(raw_ids(digits)) do
        local score = tonumber(redis.call('ZSCORE', set, id) or 0)
        long = long or score > now + most
        if score <= now then
            alive = 0
        elseif score < now + lease then
            wanted[#wanted + 1] = deadline
            wanted[#wanted + 1] = id
        end
    end
    if #wanted > 0 then
        -- A write that needs no memory: a full memory refuses nothing behind it, also to the holds that follow.
        redis.call('ZREM', set, '')
    end
    -- Lua passes at most some thousand arguments.
    for at = 1, #wanted, 1000 do
        redis.call('ZADD', set, 'XX', unpack(wanted, at, math.min(at + 999, #wanted)))
    end
    -- Somebody has taken the TTL from the semaphore: the leases would end alone.
    if redis.call('PTTL', set) >= 0 and redis.call('PTTL', key) == -1 then
        redis.pcall('PERSIST', set)
    end
    return alive == 1 and long and 3 or alive
end

for i, key in ipairs(KEYS) do
    local lease, field, prefix = tonumber(ARGV[5 * i - 4]), ARGV[5 * i - 3], ARGV[5 * i - 2]
    local ids, most = ARGV[5 * i - 1], tonumber(ARGV[5 * i])
    local count = ids == '' and redis.call('HGET', key, field)
    if ids ~= '' then
        replies[i] = renew_permits(key, prefix, ids, lease, most)
    elseif count == '0' then
        replies[i] = 0
    elseif count then
        local wanted, alive, long = lease, prefix == '', false
        if prefix ~= '' then
            for hold = 1, math.min(tonumber(count) or 0, 1000) do
                local held = prefix .. ':' .. hold
                local rest = redis.call('PTTL', held)
                alive = alive or rest ~= -2
                long = long or rest == -1 or rest > most
                if rest >= 0 and rest < lease then
                    redis.call('PEXPIRE', held, ARGV[5 * i - 4])
                elseif rest > wanted then
                    wanted = rest
                end
            end
        end
        local ttl = redis.call('PTTL', key)
        if alive and ttl >= 0 and ttl < wanted then
            redis.call('PEXPIRE', key, string.format('%.0f', wanted))
        elseif ttl == -1 or ttl > most then
            long = long or prefix == '' or excess(key, ttl, string.sub(prefix, 1, -#field - 17)) ~= nil
        end
        replies[i] = alive and (long and 3 or 1) or 0
    else
        replies[i] = loss_of(key, field)
    end
end
return replies
