-- Returns who a client says it is.
--
-- KEYS: 1 identity (HASH)
-- ARGV: none
-- Returns: {name, host, process id, since when (epoch s), version of the library}; nil = the client does not say
--
-- Invariants: reads only.
-- Redisson: none.
local told = redis.call('HMGET', KEYS[1], 'name', 'host', 'pid', 'since', 'version')
return told[1] and told
