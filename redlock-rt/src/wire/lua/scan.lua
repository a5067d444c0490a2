-- Returns names of this server that may be those of locks, semaphores or latches: one page.
--
-- KEYS: none
-- ARGV: 1 cursor, 2 pattern, 3 about how many keys to look at
-- Returns: {run id of the server (empty: the user may not know it), next cursor (0: this was the last page),
--   then the bytes of the names in hexadecimal}
--
-- Invariants:
-- * It changes nothing. What is there all the time is on one page at least.
-- * A foreign key need not be text, and one that is not makes no reply unreadable.
-- * Keys that carry the lease of one reader, and Redisson's latches of one release, are left out.
-- Redisson: RKeys.getKeysByPattern, of all keys.
local page = redis.call('SCAN', ARGV[1], 'MATCH', ARGV[2], 'COUNT', ARGV[3])
local info = redis.pcall('INFO', 'server')
local reply = {type(info) == 'string' and string.match(info, 'run_id:(%x+)') or '', page[1]}
for _, key in ipairs(page[2]) do
    local type = redis.pcall('TYPE', key)
    local own = string.find(key, ':rwlock_timeout:%d+$') or string.find(key, '^redisson_unlock_latch:')
    -- A key on its way to another node of a cluster is an error.
    local may_be = not type.ok or type.ok == 'hash' or type.ok == 'string'
    if may_be and not own then
        reply[#reply + 1] = string.gsub(key, '.', function(byte)
            return string.format('%02x', string.byte(byte))
        end)
    end
end
return reply
