-- Ends a hold of a semaphore without giving its permits back.
--
-- KEYS: 1 our holds (HASH: owner -> permits), 2 note that this owner was withdrawn (STRING)
-- ARGV: 1 owner, 2 ms for which a withdrawal is noted (0: it is not)
-- Returns: 1 = forgotten, 0 = there was nothing to forget
--
-- Invariants:
-- * Only our own record of the hold is deleted: the permits stay taken until as many are added.
-- * A late call of this owner takes nothing more.
-- Redisson: has no equivalent; Redisson does not record who has a permit.
if tonumber(ARGV[2]) > 0 then
    redis.call('SET', KEYS[2], 1, 'PX', ARGV[2])
end
return redis.call('HDEL', KEYS[1], ARGV[1])
