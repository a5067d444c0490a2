-- Says why a hold is not in its lock: common code of scripts that look for one.
--
-- KEYS: none
-- ARGV: none
-- Returns: nothing
--
-- Invariants:
-- * The note of a theft is in the slot of its lock. It is read on the way of a loss alone; where it may not be
--   read, there is none. One that is longer than ours is of another program: its text would end the connection.
-- Redisson: none.

-- The note for a hold that was stolen; else -1: another owner has the lock, or 0: nobody has.
local function loss_of(lock, field)
    local tag = string.find(lock, '{', 1, true) and lock or '{' .. lock .. '}'
    local note = redis.pcall('GET', 'redlock_stolen:' .. tag .. ':' .. string.gsub(field, ':write$', ''))
    return type(note) == 'string' and #note <= 2049 and string.find(note, '%z') and note or -redis.call('EXISTS', lock)
end
