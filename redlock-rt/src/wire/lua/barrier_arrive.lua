-- Adds a party to the present generation of a barrier. The last one ends it.
--
-- Prelude: permit_ids, barrier
-- KEYS: 1 the state (HASH), 2 the parties (ZSET: id of 16 bytes -> epoch ms), 3 note of this owner (STRING, its
--   generation, or empty if it was withdrawn)
-- ARGV: 1 channel, 2 publish command, 3 id of the party in hexadecimal, 4 lease in ms, 5 how many parties there
--   are to be, 6 ms for which the note stays, 7 whether they stay until they leave (1 or 0)
-- Returns: {the generation, as text; 1} = arrived; 'broken'; the number of parties of the others, as text = it
--   is another one; a number: for how many ms others are inside at most, or it was withdrawn
--
-- Invariants:
-- * A repeat finds the note and counts once, whatever has become of its generation. No lease is shortened.
-- * A call that arrives after its withdrawal takes nothing.
-- * If the leases of those inside were deleted, whoever comes is the first of the next round.
-- * A generation ends with as many parties as it needs, all of which have leases that run.
-- Redisson: has no equivalent.
local id, deadline = raw_ids(ARGV[3])[1], string.format('%.0f', now + ARGV[4])
local noted, wanted = redis.call('GET', KEYS[3]), tonumber(ARGV[5])
if noted == '' then
    return 0
elseif noted then
    redis.call('ZADD', KEYS[2], 'XX', deadline, id)
    return {noted, 1}
elseif redis.call('HEXISTS', KEYS[1], generation) == 1 then
    return 'broken'
elseif count > 0 and tonumber(state[2]) ~= wanted then
    return state[2]
elseif count > 0 and state[3] then
    return rest
end
noted = string.format('%.0f', generation)
redis.call('SET', KEYS[3], noted, 'PX', ARGV[6])
local others = count + 1 >= wanted and redis.call('ZRANGE', KEYS[2], 0, -1)
if not others or ARGV[7] == '1' then
    if count == 0 then
        redis.call('HDEL', KEYS[1], 'inside')
    end
    redis.call('HSET', KEYS[1], 'generation', generation, 'parties', wanted)
    redis.call('ZADD', KEYS[2], deadline, id)
    keep()
end
if others then
    local ids = string.gsub(table.concat(others) .. id, '.', function(byte)
        return string.format('%02x', string.byte(byte))
    end)
    if ARGV[7] == '1' then
        redis.call('HSET', KEYS[1], 'inside', 1)
        ends(ids, generation + 1)
    else
        empties(ids, generation + 1)
    end
end
return {noted, 1}
