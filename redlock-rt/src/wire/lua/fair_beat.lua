-- Marks a client as alive, for all its waiters of many fair locks, and returns who is next for each
-- lock.
--
-- Prelude: lock_hash, fair_wake, fair_turn, fair_queue
-- KEYS: 1..n four of each lock: the lock, queue, deadlines, notes
-- ARGV: 1 publish command, 2 prefix of our clients' channels, 3 client uuid, 4..n for each lock: prefix of
--   the waiters' channels, ms for which a waiter counts at most, ms for which the client counts as
--   alive, the count of owners without a task, the count of its oldest waiters, the numbers of both
-- Returns: for each lock {the waiter that is next or '', ms for which the present holder has it (-1: no
--   TTL, 0: it is free), the numbers of its oldest waiters that are not queued}
--
-- Invariants:
-- * A dropped live waiter is reported, and queues again. So is one that has the lock: if its client does not
--   know that yet, the waiter asks.
-- * An owner without a task is removed from the queue; a hold of it stays.
-- * If the lock is free, the next waiter is woken: its announcement may have been lost.
-- * A key that is not a lock is refused (WRONGTYPE), as by an attempt to acquire, since the next
--   waiter asks only by this call.
-- * If one lock makes the call fail, the effects for earlier locks stay; the call may be repeated.
-- Redisson: has no equivalent; a dead waiter is next until its deadline.
local client, at = ARGV[3], 4
local replies = {}

-- The next `count` owners.
local function owners(count)
    local all = {}
    for i = 1, tonumber(count) do
        all[i] = client .. ':' .. ARGV[at]
        at = at + 1
    end
    return all
end

for keys = 0, #KEYS - 4, 4 do
    turn_to(keys, ARGV[at], ARGV[at + 1])
    local alive, counts = tonumber(ARGV[at + 2]), {ARGV[at + 3], ARGV[at + 4]}
    at = at + 5
    local gone, oldest = owners(counts[1]), owners(counts[2])
    local before = redis.call('LINDEX', QUEUE, 0)
    if redis.call('EXISTS', QUEUE) == 1 then
        -- A write that needs no memory: a full memory refuses nothing behind it.
        redis.call('HDEL', NOTES, '')
        hear(client, alive)
        look()
    end
    for _, owner in ipairs(gone) do
        if deadline_of(owner) then
            take_out(owner)
        end
    end
    local head = head_of_queue()
    settle(100)
    local left = redis.call('PTTL', LOCK)
    if left ~= -2 then
        local flaw = not_a_lock(LOCK)
        if flaw then
            return flaw
        end
        if head and head ~= before and client_of(head) ~= client then
            tell_next(left)
        end
    else
        left = 0
        if head and client_of(head) ~= client then
            wake_next(head)
        end
    end
    local reply = {shown(head or ''), left}
    for _, owner in ipairs(oldest) do
        if not deadline_of(owner) then
            reply[#reply + 1] = string.sub(owner, #client + 2)
        end
    end
    replies[#replies + 1] = reply
end
return replies
