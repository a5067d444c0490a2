-- Refuses what is not a lock: the start of scripts that describe one.
--
-- Prelude: lock_hash
-- KEYS: 1 the lock (HASH: field -> hold count)
-- ARGV: none
-- Returns: the error, if it is none; otherwise the script goes on
--
-- Invariants: reads only. A hash that is not a lock is refused (WRONGTYPE).
-- Redisson: none.
local flaw, fields = not_a_lock(KEYS[1])
if flaw then
    return flaw
end
