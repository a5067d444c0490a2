-- Returns the last fencing token given for a lock.
--
-- KEYS: 1 the last token given (STRING)
-- ARGV: none
-- Returns: the token, as text; nil = none was given, or it was lost
--
-- Invariants: reads only. A key that is not a counter is refused (WRONGTYPE).
-- Redisson: RFencedLock.getToken.
local token = redis.call('GET', KEYS[1])
if token and (#token > 19 or not string.match(token, '^%d+$')) then
    return redis.error_reply('WRONGTYPE the counter of fencing tokens holds no number')
end
return token
