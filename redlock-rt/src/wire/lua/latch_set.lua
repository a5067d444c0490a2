-- Gives a latch its count, unless it has one.
--
-- KEYS: 1 the latch (STRING: its count), 2 the mark (STRING: how the last latch of this name ended,
--   or until when this one lives in epoch ms), 3 the note of this call (STRING)
-- ARGV: 1 count, 2 ttl of the latch in ms (0: it stays), 3 ms for which the mark outlives the latch,
--   4 ms for which the note stays, 5 channel, 6 publish command
-- Returns: 1 = set, 0 = there is a latch already
--
-- Invariants:
-- * A repeat after a lost reply finds the note, and neither sets the latch again nor returns 0,
--   whatever happened to the latch meanwhile.
-- * The mark of the earlier latch is removed: without a mark, a missing latch was counted down.
-- * The mark contains the exact millisecond at which the latch expires.
-- * A key that is not a count is refused (WRONGTYPE).
-- Redisson: trySetCountAsync, which knows neither ttl, mark nor note.
if redis.call('EXISTS', KEYS[3]) == 1 then
    return 1
end
local count = redis.call('GET', KEYS[1])
if count and (#count > 20 or not string.match(count, '^-?%d+$')) then
    return redis.error_reply('WRONGTYPE the key holds no count of a latch')
end
if count then
    return 0
end
redis.call('SET', KEYS[1], ARGV[1])
redis.call('DEL', KEYS[2])
local ttl = tonumber(ARGV[2])
if ttl > 0 then
    local time = redis.call('TIME')
    local till = string.format('%.0f', time[1] * 1000 + math.floor(time[2] / 1000) + ttl)
    redis.call('PEXPIREAT', KEYS[1], till)
    redis.call('SET', KEYS[2], till, 'PX', string.format('%.0f', ttl + ARGV[3]))
end
redis.call('SET', KEYS[3], '1', 'PX', ARGV[4])
redis.pcall(ARGV[6], ARGV[5], '1')
return 1
