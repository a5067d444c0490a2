-- Tells the hash of a lock from a hash that somebody else keeps under the lock's name; the start of
-- scripts that are refused by a hash, delete it, or say who holds it.
--
-- KEYS: 1 the lock (HASH: field -> hold count)
-- ARGV: none
-- Returns: nothing
--
-- Invariants:
-- * A holder is a field `ID:NUMBER`, a writer `ID:NUMBER:write`, and the value is a number. Beside
--   holders there is only the field `mode`, `read` or `write`; without it there is one holder.
-- * Of more than 8 fields only `mode` is looked at, unless `all` are asked for: a refusal costs the same
--   however many read.
-- * It changes nothing, and the road of a free lock does not come here.
-- Redisson: takes any hash for a lock, and forceUnlock deletes any key.
local function is_holder(field, count)
    local owner = string.match(field, '^(.*):write$') or field
    return string.find(owner, '^.+:%-?%d+$') and string.find(count, '^%-?%d+$')
end

-- The error to answer where the key is no lock; nil where it may be one, or is not there.
local function not_a_lock(key, all)
    local size = redis.call('HLEN', key)
    local is_lock = true
    if all or size <= 8 then
        local fields, mode = redis.call('HGETALL', key), false
        for at = 1, #fields, 2 do
            local field, value = fields[at], fields[at + 1]
            if field == 'mode' then
                mode = true
                is_lock = is_lock and (value == 'read' or value == 'write')
            else
                is_lock = is_lock and is_holder(field, value)
            end
        end
        is_lock = is_lock and (mode or size <= 1)
    else
        local mode = redis.call('HGET', key, 'mode')
        is_lock = mode == 'read' or mode == 'write'
    end
    if not is_lock then
        return redis.error_reply('WRONGTYPE the hash is no lock')
    end
end

