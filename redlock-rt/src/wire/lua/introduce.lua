-- Says who a client is.
--
-- KEYS: 1 identity (HASH)
-- ARGV: 1 TTL ms, 2 name, 3 host, 4 process id, 5 version of the library
-- Returns: 1
--
-- Invariants: state-setting, safe to repeat. The key ends a TTL after the client.
-- Redisson: none.
redis.call('HSET', KEYS[1], 'name', ARGV[2], 'host', ARGV[3], 'pid', ARGV[4], 'version', ARGV[5])
if redis.call('HEXISTS', KEYS[1], 'since') == 0 then
    redis.call('HSET', KEYS[1], 'since', redis.call('TIME')[1])
end
redis.call('PEXPIRE', KEYS[1], ARGV[1])
return 1
