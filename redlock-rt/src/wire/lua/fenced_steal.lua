-- Takes a fenced lock for a new hold, from the owner that the caller saw or if it is free, and creates its
-- fencing token.
--
-- Prelude: lock_hash, take, steal, fencing
-- KEYS: 1 the lock (HASH: owner -> hold count), 2 the note for the owner that loses it (STRING), 3 the last
--   token given (STRING)
-- ARGV: 1 lease in ms, 2 owner, 3 the owner that was seen (empty: none), 4 by whom and why, with a NUL
--   between (empty: it is adopted), 5 how much longer than the lease the note lives in ms, 6 channel, 7 publish command, 8 ttl of
--   the last token in ms (0: it stays)
-- Returns: {the token, as text; 1} = taken; else the milliseconds for which another owner has it (-1: no
--   TTL, or nobody has it), as a number
--
-- Invariants: those of the preludes.
-- Redisson: none.
local token = tokens_of(KEYS[3], ARGV[8], 1)
return steal(KEYS[1], KEYS[2], ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5], ARGV[6], ARGV[7], token)
