-- Adds free permits, or removes some, without a hold, and wakes waiters.
--
-- KEYS: 1 the semaphore (STRING: free permits), 2 note of this operation (STRING), 3 our holds without
--   leases (HASH: owner -> permits)
-- ARGV: 1 permits (may be negative), 2 channel, 3 publish command, 4 ms for which the operation is noted
-- Returns: the free permits afterwards; if waiters were to be woken, {these, 1 = announced or 0 =
--   Redis refused to}
--
-- Invariants:
-- * A repeat finds the note and returns the first reply: nothing is added twice.
-- * Holds of a semaphore that was deleted since then do not count in the one that this creates.
-- * The number is checked before the note is written: INCRBY refuses a key that is not a number.
-- * A full memory loses no permit: Redis refuses INCRBY for lack of memory only if nothing was
--   written before, so a DEL of a missing key comes first.
-- Redisson: RSemaphore.release, RSemaphore.addPermits, RPermitExpirableSemaphore.addPermits; they
-- create a missing semaphore.
local told = redis.call('GET', KEYS[2])
if told then
    return tonumber(told)
end
redis.call('DEL', KEYS[2])
if redis.call('EXISTS', KEYS[1]) == 0 then
    redis.call('DEL', KEYS[3])
end
local free = redis.pcall('INCRBY', KEYS[1], ARGV[1])
if type(free) == 'table' then
    if string.find(free.err, 'not an integer') or string.find(free.err, 'overflow') then
        return redis.error_reply('WRONGTYPE the key holds no number of permits')
    end
    return free
end
redis.call('SET', KEYS[2], free, 'PX', ARGV[4])
if free > 0 and tonumber(ARGV[1]) > 0 then
    return {free, type(redis.pcall(ARGV[3], ARGV[2], free)) == 'number' and 1 or 0}
end
return free
