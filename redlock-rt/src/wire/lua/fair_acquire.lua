-- Takes a free fair lock for a new hold, if no other owner is next, or queues for it.
--
-- Prelude: lock_hash, fair_wake, fair_queue
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
-- * The deadline of a waiter of ours contains its own time and the waits of other clients' waiters
--   before it, but not of our waiters. So nothing adds up over hand-overs, and taking the lock need
--   not shift the deadlines of all others.
-- * A hash that is not a lock is refused (WRONGTYPE), without queueing.
-- * If an ACL forbids PEXPIRE, nothing is left.
-- Redisson: RedissonFairLock.tryLockInner.


turn_to(0, ARGV[3], ARGV[4])
local lease, owner, alive, wait = ARGV[5], ARGV[6], tonumber(ARGV[7]), tonumber(ARGV[8])
local ttl = redis.call('PTTL', KEYS[1])
local is_free = ttl == -2
local micros = clock[1] * 1000000 + clock[2]
-- The holder, and the number of its holds.
local fields
if not is_free then
    local flaw
    flaw, fields = not_a_lock(KEYS[1])
    local mine
    if fields then
        mine = pairs_of(fields)[owner]
    else
        mine = redis.call('HEXISTS', KEYS[1], owner) == 1
    end
    if mine then
        redis.call('HSET', KEYS[1], owner, 1)
        if ttl >= 0 and ttl < tonumber(lease) then
            redis.call('PEXPIRE', KEYS[1], lease)
        end
        return nil
    end
    if flaw then
        return flaw
    end
end

-- Whether a client of another kind has the lock or is queued. The waiters before a waiter are in the
-- queue when it enters, so the answer at that time is right for its whole wait.
local function is_mixed(noted)
    return (noted or not is_free and not (fields and is_ours(fields[1]))) and 1 or 0
end

-- Puts the owner at the end of the queue. Returns false if it is queued.
local function enter()
    local from = now + math.max(0, ttl)
    local counts, gone = MOST, math.huge
    if wait > 0 then
        -- By then its client has ended the wait, even if a call takes long.
        counts, gone = math.min(wait, MOST), now + wait + 2000
    end
    local deadline, room = math.min(gone, from + MOST), 0
    for _, waiter in ipairs(waiters or {}) do
        room = room + (waiter.ours and 0 or waiter.counts)
    end
    deadline = math.ceil(deadline + room)
    if redis.call('ZADD', KEYS[3], 'NX', ms(deadline), owner) == 0 then
        return false
    end
    if wait > 0 then
        redis.call('HSET', KEYS[4], owner, ms(counts) .. ' ' .. ms(gone))
    end
    if waiters then
        waiters[#waiters + 1] = {
            owner = owner, ours = true, score = deadline, was = deadline,
            counts = counts, gone = gone, nominal = waiters[#waiters].nominal + counts,
        }
    end
    local place = redis.call('RPUSH', KEYS[2], owner)
    if place == 1 then
        redis.call('HSET', KEYS[4], 'began', ms(from))
    end
    if waiters then
        settle()
    end
    return true
end

-- The usual case: the lock is held, all waiters are ours, this one is new, and its client has sent a
-- heartbeat. Who is next is of no interest then, and whoever frees the lock drops the dead.
if not is_free and alive > 0 then
    local last = redis.call('LINDEX', KEYS[2], -1)
    local noted = last and is_ours(last)
        and redis.call('HMGET', KEYS[4], 'mixed', client_of(owner))
    local heard = noted and not noted[1] and tonumber(noted[2]) or 0
    if heard - now >= 0.6 * alive and enter() then
        return {ttl, 1, is_mixed(), micros}
    end
end

local head = head_of_queue()
if is_free and (not head or head == owner) then
    redis.call('HSET', KEYS[1], owner, 1)
    local leased = redis.pcall('PEXPIRE', KEYS[1], lease)
    if type(leased) == 'table' then
        redis.call('HDEL', KEYS[1], owner)
        return leased
    end
    if head then
        serve(head, redis.call('LINDEX', KEYS[2], 1), tonumber(lease))
    end
    return nil
end
if alive > 0 then
    hear(client_of(owner), alive)
    if not deadline_of(owner) then
        look(true)
        enter()
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
local mixed = alive > 0 and is_mixed(redis.call('HEXISTS', KEYS[4], 'mixed') == 1) or 0
return {ttl, head == owner and 0 or 1, mixed, micros}
