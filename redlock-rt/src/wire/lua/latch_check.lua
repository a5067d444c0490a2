-- Returns whether a latch is closed, and otherwise how it ended.
--
-- KEYS: 1 the latch (STRING: its count), 2 the mark (STRING, see latch_set)
-- ARGV: none
-- Returns: {count as text, remaining ms (-1: no TTL)} = there is a latch; else 0 = counted down, or
--   there never was one, 1 = deleted, 2 = expired
--
-- Invariants:
-- * If a latch is gone before the time in its mark, a client without marks ended it: it counts as
--   counted down, now and later.
-- * A mark that belongs to an earlier latch (another client set the current one) is removed.
-- * A key that is not a count is refused (WRONGTYPE).
-- Redisson: GET.
local count, mark = redis.call('GET', KEYS[1]), redis.call('GET', KEYS[2])
local till = mark and tonumber(mark)
if count and (#count > 20 or not string.match(count, '^-?%d+$')) then
    return redis.error_reply('WRONGTYPE the key holds no count of a latch')
end
if count then
    local ttl = redis.call('PTTL', KEYS[1])
    if mark and (ttl < 0 or not till) then
        redis.call('DEL', KEYS[2])
    end
    return {count, ttl}
end
if not mark then
    return 0
end
if not till then
    return 1
end
local time = redis.call('TIME')
if till < time[1] * 1000 + time[2] / 1000 then
    return 2
end
redis.call('DEL', KEYS[2])
return 0
