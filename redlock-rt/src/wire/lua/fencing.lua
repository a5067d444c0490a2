-- Creates fencing tokens: common code of scripts that take a fenced lock.
--
-- KEYS: none
-- ARGV: none
-- Returns: nothing
--
-- Invariants:
-- * A token is greater than every earlier token, even if that was lost (flushed, evicted, not
--   replicated), as long as the clock of Redis is not behind the last token: it is at least the
--   microseconds since 1970. INCR makes it grow when the clock stops or goes back. A key that is not a
--   counter is refused (WRONGTYPE).
-- * Tokens are handled as text: tostring of a number of 16 digits is not exact, and the counter of
--   another client may be larger than Lua can count (2^53).
-- * A repeated call returns the token of the hold, since no other token was given while the owner has
--   the lock. If the token was lost, a new one is created.
-- Redisson: RFencedLock.tryLockInner, which counts re-entries too.

-- What `take` wants: a function that returns the token for a hold, or an error. `key`: the last token
-- given. `ttl`: how long that stays, in ms (0: for ever).
local function tokens_of(key, ttl)
    return function(repeated)
        local last = redis.pcall('GET', key)
        if type(last) == 'table' then
            return last
        end
        if last and not string.find(last, '^%-?%d+$') then
            return redis.error_reply('WRONGTYPE the counter of fencing tokens holds no number')
        end
        if repeated and last then
            return last
        end
        local time = redis.call('TIME')
        local token = time[1] .. string.sub('00000' .. time[2], -6)
        -- Texts of the same length compare as their numbers do.
        local ahead = last and string.sub(last, 1, 1) ~= '-' and #last >= #token
        if ahead and (#last > #token or last >= token) then
            local counted = redis.pcall('INCR', key)
            if type(counted) == 'table' then
                return counted
            end
            token = redis.call('GET', key)
        end
        if tonumber(ttl) > 0 then
            redis.call('SET', key, token, 'PX', ttl)
        else
            redis.call('SET', key, token)
        end
        return token
    end
end
