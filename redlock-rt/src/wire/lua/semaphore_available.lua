-- Returns the number of free permits.
--
-- KEYS: 1 the semaphore (STRING: free permits)
-- ARGV: none
-- Returns: their number; 0 if there is no semaphore
--
-- Invariants: reads only.
-- Redisson: RSemaphore.availablePermits.
local free = redis.call('GET', KEYS[1]) or '0'
if #free > 16 or not string.match(free, '^-?%d+$') or string.format('%.0f', free + 0) ~= free then
    return redis.error_reply('WRONGTYPE the key holds no number of permits')
end
return tonumber(free)
