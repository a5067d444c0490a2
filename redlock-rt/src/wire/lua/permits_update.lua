-- Sets the leases of permits from now on.
--
-- Prelude: permits
-- KEYS: 1 the semaphore (STRING: free permits), 2 leases (ZSET: id of 16 bytes -> epoch ms)
-- ARGV: 1 channel, 2 publish command, 3 lease in ms, 4 ids of the permits in hexadecimal, one behind
--   the other, 5 whether a lease may become shorter (1 or 0)
-- Returns: 1 = done for all, 0 = at least one is not held any more; where waiters were to be woken, also
--   by the sweep, {that, 1 = announced or 0 = Redis refused to}
--
-- Invariants:
-- * It gives no lease to a permit that has none any more.
-- * Who waits, for as long as it was told, hears of a shorter lease, and looks again.
-- Redisson: RPermitExpirableSemaphore.updateLeaseTime, which tells nobody.
local deadline, all, shorter = now + tonumber(ARGV[3]), 1, false
for _, id in ipairs(raw_ids(ARGV[4])) do
    local score = tonumber(redis.call('ZSCORE', KEYS[2], id) or 0)
    -- Of many that are over the sweep leaves some.
    if score <= now then
        all = 0
    elseif ARGV[5] == '1' or score < deadline then
        redis.call('ZADD', KEYS[2], 'XX', string.format('%.0f', deadline), id)
        shorter = shorter or deadline < score
    end
end
if shorter then
    -- Threads of Java wake by the number that they are told.
    publish('1')
end
return answer(all)
