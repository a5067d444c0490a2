-- Sets the hold count of a read hold and lengthens its lease: re-entry, partial release, extension.
--
-- KEYS: 1 the lock (HASH: mode, field -> hold count)
-- ARGV: 1 lease in ms (0: leave it as it is), 2 owner, 3 hold count, 4 start of the names of the
--   keys that carry its leases
-- Returns: 1 = done, 0 = the hold does not exist, -1 = another owner has the lock
--
-- Invariants:
-- * Sets the count instead of changing it by a difference, so it may be repeated after a lost
--   reply.
-- * Never re-creates a lost hold: its field is gone, or all its leases are over and only other
--   readers keep the lock.
-- * Never shortens: all keys of the hold get the longest lease of any, so that the longest lease
--   remains whichever guard ends first and deletes the last key.
-- * The lock's TTL is not below it.
-- * For an invalid hold count (another program wrote it) at most 1000 leases are read: a script
--   that does not end stops the server.
-- Redisson: the re-entry branch of ReadLock.tryLockInner, the partial branch of its unlockInner.
local lock, prefix = KEYS[1], ARGV[4] .. ':'
local before = redis.call('HGET', lock, ARGV[2])
if not before then
    return -redis.call('EXISTS', lock)
end
local count, longest, rests = math.min(tonumber(ARGV[3]) or 0, 1000), -2, {}
before = math.min(tonumber(before) or 0, 1000)
for hold = 1, math.max(before, count) do
    rests[hold] = redis.call('PTTL', prefix .. hold)
    longest = math.max(longest, rests[hold])
end
if longest == -2 then
    return 0
end
longest = math.max(longest, tonumber(ARGV[1]), 1)
local wanted = string.format('%.0f', longest)
redis.call('HSET', lock, ARGV[2], ARGV[3])
for hold = 1, count do
    if rests[hold] ~= -1 and rests[hold] < longest then
        redis.call('SET', prefix .. hold, 1, 'PX', wanted)
    end
end
for hold = count + 1, before do
    redis.call('DEL', prefix .. hold)
end
local ttl = redis.call('PTTL', lock)
if ttl >= 0 and ttl < longest then
    redis.call('PEXPIRE', lock, wanted)
end
return 1
