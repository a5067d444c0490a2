-- Looks for holds, and writes to one of their keys without changing it, so that the connection has
-- something of which replicas can tell with WAIT that they have it: everything that was written
-- before, on any connection.
--
-- KEYS: 2i-1 the lock or semaphore of hold i, 2i the key that has the hold (HASH: field -> hold count
--   or permits; with leases, ZSET: id of 16 bytes -> epoch ms)
-- ARGV: 2i-1 field of hold i, 2i ids of the permits of hold i in hexadecimal, concatenated (empty: it is
--   in a hash)
-- Returns: a list of n: 1 = the hold exists, 0 = it does not
--
-- Invariants:
-- * A hold of a deleted semaphore does not exist, whatever is noted of it: nobody is kept out by it.
-- * Without a write, WAIT would count an earlier one, or none: from Redis 7.2 on only a command that
--   is replicated counts for its connection. A ZADD of the same score is not replicated, so permits
--   get another score in between. The set is never empty meanwhile, and so keeps its TTL.
-- * A hold of several permits does not exist if one of them is gone.
-- * A key of another type is a hold that does not exist: the other holds of the call still count.
-- Redisson: none; it sends WAIT behind the commands of a batch.
local replies, written = {}, false

local function touch_hash(name, key, field)
    local count = redis.pcall('HGET', key, field)
    if type(count) ~= 'string' or (name ~= key and redis.call('EXISTS', name) == 0) then
        return 0
    end
    if not written then
        -- A write that needs no memory: a full memory refuses nothing behind it.
        redis.call('HDEL', key, '')
        redis.call('HSET', key, field, count)
    end
    return 1
end

local function touch_permits(key, digits)
    local first, score
    for id in string.gmatch(digits, string.rep('%x', 32)) do
        id = string.gsub(id, '%x%x', function(byte)
            return string.char(tonumber(byte, 16))
        end)
        local there = redis.pcall('ZSCORE', key, id)
        if type(there) ~= 'string' then
            return 0
        end
        first, score = id, there
    end
    if not written then
        redis.call('ZREM', key, '')
        redis.call('ZADD', key, 'XX', string.format('%.0f', tonumber(score) + 1), first)
        redis.call('ZADD', key, 'XX', score, first)
    end
    return 1
end

for i = 1, #KEYS / 2 do
    local name, key = KEYS[2 * i - 1], KEYS[2 * i]
    local field, ids = ARGV[2 * i - 1], ARGV[2 * i]
    if ids == '' then
        replies[i] = touch_hash(name, key, field)
    else
        replies[i] = touch_permits(key, ids)
    end
    written = written or replies[i] == 1
end
return replies
