-- Says that a client is alive, for all its waiters of one fair lock, and tells who is next.
--
-- Prelude: fair_queue
-- KEYS: 1 the lock, 2 queue, 3 deadlines, 4 notes
-- ARGV: 1 prefix of the waiters' channels, 2 publish command, 3 ms for which a waiter counts at
--   most, 4 client uuid, 5 ms for which it counts as alive, 6 how many of those that follow have no
--   task any more, 7..n these, and then its oldest waiters
-- Returns: {the waiter that is next or '', 1 = the lock is free, those of its oldest waiters that
--   are not queued}
--
-- Invariants:
-- * A waiter that was dropped all the same is told, and queues again.
-- * Who has no task any more is taken out of the queue, and keeps what it may hold.
-- * Whoever is next is woken where the lock is free: its announcement may have been lost.
-- Redisson: has none; a waiter that died is next until its deadline.
local client, alive, oldest = ARGV[4], tonumber(ARGV[5]), 7 + tonumber(ARGV[6])
if redis.call('EXISTS', KEYS[2]) == 1 then
    hear(client, alive)
    look()
end
for i = 7, oldest - 1 do
    if deadline_of(ARGV[i]) then
        take_out(ARGV[i])
    end
end
local head = head_of_queue()
settle(100)
local free = 1 - redis.call('EXISTS', KEYS[1])
if head and free == 1 and client_of(head) ~= client then
    wake(head)
end
local reply = {head or '', free}
for i = oldest, #ARGV do
    if not redis.call('ZSCORE', KEYS[3], ARGV[i]) and redis.call('HEXISTS', KEYS[1], ARGV[i]) == 0 then
        reply[#reply + 1] = ARGV[i]
    end
end
return reply
