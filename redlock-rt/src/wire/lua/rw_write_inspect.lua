-- Returns the holder of a lock for writing.
--
-- Prelude: lock_hash, looked_at
-- KEYS: 1 the lock (HASH: mode, field -> hold count)
-- ARGV: none
-- Returns: {} = nobody; else {owner, hold count, remaining ms (-1: no TTL)}
--
-- Invariants: reads only; one consistent reply. A hash that is not a lock is refused (WRONGTYPE).
-- Redisson: WriteLock.isLocked, getHoldCount, remainTimeToLive, each a command of its own.
local fields = redis.call('HGETALL', KEYS[1])
local writer, is_written = nil, false
for at = 1, #fields, 2 do
    if fields[at] == 'mode' then
        is_written = fields[at + 1] == 'write'
    elseif string.sub(fields[at], -6) == ':write' then
        writer = at
    end
end
if not (is_written and writer) then
    return {}
end
local owner = string.sub(fields[writer], 1, -7)
return {owner, tonumber(fields[writer + 1]), redis.call('PTTL', KEYS[1])}
