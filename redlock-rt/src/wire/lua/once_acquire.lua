-- Takes what is to be done once for a new attempt, unless it was done, or was begun too often.
--
-- Prelude: lock_hash, take, fencing
-- KEYS: 1 the lock (HASH: owner -> hold count), 2 the last token given (STRING), 3 the mark (HASH: attempts,
--   the owner of the last one, request, and when it was done with which result)
-- ARGV: 1 lease in ms, 2 owner, 3 for how long the mark stays in ms, 4 the most attempts (0: any number),
--   5 what is requested (empty: nothing in particular)
-- Returns: {the token of the attempt, as text; 1} = begun; {for how many ms another owner has it (-1: no TTL),
--   as a number; that owner}; {'done', when, in ms since 1970, with which result}; 'failed' = begun too often;
--   'other' = of another request
--
-- Invariants: those of the preludes, and
-- * The mark is read before anything else: what is done, or is of another request, changes nothing.
-- * An attempt is counted once: the mark has the owner of the last one, so a repeat sets the same number.
-- * The last attempt that is allowed may be under way. So whether it was begun too often is known when nobody
--   has the lock.
-- * The mark is written behind the lock by the same commands, so an ACL that forbids one leaves neither.
-- Redisson: has no equivalent.
local mark = redis.call('HMGET', KEYS[3], 'request', 'done', 'result', 'attempts', 'owner')
if mark[1] and mark[1] ~= ARGV[5] then
    return 'other'
end
if mark[2] then
    return {'done', mark[2], mark[3] or ''}
end
local before = tonumber(mark[4] or 0) or 0
if mark[5] == ARGV[2] then
    before = before - 1
end
local most = tonumber(ARGV[4])
if most > 0 and before >= most and redis.call('EXISTS', KEYS[1]) == 0 then
    return 'failed'
end
local given = take(KEYS[1], ARGV[1], ARGV[2], tokens_of(KEYS[2], ARGV[3], 1))
if type(given) == 'number' then
    return {given, redis.call('HGETALL', KEYS[1])[1]}
end
if not given.err then
    redis.call('HSET', KEYS[3], 'attempts', before + 1, 'owner', ARGV[2], 'request', ARGV[5])
    redis.call('PEXPIRE', KEYS[3], ARGV[3])
end
return given
