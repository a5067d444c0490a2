-- Takes all free permits without a hold.
--
-- KEYS: 1 the semaphore (STRING: free permits), 2 note of this operation (STRING)
-- ARGV: 1 ms for which the operation is noted
-- Returns: how many were taken; negative if the number was negative
--
-- Invariants:
-- * A repeat finds the note and returns the first reply: later additions stay.
-- * A missing semaphore is not created, and an existing TTL stays.
-- Redisson: RSemaphore.drainPermits.
local told = redis.call('GET', KEYS[2])
if told then
    return tonumber(told)
end
local free = redis.call('GET', KEYS[1])
if free then
    if #free > 16 or not string.match(free, '^-?%d+$') or string.format('%.0f', free + 0) ~= free then
        return redis.error_reply('WRONGTYPE the key holds no number of permits')
    end
    redis.call('DECRBY', KEYS[1], free)
end
free = free or 0
redis.call('SET', KEYS[2], free, 'PX', ARGV[1])
return tonumber(free)
