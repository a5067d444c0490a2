-- Takes permits of a semaphore for a new hold.
--
-- KEYS: 1 the semaphore (STRING: free permits), 2 our holds (HASH: owner -> permits), 3 note that
--   this owner was withdrawn (STRING)
-- ARGV: 1 owner, 2 permits, 3 the number of permits to set if none is set (0: none), 4 channel,
--   5 publish command
-- Returns: {permits left} = taken; else -1 = too few are free, -2 = no number was ever set
--
-- Invariants:
-- * An owner number is used for one hold only. So if the owner is here, this same call ran before
--   and its reply was lost: nothing more is taken.
-- * A call that arrives after its withdrawal takes nothing, since nothing would give it back.
-- * If an ACL forbids DECRBY, only the number that was set is left.
-- * Holds of a deleted semaphore do not count in the one that is created here.
-- Redisson: RSemaphore.tryAcquire; with a limit RSemaphore.trySetPermits first.
if redis.call('EXISTS', KEYS[3]) == 1 then
    return -1
end
local set = redis.call('GET', KEYS[1])
local free = set or '0'
if #free > 16 or not string.match(free, '^-?%d+$') or string.format('%.0f', free + 0) ~= free then
    return redis.error_reply('WRONGTYPE the key holds no number of permits')
end
free = tonumber(free)
if redis.call('HEXISTS', KEYS[2], ARGV[1]) == 1 then
    return {free}
end
if ARGV[3] ~= '0' and not set then
    redis.call('SET', KEYS[1], ARGV[3])
    redis.call('DEL', KEYS[2])
    redis.pcall(ARGV[5], ARGV[4], ARGV[3])
    free, set = tonumber(ARGV[3]), true
end
if not set then
    return -2
end
if free < tonumber(ARGV[2]) then
    return -1
end
redis.call('HSET', KEYS[2], ARGV[1], ARGV[2])
local left = redis.pcall('DECRBY', KEYS[1], ARGV[2])
if type(left) == 'table' then
    redis.call('HDEL', KEYS[2], ARGV[1])
    return left
end
return {left}
