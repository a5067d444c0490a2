-- Ends a write hold and wakes all waiters; also removes the wish of an abandoned attempt.
--
-- Prelude: undeclared_keys, rw_leases
-- KEYS: 1 the lock (HASH: mode, field -> hold count), 2 writers that wait and are preferred (ZSET:
--   OWNER/MS -> until when in epoch ms)
-- ARGV: 1 its wish, 2 field of the hold, 3 start of the names of all keys that carry leases, 4 channel,
--   5 publish command
-- Returns: 1 = ended, 0 = the lock does not exist, -1 = another owner has it; if waiters were to be
--   woken, {that, 1 + how many received the message or 0 = Redis refused to publish it}
--
-- Invariants:
-- * Without the writer's field nothing of other holders is changed: a late or repeated release
--   never frees a newer hold.
-- * If the last preferred writer gives up, the readers that it kept out are woken. A wish whose
--   time is over does not count.
-- * Read holds of the same owner stay: the lock is then a read lock with the longest of their
--   leases, and waiting readers are woken, since they may have it too.
-- * A refused PUBLISH (an ACL) is not a failure: waiters poll.
-- Redisson: WriteLock.unlockInner, without the unlock latch; with read holds left it wakes nobody.
local lock = KEYS[1]
local function wake(answer)
    return {answer, (tonumber(redis.pcall(ARGV[5], ARGV[4], '1')) or -1) + 1}
end
local waited = redis.call('ZREM', KEYS[2], ARGV[1]) == 1
if redis.call('HDEL', lock, ARGV[2]) == 0 then
    if waited and redis.call('HGET', lock, 'mode') ~= 'write' then
        local time = redis.call('TIME')
        local now = time[1] * 1000 + math.floor(time[2] / 1000)
        redis.call('ZREMRANGEBYSCORE', KEYS[2], '-inf', string.format('%.0f', now))
        if redis.call('EXISTS', KEYS[2]) == 0 then
            return wake(-redis.call('EXISTS', lock))
        end
    end
    return -redis.call('EXISTS', lock)
end
local longest = lease_of_all(ARGV[3], redis.call('HGETALL', lock))
if longest == 0 then
    redis.call('DEL', lock)
else
    redis.call('HSET', lock, 'mode', 'read')
    if longest > 0 then
        redis.call('PEXPIRE', lock, string.format('%.0f', longest))
    end
end
return wake(1)
