-- Counts a latch down by one, and opens it at zero.
--
-- KEYS: 1 the latch (STRING: its count), 2 the mark (STRING, see latch_set), 3 the note of this
--   call (STRING: its reply)
-- ARGV: 1 ms for which the note stays, 2 channel, 3 publish command
-- Returns: the remaining count, 0 also if there is no latch (a string from a note, or if it is too
--   large for a number of Lua); if it opened the latch, {0, 1 = announced or 0 = Redis refused to}
--
-- Invariants:
-- * A repeat after a lost reply finds the note and returns the same reply: one call counts once.
-- * If there is no latch, nothing is created, not even a note. A repeat that finds a latch counts
--   it down, as if it was sent only then.
-- * A latch that was counted down leaves no mark.
-- * A key that is not a count is refused (WRONGTYPE).
-- * A full memory blocks no waiter: Redis refuses DECR for lack of memory only if nothing was
--   written before, so a DEL of a missing key comes first.
-- * A refused PUBLISH (an ACL) is not a failure: waiters poll.
-- Redisson: countDownAsync, which counts again when it is repeated.
local noted = redis.call('GET', KEYS[3])
if noted then
    return noted
end
if redis.call('EXISTS', KEYS[1]) == 0 then
    return 0
end
redis.call('DEL', KEYS[3])
local left, told = redis.pcall('DECR', KEYS[1]), nil
if type(left) == 'table' then
    if string.find(left.err, 'not an integer') then
        return redis.error_reply('WRONGTYPE the key holds no count of a latch')
    end
    return left
end
if left <= 0 then
    left = 0
    redis.call('DEL', KEYS[1], KEYS[2])
    told = type(redis.pcall(ARGV[3], ARGV[2], '0')) == 'number' and 1 or 0
end
if left > 9007199254740991 then
    left = redis.call('GET', KEYS[1])
    redis.call('SET', KEYS[3], left, 'PX', ARGV[1])
    return left
end
redis.call('SET', KEYS[3], string.format('%.0f', left), 'PX', ARGV[1])
return told and {left, told} or left
