-- Tells how many wait for a fair lock, and how many of them before one of them.
--
-- KEYS: 1 queue (LIST of owners, the head is next)
-- ARGV: 1 owner (empty: only the number of waiters)
-- Returns: {number of waiters, how many are before the owner (-1: it does not wait)}
--
-- Invariants: reads only. O(n).
-- Redisson: has none.
local place = ARGV[1] ~= '' and redis.call('LPOS', KEYS[1], ARGV[1])
return {redis.call('LLEN', KEYS[1]), place or -1}
