-- Lengthens the leases of many holds in one call; the watchdog's script.
--
-- KEYS: 1..n the locks (HASH: owner -> hold count)
-- ARGV: 2i-1 lease of lock i in ms (0: only look), 2i owner of lock i
-- Returns: a list of n: 1 = renewed, 0 = the lock does not exist, -1 = somebody else has it
--
-- Invariants:
-- * Never re-creates a lost lock and never shortens a lease.
-- * One key of another type fails the whole call before it changes that key; the watchdog then
--   asks for each alone.
-- Redisson: LockTask.renew.
local replies = {}
for i, key in ipairs(KEYS) do
    local lease, owner = ARGV[2 * i - 1], ARGV[2 * i]
    if redis.call('HEXISTS', key, owner) == 1 then
        local ttl = redis.call('PTTL', key)
        if ttl >= 0 and ttl < tonumber(lease) then
            redis.call('PEXPIRE', key, lease)
        end
        replies[i] = 1
    else
        replies[i] = -redis.call('EXISTS', key)
    end
end
return replies
