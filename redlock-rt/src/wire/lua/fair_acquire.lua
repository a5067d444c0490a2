-- Takes a free fair lock for a new hold, if nobody else is next, or queues for it.
--
-- Prelude: lock_hash, fair_queue
-- KEYS: 1 the lock, 2 queue, 3 deadlines, 4 our clients
-- ARGV: 1 prefix of the waiters' channels, 2 publish command, 3 lease in ms, 4 owner,
--   5 ms for which this client counts as alive (0: does not queue where it is refused),
--   6 ms by which a place in the queue puts the deadline off
-- Returns: nil = taken; else {ms for which the present holder has it (-1: no TTL, 0: it is free),
--   0 = this owner is next, 1 = another is, or this one is not queued}
--
-- Invariants:
-- * An owner number is minted for one hold, so finding the owner here means that this very call ran
--   before and its reply was lost.
-- * The deadline is counted from the place in the queue, so nothing is added up over hand-overs,
--   and taking the lock need not shift the deadlines of all others. Behind a waiter of another
--   client it is after that one's, which may have been given a longer time, up to twice as much.
-- * Behind a hash that is no lock nobody queues (WRONGTYPE).
-- * Where an ACL forbids PEXPIRE nothing is left.
-- Redisson: RedissonFairLock.tryLockInner.
local lease, owner, alive = ARGV[3], ARGV[4], tonumber(ARGV[5])
local ttl = redis.call('PTTL', KEYS[1])
if ttl ~= -2 and redis.call('HEXISTS', KEYS[1], owner) == 1 then
    redis.call('HSET', KEYS[1], owner, 1)
    if ttl >= 0 and ttl < tonumber(lease) then
        redis.call('PEXPIRE', KEYS[1], lease)
    end
    return nil
end
local flaw = ttl ~= -2 and not_a_lock(KEYS[1])
if flaw then
    return flaw
end
local head = head_of_queue()
if ttl == -2 and (not head or head == owner) then
    redis.call('HSET', KEYS[1], owner, 1)
    local leased = redis.pcall('PEXPIRE', KEYS[1], lease)
    if type(leased) == 'table' then
        redis.call('HDEL', KEYS[1], owner)
        return leased
    end
    if head then
        redis.call('LPOP', KEYS[2])
        redis.call('ZREM', KEYS[3], owner)
        uncount()
        if redis.call('EXISTS', KEYS[2]) == 0 then
            redis.call('DEL', KEYS[4])
        end
    end
    return nil
end
if alive > 0 then
    hear(client_of(owner), alive)
    if not redis.call('ZSCORE', KEYS[3], owner) then
        local before = redis.call('LLEN', KEYS[2])
        local place, base = tonumber(ARGV[6]), now + math.max(0, ttl)
        local deadline = base + place * (before + 1)
        local last = redis.call('LINDEX', KEYS[2], -1)
        if last and redis.call('HEXISTS', KEYS[4], client_of(last)) == 0 then
            local chained = (redis.call('ZSCORE', KEYS[3], last) or 0) + place
            deadline = math.max(deadline, math.min(chained, base + 2 * place * (before + 1)))
        end
        redis.call('RPUSH', KEYS[2], owner)
        redis.call('ZADD', KEYS[3], string.format('%.0f', deadline), owner)
        redis.call('HINCRBY', KEYS[4], 'queued', 1)
        head = head or owner
    end
end
if ttl == -2 then
    -- Whoever is next may not have heard that it is free.
    wake(head)
    ttl = 0
end
return {ttl, head == owner and 0 or 1}
