-- Takes a lock for reading, for a new hold.
--
-- Prelude: undeclared_keys, lock_hash
-- KEYS: 1 the lock (HASH: mode, field -> hold count), 2 writers that wait and are preferred (ZSET:
--   OWNER/MS -> until when in epoch ms)
-- ARGV: 1 lease in ms, 2 owner, 3 start of the names of the keys that carry its leases, 4 field of
--   the write hold under which it is taken (empty: none)
-- Returns: nil = taken; else the milliseconds after which to ask again at the latest (-1: no TTL;
--   -2: the hold under which it is taken is gone)
--
-- Invariants:
-- * Refused while another owner writes, or while a preferred writer waits whose time is not over.
--   The wish may come from any client, and does not apply to a caller under its own write hold. It
--   lasts for MS: if it is more now, the clock was set back, and it is cut.
-- * A hash that is not a lock is refused (WRONGTYPE).
-- * If the write hold of the caller is gone, nothing is taken.
-- * An owner number is used for one read hold only. So if it is here, this same call ran before and
--   its reply was lost. A repeat sets the same count and never shortens a lease.
-- * The lock's TTL is never below that of a read hold. If an ACL forbids PEXPIRE, nothing is left.
-- * The keys of a read hold are in the slot of their lock.
-- Redisson: ReadLock.tryLockInner.
local lock, lease = KEYS[1], tonumber(ARGV[1])
local ttl = redis.call('PTTL', lock)
local repeated = ttl ~= -2 and redis.call('HEXISTS', lock, ARGV[2]) == 1
if not repeated then
    local mode = ttl ~= -2 and redis.call('HGET', lock, 'mode')
    if ARGV[4] ~= '' then
        local count = mode == 'write' and redis.call('HGET', lock, ARGV[4])
        -- A count of 0: it has ended (rw_write_min_hold).
        if not count or count == '0' then
            return -2
        end
    elseif ttl ~= -2 and mode ~= 'read' then
        return not_a_lock(lock) or ttl
    else
        local last = redis.call('ZRANGE', KEYS[2], -1, -1, 'WITHSCORES')
        local time = last[2] and redis.call('TIME')
        while last[2] do
            local now = time[1] * 1000 + math.floor(time[2] / 1000)
            local rest, most = last[2] - now, tonumber(string.match(last[1], '/(%d+)$'))
            -- No wish of ours is that long, and behind 2^53 a cut would not end.
            if not most or rest <= most or most > 1e12 then
                if rest > 0 then
                    return math.min(rest, 1e12)
                end
                break
            end
            redis.call('ZADD', KEYS[2], 'XX', string.format('%.0f', now + most), last[1])
            last = redis.call('ZRANGE', KEYS[2], -1, -1, 'WITHSCORES')
        end
    end
end
local hold = ARGV[3] .. ':1'
if not repeated or redis.call('PTTL', hold) < lease then
    redis.call('SET', hold, 1, 'PX', ARGV[1])
end
if ttl == -2 then
    redis.call('HSET', lock, 'mode', 'read', ARGV[2], 1)
    local leased = redis.pcall('PEXPIRE', lock, ARGV[1])
    if type(leased) == 'table' then
        redis.call('HDEL', lock, 'mode', ARGV[2])
        return leased
    end
    return nil
end
if ttl >= 0 and ttl < lease then
    redis.call('PEXPIRE', lock, ARGV[1])
end
redis.call('HSET', lock, ARGV[2], 1)
return nil
