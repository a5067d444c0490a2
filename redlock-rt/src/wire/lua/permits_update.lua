-- Sets the leases of permits from now on.
--
-- Prelude: permit_ids, permits
-- KEYS: 1 the semaphore (STRING: free permits), 2 leases (ZSET: id of 16 bytes -> epoch ms)
-- ARGV: 1 channel, 2 publish command, 3 lease in ms, 4 ids of the permits in hexadecimal,
--   concatenated, 5 the longest lease in ms that is not shortened
-- Returns: 1 = done for all, 0 = at least one is no longer held; if waiters were to be woken, also by
--   the sweep, {that, 1 + receivers or 0 = Redis refused to}
--
-- Invariants:
-- * A permit whose lease is over gets no new one.
-- * A lease that is longer than both becomes the longer of both: nobody has asked for it, but the server's
--   clock was set back.
-- * Waiters sleep until the end of the lease that they were told, so they are woken when a lease
--   becomes shorter.
-- Redisson: RPermitExpirableSemaphore.updateLeaseTime, which announces nothing.
local lease, all, shorter, written = tonumber(ARGV[3]), 1, false, false
local most = math.max(lease, tonumber(ARGV[5]))
for _, id in ipairs(raw_ids(ARGV[4])) do
    local score = tonumber(redis.call('ZSCORE', KEYS[2], id) or 0)
    -- A sweep may leave some permits whose leases are over.
    if score <= now then
        all = 0
    elseif score < now + lease or score > now + most then
        if not written then
            -- A write that needs no memory: a full memory refuses nothing behind it.
            redis.call('ZREM', KEYS[2], '')
            written = true
        end
        local rest = score < now + lease and lease or most
        redis.call('ZADD', KEYS[2], 'XX', string.format('%.0f', now + rest), id)
        shorter = shorter or now + rest < score
    end
end
align_ttl()
if shorter then
    -- As many Java threads wake as the message says.
    publish('1')
end
return answer(all)
