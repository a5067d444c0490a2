-- Takes a free lock for a new hold.
--
-- Prelude: lock_hash
-- KEYS: 1 the lock (HASH: owner -> hold count)
-- ARGV: 1 lease in ms, 2 owner
-- Returns: nil = taken; else the milliseconds for which the present holder has it (-1: no TTL)
--
-- Invariants:
-- * An owner number is used for one hold only. So if the owner is here, this same call ran before
--   and its reply was lost: the count is set, not added to.
-- * A repeat never shortens the lease.
-- * A hash that is not a lock is refused (WRONGTYPE), since nobody releases it.
-- * If an ACL forbids PEXPIRE, nothing is left: without a lease the lock would stay for ever.
-- Redisson: RLock.tryLockInner.
local ttl = redis.call('PTTL', KEYS[1])
if ttl == -2 then
    redis.call('HSET', KEYS[1], ARGV[2], 1)
    local leased = redis.pcall('PEXPIRE', KEYS[1], ARGV[1])
    if type(leased) == 'table' then
        redis.call('HDEL', KEYS[1], ARGV[2])
        return leased
    end
    return nil
end
if redis.call('HEXISTS', KEYS[1], ARGV[2]) == 1 then
    redis.call('HSET', KEYS[1], ARGV[2], 1)
    if ttl >= 0 and ttl < tonumber(ARGV[1]) then
        redis.call('PEXPIRE', KEYS[1], ARGV[1])
    end
    return nil
end
return not_a_lock(KEYS[1]) or ttl
