-- Takes a lock from the owner that the caller saw, or that has left it to the caller: common code of scripts
-- that steal.
--
-- Prelude: lock_hash, take
-- KEYS: none
-- ARGV: none
-- Returns: nothing
--
-- Invariants:
-- * The lock is taken from `from` alone. If somebody else has it by then, nothing changes: a repeat after
--   a lost reply takes nothing from a later holder.
-- * Nothing is deleted unless the thief can have a token.
-- * The note is there before the lock is gone. It lives for the rest of the lease and `margin` ms more: the
--   holder looks before its lease is over.
-- * An empty note: the lock is adopted. There is no victim, and a free lock is refused: the lease is over, and
--   somebody may have had the lock since. Nothing is announced, since the lock stays taken, unless its lease becomes
--   shorter: who waits counts on the longer one.
-- * A refused PUBLISH (an ACL) is not a failure: waiters poll.
-- Redisson: forceUnlock, then tryLockInner.
local function steal(lock, note, lease, owner, from, told, margin, channel, publish, token)
    local adopts = told == ''
    if adopts then
        -- A write that needs no memory: a full memory refuses nothing behind it.
        redis.call('HDEL', lock, '')
    end
    if redis.call('HEXISTS', lock, from) == 0 or redis.call('HLEN', lock) ~= 1 then
        if adopts and redis.call('HEXISTS', lock, owner) == 0 then
            return math.max(redis.call('PTTL', lock), -1)
        end
        return take(lock, lease, owner, token)
    end
    local given = token(false)
    if type(given) == 'table' and given.err then
        return given
    end
    local ttl = redis.call('PTTL', lock)
    if not adopts then
        redis.call('SET', note, told, 'PX', string.format('%.0f', math.max(ttl, 0) + margin))
    end
    if not adopts or ttl > tonumber(lease) then
        redis.pcall(publish, channel, '1')
        redis.pcall(publish, channel, '0')
    end
    redis.call('DEL', lock)
    return take(lock, lease, owner, function() return given end)
end
