-- Takes a lock for a new hold: common code of scripts that take one whose waiters are not queued in
-- Redis.
--
-- Prelude: lock_hash
-- KEYS: none
-- ARGV: none
-- Returns: nothing
--
-- Invariants:
-- * An owner number is used for one hold only. So if the owner is here, this same call ran before
--   and its reply was lost: the count is set, not added to.
-- * A repeat never shortens the lease.
-- * A hash that is not a lock is refused (WRONGTYPE), since nobody releases it.
-- * If an ACL forbids PEXPIRE, no hold is left: without a lease the lock would stay for ever.
-- * `token(repeated)` creates the token of the hold, or returns an error. Then the script returns that, and
--   the lock is as it was.
-- Redisson: RLock.tryLockInner.

-- Returns what `token` does, or an error, or as a number for how many ms the present holder has it (-1: no TTL).
local function take(lock, lease, owner, token)
    local ttl = redis.call('PTTL', lock)
    local repeated = ttl ~= -2 and redis.call('HEXISTS', lock, owner) == 1
    if ttl ~= -2 and not repeated then
        return not_a_lock(lock) or ttl
    end
    local given = token(repeated)
    if type(given) == 'table' and given.err then
        return given
    end
    redis.call('HSET', lock, owner, 1)
    if repeated then
        if ttl >= 0 and ttl < tonumber(lease) then
            redis.call('PEXPIRE', lock, lease)
        end
        return given
    end
    local leased = redis.pcall('PEXPIRE', lock, lease)
    if type(leased) == 'table' then
        redis.call('HDEL', lock, owner)
        return leased
    end
    return given
end
