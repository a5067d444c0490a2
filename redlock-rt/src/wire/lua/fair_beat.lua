-- Says that a client is alive, for all its waiters of many fair locks, and tells who is next of each.
--
-- Prelude: fair_wake, fair_queue
-- KEYS: 1..n four of each lock: the lock, queue, deadlines, notes
-- ARGV: 1 publish command, 2 prefix of our clients' channels, 3 client uuid, 4..n of each lock: prefix of
--   the waiters' channels, ms for which a waiter counts at most, ms for which the client counts as
--   alive, of how many owners the numbers follow that have no task any more, and of how many of its
--   oldest waiters, the numbers of both
-- Returns: of each lock {the waiter that is next or '', 1 = the lock is free, the numbers of those of
--   its oldest waiters that are not queued}
--
-- Invariants:
-- * A waiter that was dropped all the same is told, and queues again.
-- * Who has no task any more is taken out of the queue, and keeps what it may hold.
-- * Whoever is next is woken where the lock is free: its announcement may have been lost.
-- * What was done for one lock stays where another fails the call; it may be repeated.
-- Redisson: has none; a waiter that died is next until its deadline.
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
    if redis.call('EXISTS', QUEUE) == 1 then
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
    local free = 1 - redis.call('EXISTS', LOCK)
    if head and free == 1 and client_of(head) ~= client then
        wake_next(head)
    end
    local reply = {head or '', free}
    for _, owner in ipairs(oldest) do
        if not deadline_of(owner) and redis.call('HEXISTS', LOCK, owner) == 0 then
            reply[#reply + 1] = string.sub(owner, #client + 2)
        end
    end
    replies[#replies + 1] = reply
end
return replies
