-- Lengthens the leases of many holds in one call; the watchdog's script, for locks of every kind.
--
-- KEYS: 1..n the locks (HASH: field -> hold count)
-- ARGV: 3i-2 lease of hold i in ms (0: only look), 3i-1 field of hold i, 3i prefix of the keys that
--   carry the leases of a read hold (empty: the lock's own TTL does)
-- Returns: a list of n: 1 = renewed, 0 = the hold does not exist, -1 = somebody else has the lock
--
-- Invariants:
-- * Never re-creates a lost hold and never shortens a lease. A read hold whose leases are all over
--   is lost, although other readers may keep the lock, and its field in it.
-- * The lock outlives every read hold that is asked for, also one that is not renewed: another
--   client's renewal may have shortened it (Redisson's sets the TTL to its own lease).
-- * One key of another type fails the whole call before it changes that key; the watchdog then
--   asks for each alone.
-- * The keys of a read hold are in the slot of their lock.
-- * Of a hold count that cannot be one (somebody else wrote it) no more than 1000 leases are looked
--   at: a script that does not end stops the server.
-- Redisson: LockTask.renew, ReadLockTask.renew.
local replies = {}
for i, key in ipairs(KEYS) do
    local lease, field, prefix = tonumber(ARGV[3 * i - 2]), ARGV[3 * i - 1], ARGV[3 * i]
    local count = redis.call('HGET', key, field)
    if count then
        local wanted, alive = lease, prefix == ''
        if prefix ~= '' then
            for hold = 1, math.min(tonumber(count) or 0, 1000) do
                local held = prefix .. ':' .. hold
                local rest = redis.call('PTTL', held)
                alive = alive or rest ~= -2
                if rest >= 0 and rest < lease then
                    redis.call('PEXPIRE', held, ARGV[3 * i - 2])
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
