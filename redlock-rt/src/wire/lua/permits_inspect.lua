-- Returns how many permits are free and how many are held.
--
-- Prelude: permits
-- KEYS: 1 the semaphore (STRING: free permits), 2 leases (ZSET: id of 16 bytes -> epoch ms)
-- ARGV: 1 channel, 2 publish command
-- Returns: {free, held}
--
-- Invariants:
-- * Permits whose leases are over count as free, also if a sweep ended before it reached them.
-- Redisson: RPermitExpirableSemaphore.availablePermits, getPermits, acquiredPermits.
local over = redis.call('ZCOUNT', KEYS[2], '-inf', string.format('%.0f', now))
local held = redis.call('ZCARD', KEYS[2]) - over
return {(free or 0) + (free and over or 0), held}
