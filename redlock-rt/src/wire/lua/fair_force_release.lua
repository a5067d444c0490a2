-- Frees a fair lock, whoever holds it, and wakes the next waiter.
--
-- Prelude: lock_hash, fair_wake, fair_turn, fair_queue, freed
-- KEYS: 1 the lock, 2 queue, 3 deadlines, 4 notes
-- ARGV: 1 publish command, 2 prefix of our clients' channels, 3 prefix of the waiters' channels, 4 ms
--   for which a waiter counts at most
-- Returns: 1 = it was held, 0 = it was free; if a waiter was to be woken, {that, 1 = announced or
--   0 = Redis refused to, the waiter}
--
-- Invariants:
-- * A key or a hash that is not a lock is refused (WRONGTYPE), not deleted.
-- * The queue stays: waiters continue to wait.
-- Redisson: RedissonFairLock.forceUnlock.
turn_to(0, ARGV[3], ARGV[4])
wake_next(head_of_queue())
return answer(1)
