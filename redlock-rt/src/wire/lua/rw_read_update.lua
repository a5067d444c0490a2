-- Sets the hold count of a read hold and its lease: re-entry, partial release, extension.
--
-- Prelude: undeclared_keys, rw_leases, loss
-- KEYS: 1 the lock (HASH: mode, field -> hold count)
-- ARGV: 1 lease in ms (0: leave it as it is), 2 owner, 3 hold count, 4 the longest lease that any call of
--   the hold has asked for in ms, 5 start of the names of all keys that carry leases
-- Returns: 1 = done, 0 = the hold does not exist, -1 = another owner has the lock, a text = the note for a hold
--   that was stolen, as of renew
--
-- Invariants:
-- * Sets the count instead of changing it by a difference, so it may be repeated after a lost
--   reply.
-- * Never re-creates a lost hold: its field is gone, or all its leases are over and only other
--   readers keep the lock.
-- * All keys of the hold get the longest lease of any, so that the longest lease remains whichever guard
--   ends first and deletes the last key. None is shortened that a call has asked for: what is longer than
--   the longest of these, or has no TTL, becomes that lease.
-- * The lock's TTL is not below it. If it is longer than the lease of each reader, it becomes the longest
--   of these; beside the owner's write hold it is that one's.
-- * For an invalid hold count (another program wrote it) at most 1000 leases are read: a script
--   that does not end stops the server.
-- Redisson: the re-entry branch of ReadLock.tryLockInner, the partial branch of its unlockInner.
local lock, most = KEYS[1], tonumber(ARGV[4])
local prefix = ARGV[5] .. ':' .. ARGV[2] .. ':rwlock_timeout:'
local before = redis.call('HGET', lock, ARGV[2])
if not before then
    return loss_of(lock, ARGV[2])
end
local count, longest, rests = math.min(tonumber(ARGV[3]) or 0, 1000), -2, {}
before = math.min(tonumber(before) or 0, 1000)
for hold = 1, math.max(before, count) do
    local rest = redis.call('PTTL', prefix .. hold)
    local long = rest == -1 or rest > most
    rests[hold] = long and -2 or rest
    longest = math.max(longest, long and most or rest)
end
if longest == -2 then
    return 0
end
longest = math.max(longest, tonumber(ARGV[1]), 1)
local wanted = string.format('%.0f', longest)
-- A write that needs no memory: a full memory refuses nothing behind it.
redis.call('HDEL', lock, '')
redis.call('HSET', lock, ARGV[2], ARGV[3])
for hold = 1, count do
    if rests[hold] < longest then
        redis.call('SET', prefix .. hold, 1, 'PX', wanted)
    end
end
for hold = count + 1, before do
    redis.call('DEL', prefix .. hold)
end
local ttl = redis.call('PTTL', lock)
if ttl >= 0 and ttl < longest then
    redis.call('PEXPIRE', lock, wanted)
elseif ttl == -1 or ttl > most then
    local all = excess(lock, ttl, ARGV[5])
    if all then
        redis.call('PEXPIRE', lock, string.format('%.0f', all))
    end
end
return 1
