-- Takes all free permits without a hold.
--
-- KEYS: 1 the semaphore (STRING: free permits), 2 note of this operation (STRING)
-- ARGV: 1 ms for which the operation is noted
-- Returns: how many were taken; negative where so many were lacking
--
-- Invariants:
-- * A repeat finds the note and answers as the first: what was added or set since stays.
-- * A semaphore that does not exist is not made, and the TTL of one that has one stays.
-- Redisson: RSemaphore.drainPermits.
local told = redis.call('GET', KEYS[2])
if told then
    return tonumber(told)
end
local free = redis.call('GET', KEYS[1])
if free then
    if not string.match(free, '^-?%d+$') then
        return redis.error_reply('WRONGTYPE the key holds no number of permits')
    end
    redis.call('DECRBY', KEYS[1], free)
end
free = free or 0
redis.call('SET', KEYS[2], free, 'PX', ARGV[1])
return tonumber(free)
