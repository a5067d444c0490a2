-- Ends a hold of a fair lock, or leaves its queue. A free lock goes to the next waiter, if the caller
-- names that one; else the next waiter is woken.
--
-- Prelude: fair_wake, fair_queue
-- KEYS: 1 the lock, 2 queue, 3 deadlines, 4 notes
-- ARGV: 1 publish command, 2 prefix of our clients' channels, 3 prefix of the waiters' channels, 4 ms
--   for which a waiter counts at most, 5 owner; then up to four waiters of its client, each with its lease
--   in ms
-- Returns: 1 = released, 0 = the lock does not exist, -1 = another owner has it; if a waiter was
--   to be woken, {that, 1 = announced or 0 = Redis refused to, the waiter}; if a waiter of the client has
--   the lock now, {that, 2, the waiter}
--
-- Invariants:
-- * Afterwards the owner neither holds the lock nor waits for it. Without its field no newer hold
--   is freed, so the call may be late or repeated.
-- * Only the waiter that is next gets the lock. A repeat finds it there, and changes nothing: its lease
--   counts from the first try.
-- * Fields of others, which do not belong into the hash, stay until the lock is given to nobody.
-- * The owner leaves the queue even if the lock has become a key of another type (WRONGTYPE);
--   otherwise it would stay next as long as its client is alive.
-- Redisson: RedissonFairLock.unlockInner, acquireFailed.
turn_to(0, ARGV[3], ARGV[4])
local owner = ARGV[5]

-- Gives the free lock to the waiter that is next. Returns whether it did.
local function grant()
    local pair = redis.call('LRANGE', QUEUE, 0, 1)
    for at = 6, #ARGV, 2 do
        if ARGV[at] == pair[1] then
            local lease = ARGV[at + 1]
            redis.call('HSET', LOCK, pair[1], 1)
            if type(redis.pcall('PEXPIRE', LOCK, lease)) == 'table' then
                -- An ACL forbids it.
                redis.call('DEL', LOCK)
                return false
            end
            serve(pair[1], pair[2], tonumber(lease))
            woken, told = pair[1], 2
            return true
        end
    end
    return false
end

-- One of these waiters has the lock: an earlier try of this call has given it, or the waiter has taken
-- it. Returns whether it is so. The lease stays: it may be that of a `min_hold`.
local function granted()
    for at = 6, #ARGV, 2 do
        if redis.call('HEXISTS', LOCK, ARGV[at]) == 1 then
            woken, told = ARGV[at], 2
            return true
        end
    end
    return false
end

local ended = redis.pcall('HDEL', KEYS[1], owner)
if ended == 1 then
    if #ARGV == 5 or not grant() then
        redis.call('DEL', KEYS[1])
        wake_next(head_of_queue())
    end
    return answer(1)
end
local first = redis.call('LINDEX', KEYS[2], 0) == owner
if deadline_of(owner) then
    look()
    take_out(owner)
    settle(1)
else
    -- Another client has dropped it from the queue, and does not know of its note.
    redis.call('HDEL', KEYS[4], owner)
end
if ended == 0 and granted() then
    return answer(-1)
end
local head, left = head_of_queue(), redis.call('PTTL', KEYS[1])
if left == -2 then
    -- The lease of this hold or of another has ended without an announcement.
    wake_next(head)
elseif first or dropped then
    tell_next(left)
end
if type(ended) == 'table' then
    return ended
end
return answer(left == -2 and 0 or -1)
