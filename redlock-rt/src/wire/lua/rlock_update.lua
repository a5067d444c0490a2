-- Sets the hold count of a hold and its lease: re-entry, partial release, extension.
--
-- Prelude: undeclared_keys, loss
-- KEYS: 1 the lock (HASH: owner -> hold count)
-- ARGV: 1 lease in ms (0: leave the TTL as it is), 2 field of the hold, 3 hold count, 4 the longest lease
--   that any call of the hold has asked for in ms, 5 of a write hold, prefix of the keys that carry the
--   leases of its owner's read hold (else empty)
-- Returns: 1 = done, 0 = the lock does not exist, -1 = another owner has it, a text = the note for a hold that
--   was stolen, as of renew
--
-- Invariants:
-- * Sets the count instead of changing it by a difference, so it may be repeated after a lost
--   reply.
-- * Never re-creates a lost lock and never shortens a lease that a call has asked for. A TTL that is longer
--   than the longest of these, or none, is the work of another program or of a clock that was set back: it
--   becomes that lease, or the longest of the owner's read hold.
-- * A hold with a count of 0 has ended (lock_min_hold).
-- Redisson: the re-entry branch of tryLockInner, the partial branch of unlockInner.
local count = redis.call('HGET', KEYS[1], ARGV[2])
if not count then
    return loss_of(KEYS[1], ARGV[2])
end
if count == '0' then
    return 0
end
-- A write that needs no memory: a full memory refuses nothing behind it.
redis.call('HDEL', KEYS[1], '')
redis.call('HSET', KEYS[1], ARGV[2], ARGV[3])
local ttl, most = redis.call('PTTL', KEYS[1]), tonumber(ARGV[4])
if ttl == -1 or ttl > most then
    local reads = ARGV[5] ~= '' and redis.call('HGET', KEYS[1], string.sub(ARGV[2], 1, -7))
    for hold = 1, math.min(tonumber(reads or 0) or 0, 1000) do
        most = math.max(most, redis.call('PTTL', ARGV[5] .. ':' .. hold))
    end
    if ttl == -1 or ttl > most then
        redis.call('PEXPIRE', KEYS[1], string.format('%.0f', most))
    end
elseif ttl < tonumber(ARGV[1]) then
    redis.call('PEXPIRE', KEYS[1], ARGV[1])
end
return 1
