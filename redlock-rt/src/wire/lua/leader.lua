-- Returns who leads an election, and in which term: the holder of a fenced lock and its token.
--
-- Prelude: lock_hash, looked_at
-- KEYS: 1 the lock (HASH: owner -> hold count), 2 the last token given (STRING)
-- ARGV: none
-- Returns: {token as text, owner}; {token} = nobody leads; {} = nobody ever did
--
-- Invariants: reads only; one consistent reply. A hash that is not a lock is refused (WRONGTYPE). A holder
--   that ends (lock_min_hold), or has no token, leads nothing.
-- Redisson: none.
local token = redis.call('GET', KEYS[2])
if token and (#token > 19 or not string.match(token, '^%d+$')) then
    return redis.error_reply('WRONGTYPE the counter of fencing tokens holds no number')
end
local leads = #(fields or {}) == 2 and fields[2] ~= '0'
return token and {token, leads and fields[1] or nil} or {}
