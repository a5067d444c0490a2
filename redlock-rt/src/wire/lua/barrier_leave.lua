-- Removes a party from a barrier. The last one that is inside a double barrier ends the round.
--
-- Prelude: permit_ids, barrier
-- KEYS: 1 the state (HASH), 2 the parties (ZSET: id of 16 bytes -> epoch ms), 3 note of this owner (STRING)
-- ARGV: 1 channel, 2 publish command, 3 id of the party in hexadecimal, 4 ms for which it is noted that it
--   was withdrawn (0 if it is not)
-- Returns: 1 = removed, 0 = it was not there; if waiters were to be woken, {that, 1 + receivers or 0 = Redis
--   refused to}
--
-- Invariants:
-- * A party that is not there, since its generation has ended, changes nothing.
-- Redisson: has no equivalent.
local gone = redis.call('ZREM', KEYS[2], raw_ids(ARGV[3])[1])
if gone == 1 and count == 1 and state[3] then
    empties('left', generation + 1)
end
if ARGV[4] ~= '0' then
    redis.call('SET', KEYS[3], '', 'PX', ARGV[4])
end
return answer(gone)
