-- Ends an attempt at what is to be done once, and wakes a waiter: it is done, or the attempt never began.
--
-- KEYS: 1 the lock (HASH: owner -> hold count), 2 the mark (HASH: attempts, the owner of the last one, request,
--   and when it was done with which result)
-- ARGV: 1 owner, 2 channel, 3 publish command, 4 for how long the mark stays in ms (0: it is not done, and the
--   attempt does not count), 5 what was requested, 6 the result
-- Returns: {1 = ended, 1 + how many received the message or 0 = Redis refused to publish it}; else 1 = this
--   attempt has done it before, 0 = the lock does not exist, -1 = another owner has it
--
-- Invariants:
-- * Only who has the lock marks anything. So it is marked once, and a repeat finds its own mark.
-- * A full memory refuses no command behind a first write, and PEXPIRE and HDEL are two that it does not refuse.
-- * What may fail comes before the lock is free. After the key is gone nothing asks for it: in a cluster that
--   moves the slot the server would end the script there.
-- * A refused PUBLISH (an ACL) is not a failure: waiters poll.
-- Redisson: has no equivalent.
local mark = redis.call('HMGET', KEYS[2], 'done', 'owner', 'attempts')
if redis.call('HEXISTS', KEYS[1], ARGV[1]) == 0 then
    return mark[1] and mark[2] == ARGV[1] and 1 or -redis.call('EXISTS', KEYS[1])
end
if ARGV[4] ~= '0' then
    local time = redis.call('TIME')
    local now = time[1] .. string.sub('00000' .. time[2], -6, -4)
    redis.call('PEXPIRE', KEYS[2], ARGV[4])
    redis.call('HSET', KEYS[2], 'done', now, 'owner', ARGV[1], 'request', ARGV[5], 'result', ARGV[6])
    redis.call('PEXPIRE', KEYS[2], ARGV[4])
elseif mark[2] == ARGV[1] then
    redis.call('HDEL', KEYS[2], '')
    redis.call('HSET', KEYS[2], 'attempts', (tonumber(mark[3] or 0) or 0) - 1, 'owner', '')
end
redis.call('DEL', KEYS[1])
return {1, (tonumber(redis.pcall(ARGV[3], ARGV[2], '0')) or -1) + 1}
