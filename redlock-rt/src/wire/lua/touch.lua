-- Writes to keys without changing them, so that the connection has something of which replicas can
-- tell with WAIT that they have it: everything that was written before, on any connection.
--
-- KEYS: 1..n the locks (HASH: field -> hold count; of permits, STRING)
-- ARGV: 1..n fields of the holds
-- Returns: a list of n: 1 = written, 0 = the hold does not exist
--
-- Invariants:
-- * A TTL stays as it is to the millisecond, since the clock stands still in a script.
-- * Without a write, WAIT would count an earlier one, or none: from Redis 7.2 on only a command that
--   is replicated counts for its connection.
-- * Only permits are kept without a TTL, unless somebody has set one; theirs is a string, and which of
--   them exist is not asked.
-- Redisson: none; it sends WAIT behind the commands of a batch.
local replies = {}
for i, key in ipairs(KEYS) do
    local ttl = redis.call('PTTL', key)
    replies[i] = 0
    if ttl == -1 then
        redis.call('INCRBY', key, 0)
        replies[i] = 1
    elseif ttl > 0 then
        local there = redis.pcall('HEXISTS', key, ARGV[i])
        if there ~= 0 then
            redis.call('PEXPIRE', key, ttl)
            replies[i] = 1
        end
    end
end
return replies
