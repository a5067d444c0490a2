-- Returns the number of waiters of a fair lock, and the number before one of them.
--
-- KEYS: 1 queue (LIST of owners, the head is next)
-- ARGV: 1 owner (empty: only the number of waiters)
-- Returns: {number of waiters, how many are before the owner (-1: it does not wait)}
--
-- Invariants: reads only. O(n).
-- Redisson: has no equivalent.
local place = ARGV[1] ~= '' and redis.call('LPOS', KEYS[1], ARGV[1])
return {redis.call('LLEN', KEYS[1]), place or -1}
