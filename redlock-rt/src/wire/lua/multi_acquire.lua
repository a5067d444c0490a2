-- Takes several free locks for new holds, all or none.
--
-- Prelude: lock_hash
-- KEYS: 1..n the locks (each a HASH: owner -> hold count)
-- ARGV: 1 lease in ms, 2..n+1 the owners of the holds
-- Returns: nil = all are taken; else the number of the first lock that somebody else has
--
-- Invariants:
-- * Nothing is written before every key was looked at: a key of another type fails the call as a
--   whole, so does a hash that is no lock, and a lock that is held leaves the others as they were.
-- * An owner number is minted for one hold and never used again, so finding an owner here means
--   that this very call ran before and its reply was lost: the counts are set, not added to. If
--   one of the locks was lost since, the others are given back.
-- * A repeat never shortens a lease.
-- * If an ACL forbids PEXPIRE, nothing is left: without a lease the locks would stay for ever.
-- * The caller's locks are in one slot.
-- Redisson: none. RedissonMultiLock takes its locks one by one with RLock.tryLockInner.
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
