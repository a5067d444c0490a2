-- Tells the last fencing token given for a lock.
--
-- KEYS: 1 the last token given (STRING)
-- ARGV: none
-- Returns: the token, as text; nil = none was given, or it was forgotten
--
-- Invariants: reads only.
-- Redisson: RFencedLock.getToken.
return redis.call('GET', KEYS[1])
