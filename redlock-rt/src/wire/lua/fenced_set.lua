-- Sets a value unless a newer fencing token was seen.
--
-- KEYS: 1 the value (STRING), 2 the last token seen (STRING)
-- ARGV: 1 token, 2 ttl of the last token in ms (0: it stays), 3 the new value
-- Returns: nil = set; else the last token seen, as text, which is newer
--
-- Invariants:
-- * Tokens are decimal without leading zeros: compared as text they are exact at any length.
-- * The last token passes again: a holder may write several times.
-- * A key that is not a token is refused (WRONGTYPE), and nothing is set.
-- * A repeat after a lost reply sets the same value, or is refused.
-- Redisson: has no equivalent.
local token, last = ARGV[1], redis.call('GET', KEYS[2])
if last and not string.match(last, '^%d+$') then
    return redis.error_reply('WRONGTYPE the key of the last token seen holds no number')
end
if last and (#token < #last or (#token == #last and token < last)) then
    return last
end
if tonumber(ARGV[2]) > 0 then
    redis.call('SET', KEYS[2], token, 'PX', ARGV[2])
else
    redis.call('SET', KEYS[2], token)
end
redis.call('SET', KEYS[1], ARGV[3])
return nil
