-- Says who a client is.
--
-- KEYS: 1 identity (HASH)
-- ARGV: 1 TTL ms, 2 name, 3 host, 4 process id, 5 version of the library
-- Returns: 1
--
-- Invariants: state-setting, safe to repeat. All is read before the first write: a right that is missing leaves no
--   key without a TTL.
-- Redisson: none.
local since = redis.call('HGET', KEYS[1], 'since') or redis.call('TIME')[1]
redis.call('HSET', KEYS[1], 'name', ARGV[2], 'host', ARGV[3], 'pid', ARGV[4], 'version', ARGV[5], 'since', since)
redis.call('PEXPIRE', KEYS[1], ARGV[1])
return 1
