-- Sweeps permits whose leases are over; the start of every script on permits with leases.
--
-- KEYS: 1 the semaphore (STRING: free permits), 2 leases (ZSET: id of 16 bytes -> epoch ms)
-- ARGV: 1 channel, 2 publish command
-- Returns: nothing
--
-- Invariants:
-- * A permit is free or in the set, never both: a script moves it in one step.
-- * A sweep ends after 100 permits; the next call continues.
-- * A deleted semaphore is not created again.
-- * The leases have the TTL of the semaphore, or none, as soon as a call takes permits, sets their number
--   or sets a lease. Leases that ended alone would take their permits with them.
-- * A refused PUBLISH or PERSIST (an ACL) is not a failure: waiters poll, and the leases keep a TTL.
-- Redisson: the head of every RPermitExpirableSemaphore script.
local now = redis.call('TIME')
now = now[1] * 1000 + math.floor(now[2] / 1000)

-- The free permits; false if there is no semaphore.
local free = redis.call('GET', KEYS[1])
if free and (#free > 16 or not string.match(free, '^-?%d+$') or string.format('%.0f', free + 0) ~= free) then
    return redis.error_reply('WRONGTYPE the key holds no number of permits')
end
free = free and tonumber(free)

-- Publishes; 1 + how many received the message, or 0 = Redis refused to.
local told

local function publish(payload)
    told = (tonumber(redis.pcall(ARGV[2], ARGV[1], payload)) or -1) + 1
end

-- The reply of a script that may have woken waiters.
local function answer(number)
    return told and {number, told} or number
end

local function add(permits)
    if free and permits > 0 then
        free = redis.call('INCRBY', KEYS[1], permits)
        if free > 0 then
            publish(free)
        end
    end
end

local function align_ttl()
    local ttl = redis.call('PTTL', KEYS[1])
    if ttl >= 0 then
        redis.call('PEXPIRE', KEYS[2], string.format('%.0f', math.max(ttl, 1)))
    elseif ttl == -1 and redis.call('PTTL', KEYS[2]) >= 0 then
        redis.pcall('PERSIST', KEYS[2])
    end
end

local over = redis.call('ZRANGEBYSCORE', KEYS[2], '-inf', string.format('%.0f', now), 'LIMIT', 0, 100)
if #over > 0 then
    redis.call('ZREM', KEYS[2], unpack(over))
    add(#over)
end
