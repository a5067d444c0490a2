-- Returns how a generation of a barrier ended, if it has.
--
-- Prelude: barrier
-- KEYS: 1 the state (HASH), 2 the parties (ZSET: id of 16 bytes -> epoch ms)
-- ARGV: 1 channel, 2 publish command, 3 the generation
-- Returns: {how many parties are there, ms until the first lease is over} = it has not ended; else how, as text
--   (empty: Redis does not know it any more)
--
-- Invariants:
-- * Who waits keeps the barrier from being forgotten.
-- Redisson: has no equivalent.
local how = redis.call('HGET', KEYS[1], ARGV[3])
if how or count == 0 or tonumber(ARGV[3]) ~= generation then
    return how or ''
end
keep()
return {count, rest}
