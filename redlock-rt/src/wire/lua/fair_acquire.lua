-- Takes a free fair lock for a new hold, if no other owner is next, or queues for it.
--
-- Prelude: lock_hash, fair_wake, fair_turn, fair_enter, fair_queue
-- KEYS: 1 the lock, 2 queue, 3 deadlines, 4 notes
-- ARGV: 1 publish command, 2 prefix of our clients' channels, 3 prefix of the waiters' channels, 4 ms
--   for which a waiter counts at most, 5 lease in ms, 6 owner, 7 ms for which this client counts as
--   alive (0: a refused owner does not queue), 8 ms for which it waits (0: without end)
-- Returns: nil = taken; else {ms for which the present holder has it (-1: no TTL, 0: it is free),
--   0 = this owner is next, 1 = another is, or this one is not queued, 1 = this one is queued, and
--   a client of another kind has the lock or is queued too, else 0, the server's time in microseconds}
--
-- Invariants:
-- * An owner number is used for one hold only. So if the owner is here, this same call ran before
--   and its reply was lost.
-- * The deadline of a waiter of ours contains the waits of other clients' waiters before it, but not
--   of our waiters. So nothing adds up over hand-overs, and taking the lock need not shift the
--   deadlines of all others.
-- * A hash that is not a lock is refused (WRONGTYPE), without queueing.
-- * If an ACL forbids PEXPIRE, nothing is left.
-- Redisson: RedissonFairLock.tryLockInner.

-- Puts the owner behind the waiters, of whom some are other clients'.
local function queue_up()
    local last = waiters and waiters[#waiters]
    local deadline, counts, gone = enter()
    if last and deadline then
        waiters[#waiters + 1] = {
            owner = owner, ours = true, score = 0, was = deadline,
            counts = counts, gone = gone, nominal = last.nominal + counts,
        }
        settle()
    end
end

local head = head_of_queue()
if is_free and (not head or head == owner) then
    local refused = take(owner, lease)
    if refused then
        return refused
    end
    local left = tonumber(lease)
    if head and not leave_to(head, redis.call('LINDEX', QUEUE, '1'), left) then
        leave(head, left)
    end
    return nil
end
if alive > 0 then
    hear(client_of(owner), alive)
    if not deadline_of(owner) then
        look(true)
        queue_up()
        head = head or owner
    end
end
if is_free then
    -- The next waiter may not know that the lock is free.
    wake_next(head)
    ttl = 0
elseif dropped and head ~= owner then
    tell_next(ttl)
end
local mixed = alive > 0 and is_mixed(redis.call('HEXISTS', NOTES, 'mixed') == 1) or 0
return {ttl, head == owner and 0 or 1, mixed, time}
