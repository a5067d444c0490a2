-- Describes the lock, the semaphore or the latch of a name.
--
-- Prelude: undeclared_keys, lock_hash, rw_leases
-- KEYS: 1 the name (HASH of a lock, STRING of a semaphore or a latch), 2 queue (LIST of owners), 3 preferred
--   writers (ZSET), 4 token (STRING), 5 holds of a semaphore (HASH: owner -> permits), 6 leases of
--   permits (ZSET: id of 16 bytes -> epoch ms), 7 mark of a latch (STRING)
-- ARGV: 1 start of the names of all keys that carry leases of readers, 2 channel of a lock, 3 of a
--   read-write lock, 4 of a semaphore, 5 of a latch, 6 publish command
-- Returns: {} = there is nothing; else {kind, remaining ms (-1: no TTL), clients that listen (-1: unknown),
--   queued waiters, number (text, empty: none), token (text, empty: none)}, and behind that for each of
--   at most 1000 holders its owner, hold count, remaining ms (-1: no TTL) and 1 = for writing or 0
--
-- Invariants:
-- * It changes nothing; one consistent reply.
-- * A key that is none of these is refused (WRONGTYPE).
-- * A lock that is free is there while it has a queue or a token.
-- Redisson: a command for each of these.
local key, MOST = KEYS[1], 1000
local type, ttl = redis.call('TYPE', key).ok, redis.call('PTTL', key)
local number, token = '', string.sub(redis.call('GET', KEYS[4]) or '', 1, 32)
local holders = {}

local function held(owner, count, rest, writes)
    for _, item in ipairs({owner, tonumber(count) or 0, rest, writes and 1 or 0}) do
        holders[#holders + 1] = item
    end
end

local function listening(channel)
    local command = ARGV[6] == 'SPUBLISH' and 'SHARDNUMSUB' or 'NUMSUB'
    local told = redis.pcall('PUBSUB', command, channel)
    return told[2] and tonumber(told[2]) or -1
end

local function described(kind, channel, queued)
    local reply = {kind, math.max(ttl, -1), listening(channel), queued, number, token}
    for _, item in ipairs(holders) do
        reply[#reply + 1] = item
    end
    return reply
end

local function described_permits()
    local time = redis.call('TIME')
    local now = time[1] * 1000 + math.floor(time[2] / 1000)
    local leases = redis.call('ZRANGEBYSCORE', KEYS[6], string.format('(%.0f', now), '+inf', 'WITHSCORES',
        'LIMIT', 0, MOST)
    for at = 1, #leases, 2 do
        local id = string.gsub(leases[at], '.', function(byte)
            return string.format('%02x', string.byte(byte))
        end)
        -- Redisson's permits without a lease.
        local endless = tonumber(leases[at + 1]) >= 922337203685477
        held(id, 1, endless and -1 or math.floor(leases[at + 1] - now))
    end
    return described('permits', ARGV[4], 0)
end

local function described_semaphore()
    local permits = redis.call('HGETALL', KEYS[5])
    for at = 1, math.min(#permits, 2 * MOST), 2 do
        held(permits[at], permits[at + 1], -1)
    end
    return described('semaphore', ARGV[4], 0)
end

if type == 'string' then
    number = redis.call('GET', key)
    if #number > 32 or not string.find(number, '^%-?%d+$') then
        return redis.error_reply('WRONGTYPE the key holds no number')
    end
elseif type == 'hash' then
    local flaw, fields = not_a_lock(key)
    if flaw then
        return flaw
    end
    fields = fields or redis.call('HGETALL', key)
    local mode = redis.call('HGET', key, 'mode')
    for at = 1, math.min(#fields, 2 * MOST), 2 do
        local owner, count = fields[at], fields[at + 1]
        local writes = mode and string.sub(owner, -6) == ':write'
        if writes then
            held(string.sub(owner, 1, -7), count, ttl, true)
        elseif owner ~= 'mode' then
            held(owner, count, mode and lease_of(ARGV[1], owner, count) or ttl)
        end
    end
    if mode then
        return described('read-write', ARGV[3], redis.call('ZCARD', KEYS[3]))
    end
elseif type ~= 'none' then
    return redis.error_reply('WRONGTYPE the key is no lock, semaphore or latch')
end

if type ~= 'hash' then
    if redis.call('EXISTS', KEYS[6]) == 1 then
        return described_permits()
    elseif redis.call('EXISTS', KEYS[5]) == 1 then
        return described_semaphore()
    elseif type == 'string' then
        local is_latch = redis.call('EXISTS', KEYS[7]) == 1 or listening(ARGV[5]) > 0
        return is_latch and described('latch', ARGV[5], 0)
            or described(listening(ARGV[4]) > 0 and 'semaphore' or 'number', ARGV[4], 0)
    end
end
local queued = redis.call('LLEN', KEYS[2])
if queued > 0 then
    return described('fair', ARGV[2], queued)
elseif token ~= '' then
    return described('fenced', ARGV[2], 0)
end
return type == 'hash' and described('lock', ARGV[2], 0) or {}
