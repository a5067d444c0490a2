-- Takes a free lock for a new hold, and creates its fencing token.
--
-- Prelude: lock_hash
-- KEYS: 1 the lock (HASH: owner -> hold count), 2 the last token given (STRING)
-- ARGV: 1 lease in ms, 2 owner, 3 ttl of the last token in ms (0: it stays)
-- Returns: the token, as text = taken; else the milliseconds for which the present holder has it
--   (-1: no TTL), as a number
--
-- Invariants:
-- * A token is greater than every earlier token, even if that was lost (flushed, evicted, not
--   replicated), as long as the clock of Redis is not behind the last token: it is at least the
--   microseconds since 1970. INCR makes it grow when the clock stops or goes back. A key that is not a
--   counter is refused (WRONGTYPE) before the lock is touched.
-- * Tokens are handled as text: tostring of a number of 16 digits is not exact, and the counter of
--   another client may be larger than Lua can count (2^53).
-- * An owner number is used for one hold only. So if the owner is here, this same call ran before
--   and its reply was lost: the script returns the token of the hold, since no other token was
--   given while the owner is here. If the token was lost, a new one is created.
-- * A repeat never shortens the lease.
-- * A hash that is not a lock is refused (WRONGTYPE).
-- * If an ACL forbids PEXPIRE, nothing is left but an unused token.
-- Redisson: RFencedLock.tryLockInner, which counts re-entries too.
local ttl = redis.call('PTTL', KEYS[1])
local repeated = ttl ~= -2 and redis.call('HEXISTS', KEYS[1], ARGV[2]) == 1
if ttl ~= -2 and not repeated then
    return not_a_lock(KEYS[1]) or ttl
end
local last = redis.call('GET', KEYS[2])
if last and not string.find(last, '^%-?%d+$') then
    return redis.error_reply('WRONGTYPE the counter of fencing tokens holds no number')
end
local token = repeated and last
if not token then
    local time = redis.call('TIME')
    token = time[1] .. string.sub('00000' .. time[2], -6)
    -- Texts of the same length compare as their numbers do.
    local ahead = last and string.sub(last, 1, 1) ~= '-' and #last >= #token
    if ahead and (#last > #token or last >= token) then
        local counted = redis.pcall('INCR', KEYS[2])
        if type(counted) == 'table' then
            return counted
        end
        token = redis.call('GET', KEYS[2])
    end
    if tonumber(ARGV[3]) > 0 then
        redis.call('SET', KEYS[2], token, 'PX', ARGV[3])
    else
        redis.call('SET', KEYS[2], token)
    end
end
redis.call('HSET', KEYS[1], ARGV[2], 1)
if repeated then
    if ttl >= 0 and ttl < tonumber(ARGV[1]) then
        redis.call('PEXPIRE', KEYS[1], ARGV[1])
    end
    return token
end
local leased = redis.pcall('PEXPIRE', KEYS[1], ARGV[1])
if type(leased) == 'table' then
    redis.call('HDEL', KEYS[1], ARGV[2])
    return leased
end
return token
