-- Runs a script of the caller unless a newer fencing token was seen.
--
-- KEYS: 1 the protected value (of any type), 2 the last token seen (STRING)
-- ARGV: 1 token, 2 ttl of the last token in ms (0: it stays), 3 the script, 4..n its arguments
-- Returns: {1, the result of the script}; {2, its error} = it failed; {0, the last token seen} = it
--   is newer, nothing was run
--
-- Invariants:
-- * Tokens are decimal without leading zeros: compared as text they are exact at any length.
-- * The last token passes again: a holder may write several times.
-- * The script sees its own key and arguments only, as KEYS and ARGV.
-- * A key that is not a token is refused (WRONGTYPE), and nothing is run.
-- * After a failed script the token counts as seen: older tokens are refused from then on.
-- * The caller's script may return any text, so this call is never repeated after it may have run; our own
--   SET and GET may run again.
--   Errors of the caller's script are data: an error in place of this script's reply comes from the
--   server, or from a command before the caller's script, which then did not run.
-- Redisson: has no equivalent.
local token, last = ARGV[1], redis.call('GET', KEYS[2])
if last and not string.match(last, '^%d+$') then
    return redis.error_reply('WRONGTYPE the key of the last token seen holds no number')
end
if last and (#token < #last or (#token == #last and token < last)) then
    return {0, last}
end
local script, flaw = loadstring(ARGV[3], '=script')
if not script then
    return redis.error_reply('ERR the script cannot be read: ' .. flaw)
end
if tonumber(ARGV[2]) > 0 then
    redis.call('SET', KEYS[2], token, 'PX', ARGV[2])
else
    redis.call('SET', KEYS[2], token)
end
table.remove(KEYS, 2)
for _ = 1, 3 do
    table.remove(ARGV, 1)
end
local done, reply = pcall(script)
if type(reply) == 'table' and rawget(reply, 'err') then
    done, reply = false, rawget(reply, 'err')
end
if done then
    return {1, reply}
end
return {2, type(reply) == 'string' and reply or 'ERR the script raised a ' .. type(reply)}
