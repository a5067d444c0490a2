-- Frees a lock, whoever holds it: common code of the scripts that do it for locks with one holder.
--
-- Prelude: lock_hash
-- KEYS: 1 the lock (HASH: owner -> hold count)
-- ARGV: none
-- Returns: 0 = it was free, or an error; otherwise the script goes on
--
-- Invariants:
-- * A key or a hash that is not a lock is refused (WRONGTYPE), not deleted.
-- Redisson: forceUnlock.
if redis.call('HLEN', KEYS[1]) == 0 then
    return 0
end
local flaw = not_a_lock(KEYS[1], true)
if flaw then
    return flaw
end
redis.call('DEL', KEYS[1])
