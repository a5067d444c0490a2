-- Sets the hold count of a hold and lengthens its lease: re-entry, partial release, extension.
--
-- KEYS: 1 the lock (HASH: owner -> hold count)
-- ARGV: 1 lease in ms (0: leave the TTL as it is), 2 owner, 3 hold count
-- Returns: 1 = done, 0 = the lock does not exist, -1 = another owner has it
--
-- Invariants:
-- * Sets the count instead of changing it by a difference, so it may be repeated after a lost
--   reply.
-- * Never re-creates a lost lock and never shortens a lease.
-- * A hold with a count of 0 has ended (lock_min_hold).
-- Redisson: the re-entry branch of tryLockInner, the partial branch of unlockInner.
local count = redis.call('HGET', KEYS[1], ARGV[2])
if not count then
    return -redis.call('EXISTS', KEYS[1])
end
if count == '0' then
    return 0
end
redis.call('HSET', KEYS[1], ARGV[2], ARGV[3])
local ttl = redis.call('PTTL', KEYS[1])
if ttl >= 0 and ttl < tonumber(ARGV[1]) then
    redis.call('PEXPIRE', KEYS[1], ARGV[1])
end
return 1
