-- Leaves a note for a holder whose lock is to be freed by force.
--
-- KEYS: 1 the note (STRING)
-- ARGV: 1 how long it lives in ms, 2 by whom and why, with a NUL between
-- Returns: 1
--
-- Invariants: sets a state; may be repeated.
-- Redisson: none.
redis.call('SET', KEYS[1], ARGV[2], 'PX', ARGV[1])
return 1
