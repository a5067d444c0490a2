-- Takes a free fair lock for a new hold, if no other owner is next, or queues for it.
--
-- Prelude: lock_hash, fair_wake, fair_queue
-- KEYS: 1 the lock, 2 queue, 3 deadlines, 4 notes
-- ARGV: 1 publish command, 2 prefix of our clients' channels, 3 prefix of the waiters' channels, 4 ms
--   for which a waiter counts at most, 5 lease in ms, 6 owner, 7 ms for which this client counts as
--   alive (0: a refused owner does not queue), 8 ms for which it waits (0: without end)
-- Returns: nil = taken; else {ms for which the present holder has it (-1: no TTL, 0: it is free),
--   0 = this owner is next, 1 = another is, or this one is not queued, 1 = this one is queued, and
--   a client of another kind has the lock or is queued too, else 0}
--
-- Invariants:
-- * An owner number is used for one hold only. So if the owner is here, this same call ran before
--   and its reply was lost.
-- * The deadline of a waiter of ours contains its own time and the waits of other clients' waiters
--   before it, but not of our waiters. So nothing adds up over hand-overs, and taking the lock need
--   not shift the deadlines of all others.
-- * A hash that is not a lock is refused (WRONGTYPE), without queueing.
-- * If an ACL forbids PEXPIRE, nothing is left.
-- Redisson: RedissonFairLock.tryLockInner.

-- Whether a client of another kind has the lock or is queued. The waiters before a waiter are in the
-- queue when it enters, so the answer at that time is right for its whole wait.
local function is_mixed()
    if redis.call('HEXISTS', KEYS[4], 'mixed') == 1 then
        return 1
    end
    local holder = redis.call('HGETALL', KEYS[1])[1]
    return holder and not is_ours(holder) and 1 or 0
end

turn_to(0, ARGV[3], ARGV[4])
local lease, owner, alive, wait = ARGV[5], ARGV[6], tonumber(ARGV[7]), tonumber(ARGV[8])
local ttl = redis.call('PTTL', KEYS[1])
if ttl ~= -2 and redis.call('HEXISTS', KEYS[1], owner) == 1 then
    redis.call('HSET', KEYS[1], owner, 1)
    if ttl >= 0 and ttl < tonumber(lease) then
        redis.call('PEXPIRE', KEYS[1], lease)
    end
    return nil
end
local flaw = ttl ~= -2 and not_a_lock(KEYS[1])
if flaw then
    return flaw
end
local head = head_of_queue()
if ttl == -2 and (not head or head == owner) then
    redis.call('HSET', KEYS[1], owner, 1)
    local leased = redis.pcall('PEXPIRE', KEYS[1], lease)
    if type(leased) == 'table' then
        redis.call('HDEL', KEYS[1], owner)
        return leased
    end
    if head then
        look()
        take_out(owner)
        settle(1)
        tell_next(tonumber(lease))
    end
    return nil
end
if alive > 0 then
    hear(client_of(owner), alive)
    if not deadline_of(owner) then
        look(true)
        local from = now + math.max(0, ttl)
        local counts, gone = MOST, math.huge
        if wait > 0 then
            -- By then its client has ended the wait, even if a call takes long.
            counts, gone = math.min(wait, MOST), now + wait + 2000
            redis.call('HSET', KEYS[4], owner, ms(counts) .. ' ' .. ms(gone))
        end
        local deadline, room = math.min(gone, from + MOST), 0
        for _, waiter in ipairs(waiters or {}) do
            room = room + (waiter.ours and 0 or waiter.counts)
        end
        deadline = math.ceil(deadline + room)
        if waiters then
            waiters[#waiters + 1] = {
                owner = owner, ours = true, score = deadline, was = deadline,
                counts = counts, gone = gone, nominal = waiters[#waiters].nominal + counts,
            }
        elseif not head then
            redis.call('HSET', KEYS[4], 'began', ms(from))
        end
        redis.call('RPUSH', KEYS[2], owner)
        redis.call('ZADD', KEYS[3], ms(deadline), owner)
        if waiters then
            settle()
        end
        head = head or owner
    end
end
if ttl == -2 then
    -- The next waiter may not know that the lock is free.
    wake_next(head)
    ttl = 0
elseif dropped and head ~= owner then
    tell_next(ttl)
end
return {ttl, head == owner and 0 or 1, alive > 0 and is_mixed() or 0}
