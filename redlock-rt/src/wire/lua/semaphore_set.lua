-- Sets the number of permits if none is set.
--
-- KEYS: 1 the semaphore (STRING: free permits), 2 note of this operation (STRING), 3 our holds (HASH:
--   owner -> permits)
-- ARGV: 1 permits, 2 channel, 3 publish command, 4 ms for which the operation is noted
-- Returns: {1 = set, 1 = announced or 0 = Redis refused to}; else 1 = this call set it before, 0 =
--   there is a number already
--
-- Invariants:
-- * A repeat finds the note and returns the first reply.
-- * Holds of a semaphore that was deleted since then do not count in the new one.
-- * A key that is not a number is refused (WRONGTYPE).
-- Redisson: RSemaphore.trySetPermits.
if redis.call('EXISTS', KEYS[2]) == 1 then
    return 1
end
local free = redis.call('GET', KEYS[1])
if free and (#free > 16 or not string.match(free, '^-?%d+$') or string.format('%.0f', free + 0) ~= free) then
    return redis.error_reply('WRONGTYPE the key holds no number of permits')
end
if free then
    return 0
end
redis.call('SET', KEYS[2], 1, 'PX', ARGV[4])
redis.call('SET', KEYS[1], ARGV[1])
redis.call('DEL', KEYS[3])
return {1, type(redis.pcall(ARGV[3], ARGV[2], ARGV[1])) == 'number' and 1 or 0}
