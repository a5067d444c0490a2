-- Ends a hold of a fair lock, or leaves its queue. A free lock goes to the next waiter, if the caller
-- names that one; else the next waiter is woken.
--
-- Prelude: fair_wake, fair_turn, fair_give, fair_queue
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

if ended == 1 then
    if given then
        leave(head, tonumber(lease))
        woken, told = head, 2
    else
        redis.call('DEL', LOCK)
        wake_next(head_of_queue())
    end
    return answer(1)
end
local first = redis.call('LINDEX', QUEUE, '0') == owner
if deadline_of(owner) then
    look()
    take_out(owner)
    settle(1)
else
    -- Another client has dropped it from the queue, and does not know of its note.
    redis.call('HDEL', NOTES, owner)
end
if ended == 0 and granted() then
    return answer(-1)
end
head = head_of_queue()
local left = redis.call('PTTL', LOCK)
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
