-- Takes permits with a lease.
--
-- Prelude: permit_ids, permits
-- KEYS: 1 the semaphore (STRING: free permits), 2 leases (ZSET: id of 16 bytes -> epoch ms), 3 note
--   that this owner was withdrawn (STRING)
-- ARGV: 1 channel, 2 publish command, 3 lease in ms, 4 ids of the permits in hexadecimal,
--   concatenated, 5 the number of permits to set if none is set (0: none)
-- Returns: {permits left} = taken; if none are left, {0, ms until the next lease is over (-1: there
--   is none)}; else, refused, these ms, or -2 = no number was ever set
--
-- Invariants:
-- * Ids are used for one hold only. So if they are here, this same call ran before and its reply
--   was lost: nothing more is taken, and no lease is shortened.
-- * A call that arrives after its withdrawal takes nothing, since nothing would give it back before
--   its lease is over.
-- * All or none: if a part of the hold was lost, the rest is given back first.
-- * If an ACL forbids DECRBY, only the number that was set is left.
-- * Permits that are held from a deleted semaphore count, so there are never more in use.
-- Redisson: RPermitExpirableSemaphore.tryAcquire, by the clock of Redis; with a limit trySetPermits
-- first.
local function next_over()
    local first = redis.call('ZRANGE', KEYS[2], 0, 0, 'WITHSCORES')
    local score = tonumber(first[2] or 922337203685477)
    if score >= 922337203685477 then
        return -1
    end
    return math.max(0, score - now)
end

local function taken(left)
    if left > 0 then
        return {left}
    end
    return {0, next_over()}
end

if redis.call('EXISTS', KEYS[3]) == 1 then
    return next_over()
end
local ids = raw_ids(ARGV[4])
local deadline = string.format('%.0f', now + tonumber(ARGV[3]))
local mine, shorter = {}, {}
for _, id in ipairs(ids) do
    local score = redis.call('ZSCORE', KEYS[2], id)
    if score then
        mine[#mine + 1] = id
        if tonumber(score) < tonumber(deadline) then
            shorter[#shorter + 1] = id
        end
    end
end
if #mine == #ids then
    for _, id in ipairs(shorter) do
        redis.call('ZADD', KEYS[2], 'XX', deadline, id)
    end
    return taken(free or 0)
end
if #mine > 0 then
    redis.call('ZREM', KEYS[2], unpack(mine))
    add(#mine)
end
local limit = tonumber(ARGV[5])
if not free and limit > 0 then
    free = limit - redis.call('ZCARD', KEYS[2])
    redis.call('SET', KEYS[1], string.format('%.0f', free))
    align_ttl()
    redis.pcall(ARGV[2], ARGV[1], ARGV[5])
end
if not free then
    return -2
end
if free < #ids then
    return next_over()
end
for _, id in ipairs(ids) do
    redis.call('ZADD', KEYS[2], deadline, id)
end
local left = redis.pcall('DECRBY', KEYS[1], #ids)
if type(left) == 'table' then
    redis.call('ZREM', KEYS[2], unpack(ids))
    return left
end
align_ttl()
return taken(left)
