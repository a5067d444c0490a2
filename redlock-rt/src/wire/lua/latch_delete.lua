-- Deletes a latch, and leaves a mark.
--
-- KEYS: 1 the latch (STRING: its count), 2 the mark (STRING, see latch_set), 3 the note of this
--   call (STRING: its reply)
-- ARGV: 1 the id of this call, 2 ms for which the mark stays, 3 channel, 4 publish command, 5 ms for which
--   the note stays
-- Returns: {1 = deleted, 1 = announced or 0 = Redis refused to}; else 1 = this call deleted it
--   before, 0 = there was none
--
-- Invariants:
-- * A repeat after a lost reply finds the note and returns the same reply: a latch that was set
--   meanwhile stays, also if there was none before.
-- * A key that is not a count is refused (WRONGTYPE), not deleted.
-- Redisson: deleteAsync, which leaves no mark. Its 1 means closed: Java threads continue to wait.
local noted = redis.call('GET', KEYS[3])
if noted then
    return tonumber(noted)
end
local count = redis.call('GET', KEYS[1])
if not count then
    redis.call('SET', KEYS[3], '0', 'PX', ARGV[5])
    return 0
end
if #count > 20 or not string.match(count, '^-?%d+$') then
    return redis.error_reply('WRONGTYPE the key holds no count of a latch')
end
redis.call('DEL', KEYS[1])
redis.call('SET', KEYS[2], 'deleted:' .. ARGV[1], 'PX', ARGV[2])
redis.call('SET', KEYS[3], '1', 'PX', ARGV[5])
return {1, type(redis.pcall(ARGV[4], ARGV[3], '1')) == 'number' and 1 or 0}
