-- Returns who a client says it is.
--
-- KEYS: 1 identity (HASH)
-- ARGV: none
-- Returns: {name, host, process id, since when (epoch s), version of the library}; nil = the client does not say
--
-- Invariants: reads only.
-- Redisson: none.
local told = redis.call('HMGET', KEYS[1], 'name', 'host', 'pid', 'since', 'version')
for field = 1, 5 do
    if not told[field] then
        return nil
    end
end
return told
