-- Ends a read hold, and wakes a waiter if the lock is free, or will be earlier than it knows.
--
-- Prelude: undeclared_keys, rw_leases
-- KEYS: 1 the lock (HASH: mode, field -> hold count)
-- ARGV: 1 owner, 2 start of the names of all keys that carry leases, 3 channel, 4 publish command
-- Returns: {1 = ended, 1 = announced or 0 = Redis refused to}; else 1 = ended, and the lock has
--   other holders for as long as before, 0 = the lock does not exist, -1 = another owner has it
--
-- Invariants:
-- * Without the owner's field nothing of other holders is changed, and nothing is published. The
--   owner's own lease keys are deleted in any case.
-- * The lock then lives at least as long as the longest lease of the remaining readers. With no
--   live reader it is free.
-- * Up to 64 fields are all read, and the lock lives exactly that long. If there are more, 32 are
--   drawn at random. The TTL stays if one of these readers has at least half of it left, or if one
--   of them is alive and the ending reader did not have half of it left. So the TTL is at most
--   twice the longest remaining lease, or it belongs to another reader. Otherwise all are read.
-- * If all are read, and there are many, the fields of dead readers of ours go: nobody could remove them, where
--   there is always a reader.
-- * If all are read, and the lock now ends earlier, and within SOON, that is announced: nobody
--   announces the end of a lease, and a writer sleeps until the end that it was told of. With a later
--   end a writer polls before it anyway.
-- * Beside a writer (the same owner's, under which it was taken) the TTL is the writer's lease and
--   stays.
-- * A refused PUBLISH or HRANDFIELD (an ACL) is not a failure: waiters poll, and all readers are
--   read.
-- Redisson: ReadLock.unlockInner, without the unlock latch; it reads all readers.
local lock = KEYS[1]
local FEW, DRAWN = 64, 32
local SOON = 10000
local function announce()
    return {1, type(redis.pcall(ARGV[4], ARGV[3], '0')) == 'number' and 1 or 0}
end
local own, ended = ARGV[2] .. ':' .. ARGV[1] .. ':rwlock_timeout:', 0
local fields = redis.pcall('HLEN', lock)
local crowded = type(fields) == 'number' and fields > FEW + 1
local function give_up(hold)
    if crowded then
        ended = math.max(ended, redis.call('PTTL', own .. hold))
    end
    return redis.call('DEL', own .. hold) == 1
end
local hold = 1
while give_up(hold) do
    hold = hold + 1
end
local count = redis.call('HGET', lock, ARGV[1])
if not count then
    return -redis.call('EXISTS', lock)
end
for rest = hold, math.min(tonumber(count) or 0, 1000) do
    give_up(rest)
end
redis.call('HDEL', lock, ARGV[1])
local ttl = crowded and redis.call('PTTL', lock)
if crowded and ttl > 0 and redis.call('HGET', lock, 'mode') ~= 'write' then
    local drawn = redis.pcall('HRANDFIELD', lock, -DRAWN, 'WITHVALUES')
    for at = 1, #drawn, 2 do
        local rest = lease_of(ARGV[2], drawn[at], drawn[at + 1])
        if rest > ttl then
            redis.call('PEXPIRE', lock, string.format('%.0f', rest))
        end
        if rest == -1 or rest >= ttl / 2 or (rest > 0 and ended < ttl / 2) then
            return 1
        end
    end
end
local all = redis.call('HGETALL', lock)
for at = 1, #all, 2 do
    if all[at] == 'mode' and all[at + 1] == 'write' and #all > 2 then
        return 1
    end
end
local longest, dead = lease_of_all(ARGV[2], all)
if longest ~= 0 and crowded then
    -- Of ours, which are lost. Lua passes at most some thousand arguments.
    for at = 1, #dead, 1000 do
        redis.call('HDEL', lock, unpack(dead, at, math.min(at + 999, #dead)))
    end
end
if longest == -1 then
    return 1
elseif longest == 0 then
    redis.call('DEL', lock)
    return announce()
end
ttl = ttl or redis.call('PTTL', lock)
redis.call('PEXPIRE', lock, string.format('%.0f', longest))
if longest < ttl and longest < SOON then
    return announce()
end
return 1
