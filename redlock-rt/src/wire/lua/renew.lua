-- Lengthens the leases of many holds in one call; the watchdog's script, for locks of every kind.
--
-- KEYS: 1..n the locks (HASH: field -> hold count)
-- ARGV: 3i-2 lease of hold i in ms (0: only look), 3i-1 field of hold i, 3i prefix of the keys that
--   carry the leases of a read hold (empty: the lock's own TTL does)
-- Returns: a list of n: 1 = renewed, 0 = the lock does not exist, -1 = somebody else has it
--
-- Invariants:
-- * Never re-creates a lost lock and never shortens a lease.
-- * The lock outlives every read hold that is asked for, also one that is not renewed: another
--   client's renewal may have shortened it (Redisson's sets the TTL to its own lease).
-- * One key of another type fails the whole call before it changes that key; the watchdog then
--   asks for each alone.
-- * The keys of a read hold are in the slot of their lock.
-- Redisson: LockTask.renew, ReadLockTask.renew.
local replies = {}
for i, key in ipairs(KEYS) do
    local lease, field, prefix = tonumber(ARGV[3 * i - 2]), ARGV[3 * i - 1], ARGV[3 * i]
    local count = redis.call('HGET', key, field)
    if count then
        local wanted = lease
        if prefix ~= '' then
            for hold = 1, tonumber(count) do
                local held = prefix .. ':' .. hold
                local rest = redis.call('PTTL', held)
                if rest >= 0 and rest < lease then
                    redis.call('PEXPIRE', held, lease)
                elseif rest > wanted then
                    wanted = rest
                end
            end
        end
        local ttl = redis.call('PTTL', key)
        if ttl >= 0 and ttl < wanted then
            redis.call('PEXPIRE', key, wanted)
        end
        replies[i] = 1
    else
        replies[i] = -redis.call('EXISTS', key)
    end
end
return replies
