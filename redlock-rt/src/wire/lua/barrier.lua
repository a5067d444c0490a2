-- Reads a barrier, and breaks it if the lease of a party is over: the start of every script on barriers.
--
-- KEYS: 1 the state (HASH, see below),
--   2 the parties that have arrived (ZSET: id of 16 bytes -> epoch ms)
-- ARGV: 1 channel, 2 publish command
-- Returns: nothing
--
-- The state has the present generation, how many parties it needs while somebody is in it, whether they are
-- inside a double barrier, and how each of the last generations ended.
--
-- Invariants:
-- * A generation ends once, and its parties are removed in the same step. How: the ids of its parties in
--   hexadecimal = all arrived, 'left' = all left, 'broken' = a party died, 'reset'.
-- * One that is broken stays the present one, so that who comes later is told, until it is reset.
-- * The parties are those of the state: if one of both keys was deleted, the other is worth nothing.
-- * The end of a generation is known for eight more, with less than 25 parties for 200 divided by their number,
--   since others may come in the meantime; and everything for thirty days after the last call.
-- * What may fail comes before the first write, or behind a DEL: a full memory refuses nothing then.
-- * A refused PUBLISH (an ACL) is not a failure: waiters poll.
-- Redisson: has no equivalent.
local now = redis.call('TIME')
now = now[1] * 1000 + math.floor(now[2] / 1000)

local state = redis.call('HMGET', KEYS[1], 'generation', 'parties', 'inside')
local generation, parties = state[1] or '1', state[2] or '1'
-- Ours are far shorter.
if #generation > 15 or #parties > 9 or not string.match(generation .. ' ' .. parties, '^%d+ %d+$') then
    return redis.error_reply('WRONGTYPE the hash is no barrier')
end
generation = tonumber(generation)
if not state[2] then
    redis.call('DEL', KEYS[2])
end
local count = redis.call('ZCARD', KEYS[2])
local first = redis.call('ZRANGE', KEYS[2], 0, 0, 'WITHSCORES')
-- At most a year: another program may have written any number.
local rest = math.min(tonumber(first[2] or now) - now, 31536000000)

local function keep()
    redis.call('PEXPIRE', KEYS[1], 2592000000)
    redis.call('PEXPIRE', KEYS[2], 2592000000)
end

-- 1 + how many received the message, or 0 = Redis refused to publish it.
local told

local function answer(number)
    return told and {number, told} or number
end

local function ends(how, next)
    local old = generation - math.max(8, math.floor(200 / (tonumber(state[2]) or 1)))
    -- More than one where there were less parties before.
    while redis.call('HDEL', KEYS[1], old) == 1 do
        old = old - 1
    end
    redis.call('HSET', KEYS[1], 'generation', next, generation, how)
    keep()
    told = (tonumber(redis.pcall(ARGV[2], ARGV[1], '1')) or -1) + 1
end

local function empties(how, next)
    redis.call('DEL', KEYS[2])
    redis.call('HDEL', KEYS[1], 'parties', 'inside')
    ends(how, next)
    count, generation = 0, next
end

if count > 0 and rest <= 0 then
    empties('broken', generation)
end
