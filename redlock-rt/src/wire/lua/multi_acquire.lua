-- Takes several free locks for new holds, all or none.
--
-- Prelude: lock_hash
-- KEYS: 1..n the locks (each a HASH: owner -> hold count)
-- ARGV: 1 lease in ms, 2..n+1 the owners of the holds
-- Returns: nil = all are taken; else the number of the first lock that another owner has
--
-- Invariants:
-- * Every key is checked before the first write. A key of another type, or a hash that is not a
--   lock, fails the whole call. A lock that is held leaves the others unchanged.
-- * An owner number is used for one hold only. So if an owner is here, this same call ran before and
--   its reply was lost: the counts are set, not added to. If one of the locks was lost since then,
--   the others are released.
-- * A repeat never shortens a lease.
-- * If an ACL forbids PEXPIRE, nothing is left: without a lease the locks would stay for ever.
-- * The caller's locks are in one slot.
-- Redisson: has no equivalent; RedissonMultiLock takes its locks one by one with RLock.tryLockInner.
local held, mine
for i, key in ipairs(KEYS) do
    if redis.call('HEXISTS', key, ARGV[i + 1]) == 1 then
        mine = true
    elseif redis.call('EXISTS', key) == 1 then
        held = held or i
    end
end
if held then
    if mine then
        for i, key in ipairs(KEYS) do
            redis.call('HDEL', key, ARGV[i + 1])
        end
    end
    return not_a_lock(KEYS[held]) or held
end
for i, key in ipairs(KEYS) do
    redis.call('HSET', key, ARGV[i + 1], 1)
    if redis.call('PTTL', key) < tonumber(ARGV[1]) then
        local leased = redis.pcall('PEXPIRE', key, ARGV[1])
        if type(leased) == 'table' then
            for j = 1, i do
                redis.call('HDEL', KEYS[j], ARGV[j + 1])
            end
            return leased
        end
    end
end
return nil
