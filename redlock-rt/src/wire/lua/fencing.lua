-- Creates fencing tokens: common code of scripts that take a fenced lock.
--
-- KEYS: none
-- ARGV: none
-- Returns: nothing
--
-- Invariants:
-- * A token is greater than every earlier token, even if that was lost (flushed, evicted, not
--   replicated), as long as the clock of Redis is 1 ms past the last token: the greatest token of a hold
--   is at least the microseconds since 1970. INCR makes it grow when the clock stops or goes back. A key
--   that is not a counter is refused (WRONGTYPE).
-- * The numbers between the last token and the new one were given to nobody, and are less than every
--   token to come, whatever is lost meanwhile. So the nearest of them may belong to the owner too: the
--   process gives them to the next holders of its own, least first. Without a last token there are none.
-- * Tokens are handled as text: tostring of a number of 16 digits is not exact, and the counter of
--   another client may be larger than Lua can count (2^53).
-- * A repeated call returns the last token, since no other was given while the owner has the lock. If
--   the token was lost, a new one is created.
-- Redisson: RFencedLock.tryLockInner, which counts re-entries too.

-- What `take` wants: a function that returns {the greatest token of a hold, how many the owner has}, or
-- an error. `key`: the last token given. `ttl`: how long that stays, in ms (0: for ever). `most`: how many
-- the owner may have.
local function tokens_of(key, ttl, most)
    return function(repeated)
        local last = redis.pcall('GET', key)
        if type(last) == 'table' then
            return last
        end
        if last and not string.find(last, '^%-?%d+$') then
            return redis.error_reply('WRONGTYPE the counter of fencing tokens holds no number')
        end
        if repeated and last then
            return {last, 1}
        end
        local time = redis.call('TIME')
        local count = 1
        local token = time[1] .. string.sub('00000' .. time[2], -6)
        -- Texts of the same length compare as their numbers do.
        local ahead = last and string.sub(last, 1, 1) ~= '-' and #last >= #token
        if ahead and (#last > #token or last >= token) then
            local counted = redis.pcall('INCR', key)
            if type(counted) == 'table' then
                return counted
            end
            token = redis.call('GET', key)
        elseif last then
            -- Exact: both have less than 17 digits.
            count = math.min(tonumber(token) - tonumber(last), tonumber(most))
        end
        if tonumber(ttl) > 0 then
            redis.call('SET', key, token, 'PX', ttl)
        else
            redis.call('SET', key, token)
        end
        return {token, count}
    end
end
