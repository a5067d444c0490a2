-- The queue of a fair lock; the start of every script that changes it.
--
-- KEYS: 1 the lock (HASH: owner -> hold count), 2 queue (LIST of owners, the head is next),
--   3 deadlines (ZSET: owner -> epoch ms), 4 our clients (HASH: client uuid -> epoch ms until which
--   its waiters count as alive, `queued` -> how many of the waiters are ours)
-- ARGV: 1 prefix of the waiters' channels, 2 publish command
-- Returns: nothing
--
-- Invariants:
-- * A waiter of ours is dead when its client has not been heard for a while, whatever its deadline;
--   any other waiter is dead at its deadline, and one without a deadline is not (Redisson). One of
--   ours always has a deadline: without it, it is what was left of a waiter that queued again.
-- * Deadlines without a queue are nobody's: who had one must queue again.
-- * Only heads are looked at: a dead waiter further back is found when it gets there, so each call
--   does O(log n) work for each waiter that it removes.
-- * The fourth key goes with the last waiter. A client that is not in it is not ours: what it says
--   of a dead one must be known as long as that one's waiters are queued.
-- Redisson: the head of every RFairLock script.
local now = redis.call('TIME')
now = now[1] * 1000 + math.floor(now[2] / 1000)

local function client_of(owner)
    return string.match(owner, '^(.*):') or owner
end

-- One waiter of ours less. Never makes the key anew: it would have no TTL.
local function uncount()
    if redis.call('HEXISTS', KEYS[4], 'queued') == 1 then
        redis.call('HINCRBY', KEYS[4], 'queued', -1)
    end
end

-- The waiter that is next, or false; drops the dead before it.
local function head_of_queue()
    while true do
        local head = redis.call('LINDEX', KEYS[2], 0)
        if not head then
            redis.call('DEL', KEYS[3], KEYS[4])
            return false
        end
        local heard = redis.call('HGET', KEYS[4], client_of(head))
        local deadline = redis.call('ZSCORE', KEYS[3], head)
        local until_then = deadline and heard or deadline
        local is_left_over = heard and not deadline
        if not is_left_over and (not until_then or tonumber(until_then) > now) then
            return head
        end
        redis.call('LPOP', KEYS[2])
        redis.call('ZREM', KEYS[3], head)
        if heard then
            uncount()
        end
    end
end

-- Takes a waiter out of the queue. Those of other clients behind it get nearer by a place, and so do
-- their deadlines: O(n), and only where there are some. Ours are not judged by theirs.
local function take_out(owner, place)
    local ours = tonumber(redis.call('HGET', KEYS[4], 'queued') or 0)
    if redis.call('LLEN', KEYS[2]) > ours then
        local behind = false
        for _, waiter in ipairs(redis.call('LRANGE', KEYS[2], 0, -1)) do
            if behind and redis.call('HEXISTS', KEYS[4], client_of(waiter)) == 0 then
                redis.call('ZINCRBY', KEYS[3], '-' .. place, waiter)
            end
            behind = behind or waiter == owner
        end
    end
    redis.call('LREM', KEYS[2], 1, owner)
    redis.call('ZREM', KEYS[3], owner)
    uncount()
end

-- Wakes the waiter that is next. A refusal to publish (an ACL) is no failure: waiters look by
-- themselves.
local function wake(head)
    if head then
        redis.pcall(ARGV[2], ARGV[1] .. ':' .. head, '0')
    end
end

-- This client's waiters are alive for so many milliseconds more.
local function hear(client, alive)
    redis.call('HSET', KEYS[4], client, string.format('%.0f', now + alive))
    redis.call('PEXPIRE', KEYS[4], 600000)
end
