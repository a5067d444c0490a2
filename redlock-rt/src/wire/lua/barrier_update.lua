-- Sets the lease of a party of a barrier.
--
-- Prelude: permit_ids, barrier
-- KEYS: 1 the state (HASH), 2 the parties (ZSET: id of 16 bytes -> epoch ms)
-- ARGV: 1 channel, 2 publish command, 3 id of the party in hexadecimal, 4 lease in ms from now on
-- Returns: 1 = set, 0 = it is not there; if waiters were to be woken, {that, 1 + receivers or 0 = Redis refused
--   to}
--
-- Invariants:
-- * A party that is not there does not come back.
-- Redisson: has no equivalent.
local id = raw_ids(ARGV[3])[1]
local there = redis.call('ZSCORE', KEYS[2], id) and 1 or 0
-- A write that needs no memory: a full memory refuses nothing behind it.
redis.call('ZREM', KEYS[2], '')
redis.call('ZADD', KEYS[2], 'XX', string.format('%.0f', now + ARGV[4]), id)
return answer(there)
