-- Ends the present generation of a barrier, if somebody has arrived or it is broken.
--
-- Prelude: barrier
-- KEYS: 1 the state (HASH), 2 the parties (ZSET: id of 16 bytes -> epoch ms), 3 note of this call (STRING, its
--   reply)
-- ARGV: 1 channel, 2 publish command, 3 ms for which the note stays
-- Returns: 1 = ended, 0 = there was nothing to end; if waiters were to be woken, {that, 1 + receivers or 0 =
--   Redis refused to}
--
-- Invariants:
-- * A repeat after a lost reply finds the note, and ends no later generation.
-- Redisson: has no equivalent.
local noted = redis.call('GET', KEYS[3])
if noted then
    return tonumber(noted)
end
local ended = 1
if redis.call('HEXISTS', KEYS[1], generation) == 1 then
    redis.call('HSET', KEYS[1], 'generation', generation + 1)
elseif count > 0 then
    empties('reset', generation + 1)
else
    ended = 0
end
redis.call('SET', KEYS[3], ended, 'PX', ARGV[3])
return answer(ended)
