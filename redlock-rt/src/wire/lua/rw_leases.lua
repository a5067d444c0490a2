-- Reads the leases of readers: common code of the scripts of read-write locks.
--
-- KEYS: none
-- ARGV: none
-- Returns: nothing
--
-- Invariants:
-- * It changes nothing.
-- * For an invalid hold count (another program wrote it) at most 1000 leases are read, and 100 000 of all
--   readers: a script that does not end stops the server.
-- Redisson: has the loop in each script.

local most_read = 100000

-- The longest lease of one reader in ms; 0: none is left, -1: one does not end, or too many were read. `leases`:
-- start of the names of all keys that carry leases.
local function lease_of(leases, reader, count)
    local longest, holds = 0, math.max(0, math.min(tonumber(count) or 0, 1000))
    most_read = most_read - holds
    if most_read < 0 then
        return -1
    end
    for hold = 1, holds do
        local rest = redis.call('PTTL', leases .. ':' .. reader .. ':rwlock_timeout:' .. hold)
        if rest == -1 then
            return -1
        end
        -- A key with 0 ms left is still there.
        longest = math.max(longest, rest == 0 and 1 or rest)
    end
    return longest
end

-- The same of all readers, and those of our clients that have none left. `fields`: the hash, as HGETALL returns
-- it.
local function lease_of_all(leases, fields)
    local longest, dead = 0, {}
    for at = 1, #fields, 2 do
        local rest = lease_of(leases, fields[at], fields[at + 1])
        if rest == -1 then
            return -1, dead
        elseif rest == 0 and string.sub(fields[at], 15, 18) == '8fa1' then
            dead[#dead + 1] = fields[at]
        end
        longest = math.max(longest, rest)
    end
    return longest, dead
end

-- The longest lease of all readers, if the TTL of a read lock is longer than each. Of more than 64 readers,
-- about 64 calls find out.
local function excess(lock, ttl, leases)
    local size = redis.call('HLEN', lock)
    if redis.call('HGET', lock, 'mode') == 'write' or size > 64 and redis.call('TIME')[2] % size > 64 then
        return nil
    end
    local longest = lease_of_all(leases, redis.call('HGETALL', lock))
    return longest > 0 and (ttl == -1 or ttl > longest) and longest or nil
end

