-- Says that a client is alive, for all its waiters of one fair lock, and tells who is next.
--
-- Prelude: fair_queue
-- KEYS: 1 the lock, 2 queue, 3 deadlines, 4 our clients
-- ARGV: 1 prefix of the waiters' channels, 2 publish command, 3 client uuid, 4 ms for which it
--   counts as alive, 5 ms by which a place in the queue
--   puts the deadline off, 6 how many of those that follow nobody waits as any more, 7..n these, and
--   then its oldest waiters
-- Returns: {the waiter that is next or '', 1 = the lock is free, those of its oldest waiters that
--   are not queued}
--
-- Invariants:
-- * Deadlines of live waiters of ours are put off, never brought nearer, so that no other client
--   drops one: within a minute of its deadline it gets a new one, later by all places, since
--   Redisson brings all nearer by a place whenever it takes the lock.
-- * A waiter that was dropped all the same is told, and queues again.
-- * Who is not waited as any more is taken out of the queue, and keeps the lock if it has it.
-- * Whoever is next is woken where the lock is free: its announcement may have been lost.
-- Redisson: has none; a waiter that died is next until its deadline.
local client, alive, later = ARGV[3], tonumber(ARGV[4]), tonumber(ARGV[5])
if redis.call('EXISTS', KEYS[2]) == 1 then
    hear(client, alive)
end
local near = string.format('%.0f', now + 60000)
local far = now + later * (redis.call('LLEN', KEYS[2]) + 1)
for _, waiter in ipairs(redis.call('ZRANGEBYSCORE', KEYS[3], '-inf', near, 'LIMIT', 0, 100)) do
    local heard = redis.call('HGET', KEYS[4], client_of(waiter))
    if heard and tonumber(heard) > now then
        redis.call('ZADD', KEYS[3], 'XX', string.format('%.0f', far), waiter)
    end
end
local oldest = 7 + tonumber(ARGV[6])
for i = 7, oldest - 1 do
    if redis.call('ZSCORE', KEYS[3], ARGV[i]) then
        take_out(ARGV[i], later)
    end
end
local head = head_of_queue()
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
