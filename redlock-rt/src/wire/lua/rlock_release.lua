-- Ends a hold and wakes a waiter; of a spin lock nobody is woken.
--
-- KEYS: 1 the lock (HASH: owner -> hold count)
-- ARGV: 1 owner, 2 channel, 3 publish command (without both nothing is published)
-- Returns: {1 = released, 1 + how many received the message or 0 = Redis refused to publish it}, or
--   1 = released; else 0 = the lock does not exist, -1 = another owner has it
--
-- Invariants:
-- * Without the owner's field nothing is changed or published: a late or repeated release never
--   frees a newer hold. The channel is an argument, not a key, so that a cluster that moves the slot
--   does not return TRYAGAIN.
-- * A refused PUBLISH (an ACL) is not a failure: waiters poll.
-- * After the key is gone nothing asks for it: in a cluster that moves the slot the server would end
--   the script there.
-- Redisson: unlockInner, without the unlock latch, which an owner number that is never used again
-- makes needless.
if redis.call('HEXISTS', KEYS[1], ARGV[1]) == 0 then
    return -redis.call('EXISTS', KEYS[1])
end
redis.call('DEL', KEYS[1])
return ARGV[2] and {1, (tonumber(redis.pcall(ARGV[3], ARGV[2], '0')) or -1) + 1} or 1
