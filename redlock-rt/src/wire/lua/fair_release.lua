-- Ends a hold of a fair lock, or leaves its queue, and wakes the next waiter of a free lock.
--
-- Prelude: fair_wake, fair_queue
-- KEYS: 1 the lock, 2 queue, 3 deadlines, 4 notes
-- ARGV: 1 publish command, 2 prefix of our clients' channels, 3 prefix of the waiters' channels, 4 ms
--   for which a waiter counts at most, 5 owner
-- Returns: 1 = released, 0 = the lock does not exist, -1 = another owner has it; if a waiter was
--   to be woken, {that, 1 = announced or 0 = Redis refused to, the waiter}
--
-- Invariants:
-- * Afterwards the owner neither holds the lock nor waits for it. Without its field no newer hold
--   is freed, so the call may be late or repeated.
-- * The owner leaves the queue even if the lock has become a key of another type (WRONGTYPE);
--   otherwise it would stay next as long as its client is alive.
-- Redisson: RedissonFairLock.unlockInner, acquireFailed.
turn_to(0, ARGV[3], ARGV[4])
local owner = ARGV[5]
local ended = redis.pcall('HDEL', KEYS[1], owner)
if ended == 1 then
    redis.call('DEL', KEYS[1])
    wake_next(head_of_queue())
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
