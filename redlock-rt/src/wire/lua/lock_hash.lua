-- Distinguishes the hash of a lock from another program's hash under the same name. Common code of
-- scripts that a hash refuses, that delete the hash, or that return its holder.
--
-- KEYS: 1 the lock (HASH: field -> hold count)
-- ARGV: none
-- Returns: nothing
--
-- Invariants:
-- * A holder is a field `ID:NUMBER`, a writer `ID:NUMBER:write`, and the value is a number. Besides
--   holders there is only the field `mode` (`read` or `write`); without it there is one holder.
-- * If there are more than 8 fields, only `mode` is checked, unless `all` is set: a refusal costs
--   the same however many readers there are.
-- * It changes nothing, and does not run for a free lock.
-- Redisson: takes any hash for a lock, and forceUnlock deletes any key.
local function is_holder(field, count)
    local owner = string.sub(field, -6) == ':write' and string.sub(field, 1, -7) or field
    return #owner <= 600 and string.find(owner, '^.+:%-?%d+$') and string.find(count, '^%-?%d+$')
end

-- The error if the key is not a lock; nil if it may be a lock, or does not exist. Returns also the
-- fields and their values, if it has read all.
local function not_a_lock(key, all)
    local size = redis.call('HLEN', key)
    local is_lock, fields = true, nil
    if all or size <= 8 then
        local mode = false
        fields = redis.call('HGETALL', key)
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
    return not is_lock and redis.error_reply('WRONGTYPE the hash is no lock') or nil, fields
end

