-- Ends a read hold, and wakes a waiter if the lock is free.
--
-- KEYS: 1 the lock (HASH: mode, field -> hold count)
-- ARGV: 1 owner, 2 start of the names of all keys that carry leases, 3 channel, 4 publish command
-- Returns: 1 = ended, 0 = the lock does not exist, -1 = somebody else has it
--
-- Invariants:
-- * Without the owner's field nothing of others is changed and nothing published; what an owner
--   whose lock was deleted left beside it goes all the same.
-- * The lock then lives as long as the longest lease of the readers that remain: one that died
--   does not outlive its own lease by it, and with none alive the lock is free.
-- * Beside a writer (the same owner's, under which it was taken) the TTL is the writer's lease and
--   stays.
-- * A refusal to publish (an ACL) is no failure: waiters look by themselves.
-- * Of a hold count that cannot be one (somebody else wrote it) no more than 1000 leases are looked
--   at: a script that does not end stops the server.
-- Redisson: ReadLock.unlockInner, without the unlock latch.
local lock = KEYS[1]
local function leases(field)
    return ARGV[2] .. ':' .. field .. ':rwlock_timeout:'
end
local own, hold = leases(ARGV[1]), 1
while redis.call('DEL', own .. hold) == 1 do
    hold = hold + 1
end
local count = redis.call('HGET', lock, ARGV[1])
if not count then
    return -redis.call('EXISTS', lock)
end
for rest = hold, math.min(tonumber(count) or 0, 1000) do
    redis.call('DEL', own .. rest)
end
redis.call('HDEL', lock, ARGV[1])
local fields = redis.call('HGETALL', lock)
local longest, endless = 0, false
for at = 1, #fields, 2 do
    if fields[at] == 'mode' then
        if fields[at + 1] == 'write' and #fields > 2 then
            return 1
        end
    else
        for other = 1, math.min(tonumber(fields[at + 1]) or 0, 1000) do
            local rest = redis.call('PTTL', leases(fields[at]) .. other)
            endless = endless or rest == -1
            longest = math.max(longest, rest)
        end
    end
end
if longest == 0 and not endless then
    redis.call('DEL', lock)
    redis.pcall(ARGV[4], ARGV[3], '0')
elseif not endless then
    redis.call('PEXPIRE', lock, string.format('%.0f', longest))
end
return 1
