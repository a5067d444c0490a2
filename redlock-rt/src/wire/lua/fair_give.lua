-- The usual cases of fair_release: the hold ends, and the lock goes to the waiter that the caller names, or
-- nobody waits.
--
-- Prelude: fair_wake, fair_turn
-- KEYS: as fair_release
-- ARGV: as fair_release
-- Returns: as fair_release, in these cases
--
-- Invariants:
-- * Otherwise the hold has ended, and `given` says whether the lock belongs to `head` now, which is then
--   still to leave the queue.
turn_to(0, ARGV[3], ARGV[4])
local owner = ARGV[5]
local ended = redis.pcall('HDEL', LOCK, owner)
-- The waiter that is next, its lease if the caller names it, and whether it has the lock.
local head, lease, given
if ended == 1 then
    local first = redis.call('LRANGE', QUEUE, '0', '1')
    head = first[1]
    if not head then
        redis.call('DEL', LOCK, DEADLINES, NOTES)
        return 1
    end
    for at = 6, #ARGV, 2 do
        if ARGV[at] == head then
            lease = ARGV[at + 1]
        end
    end
    given = lease and not take(head, lease)
    if given and leave_to(head, first[2], tonumber(lease)) then
        return {1, 2, head}
    end
end
