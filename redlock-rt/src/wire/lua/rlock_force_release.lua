-- Frees a lock, whoever holds it, and wakes a waiter; of a spin lock nobody is woken.
--
-- Prelude: lock_hash
-- KEYS: 1 the lock (HASH: owner -> hold count)
-- ARGV: 1 channel, 2 publish command (without both nothing is published)
-- Returns: {1 = it was held, 1 = announced or 0 = Redis refused to}, or 1 = it was held; else 0 = it was
--   free
--
-- Invariants:
-- * A key or a hash that is not a lock is refused (WRONGTYPE), not deleted.
-- * A refused PUBLISH (an ACL) is not a failure: waiters poll.
-- Redisson: forceUnlock.
if redis.call('HLEN', KEYS[1]) == 0 then
    return 0
end
local flaw = not_a_lock(KEYS[1], true)
if flaw then
    return flaw
end
redis.call('DEL', KEYS[1])
return ARGV[1] and {1, type(redis.pcall(ARGV[2], ARGV[1], '0')) == 'number' and 1 or 0} or 1
