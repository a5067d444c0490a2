-- The usual cases of fair_acquire: a free lock without waiters is taken, and behind waiters of ours the
-- owner queues.
--
-- Prelude: lock_hash, fair_wake, fair_turn
-- KEYS: as fair_acquire
-- ARGV: as fair_acquire
-- Returns: as fair_acquire, in these cases
--
-- Invariants:
-- * A lock that is held by its owner, or is no lock, is answered here too.
turn_to(0, ARGV[3], ARGV[4])
local lease, owner, alive, wait = ARGV[5], ARGV[6], tonumber(ARGV[7]), tonumber(ARGV[8])
local ttl = redis.call('PTTL', LOCK)
local is_free = ttl == -2
if is_free and redis.call('EXISTS', QUEUE) == 0 then
    redis.call('DEL', DEADLINES, NOTES)
    return take(owner, lease)
end
local time = seconds * 1000000 + micros
-- The holder, and the number of its holds.
local fields
if not is_free then
    local flaw
    flaw, fields = not_a_lock(LOCK)
    local mine = not fields and redis.call('HEXISTS', LOCK, owner) == 1
    for i = 1, fields and #fields or 0, 2 do
        mine = mine or fields[i] == owner
    end
    if mine then
        redis.call('HSET', LOCK, owner, '1')
        if ttl >= 0 and ttl < tonumber(lease) then
            redis.call('PEXPIRE', LOCK, lease)
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

-- Puts the owner at the end of the queue. Returns its deadline in a queue of ours, the time that it adds to the deadlines behind it, and when its wait has ended; nil if it is
-- queued.
local function enter()
    local from = now + math.max(0, ttl)
    local counts, gone = MOST, math.huge
    if wait > 0 then
        -- By then its client has ended the wait, even if a call takes long.
        counts, gone = math.min(wait, MOST), now + wait + 2000
    end
    local deadline = math.ceil(math.min(gone, from + MOST))
    if redis.call('ZADD', DEADLINES, 'NX', ms(deadline), owner) == 0 then
        return nil
    end
    if wait > 0 then
        redis.call('HSET', NOTES, owner, ms(counts) .. ' ' .. ms(gone))
    end
    if redis.call('RPUSH', QUEUE, owner) == 1 then
        redis.call('HSET', NOTES, 'began', ms(from))
    end
    return deadline, counts, gone
end

-- The usual case: the lock is held, all waiters are ours, this one is new, and its client has sent a
-- heartbeat. Who is next is of no interest then, and whoever frees the lock drops the dead.
if not is_free and alive > 0 then
    local last = redis.call('LINDEX', QUEUE, '-1')
    local noted = last and is_ours(last)
        and redis.call('HMGET', NOTES, 'mixed', client_of(owner))
    local heard = noted and not noted[1] and tonumber(noted[2]) or 0
    if heard - now >= 0.6 * alive and enter() then
        return {ttl, 1, is_mixed(), time}
    end
end
