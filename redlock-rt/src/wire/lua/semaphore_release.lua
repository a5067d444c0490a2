-- Gives the permits of a hold back, and wakes waiters.
--
-- KEYS: 1 the semaphore (STRING: free permits), 2 our holds (HASH: owner -> permits), 3 note that
--   this owner was withdrawn (STRING)
-- ARGV: 1 owner, 2 channel, 3 publish command, 4 ms for which a withdrawal is noted (0: it is not)
-- Returns: 1 = given back, 0 = there was nothing to give back; if waiters were to be woken, {1, 1 +
--   how many received the message or 0 = Redis refused to publish it}
--
-- Invariants:
-- * Without the owner's field nothing is given back: a late or repeated release creates no permits.
-- * The number of permits is what the owner took, not an argument of the call.
-- * A deleted semaphore is not created again.
-- * A full memory loses no permit: Redis refuses INCRBY for lack of memory only if nothing was
--   written before, so HDEL comes first. If INCRBY is refused for another reason, the hold stays.
-- * A refused PUBLISH (an ACL) is not a failure: waiters poll.
-- Redisson: RSemaphore.releaseIfExists.
local given, told, permits = 0, nil, redis.call('HGET', KEYS[2], ARGV[1])
redis.call('HDEL', KEYS[2], ARGV[1])
if permits then
    if redis.call('EXISTS', KEYS[1]) == 1 then
        local free = redis.pcall('INCRBY', KEYS[1], permits)
        if type(free) == 'table' then
            redis.call('HSET', KEYS[2], ARGV[1], permits)
            return free
        end
        given = 1
        if free > 0 then
            told = (tonumber(redis.pcall(ARGV[3], ARGV[2], free)) or -1) + 1
        end
    end
end
if tonumber(ARGV[4]) > 0 then
    redis.call('SET', KEYS[3], 1, 'PX', ARGV[4])
end
return told and {given, told} or given
