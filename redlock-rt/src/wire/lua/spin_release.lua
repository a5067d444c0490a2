-- Ends a hold; publishes nothing.
--
-- KEYS: 1 the lock (HASH: owner -> hold count)
-- ARGV: 1 owner
-- Returns: 1 = released, 0 = the lock does not exist, -1 = another owner has it
--
-- Invariants:
-- * Without the owner's field nothing is changed: a late or repeated release never frees a newer
--   hold.
-- * After the key is gone nothing asks for it: in a cluster that moves the slot the server would end
--   the script there.
-- Redisson: RSpinLock.unlockInner, without the unlock latch, which an owner number that is never
-- used again makes needless.
if redis.call('HEXISTS', KEYS[1], ARGV[1]) == 0 then
    return -redis.call('EXISTS', KEYS[1])
end
redis.call('DEL', KEYS[1])
return 1
