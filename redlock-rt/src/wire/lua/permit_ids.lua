-- Reads the ids of permits: common code of several scripts.
--
-- KEYS: none
-- ARGV: none
-- Returns: nothing
--
-- Invariants:
-- * Each id has 32 hexadecimal digits.
-- * Eight digits are read at a time: a call for each byte takes twice as long.
-- Redisson: passes the bytes, which need not be text.
local function four_bytes(digits, at)
    local number = tonumber(string.sub(digits, at, at + 7), 16)
    local high, low = math.floor(number / 65536), number % 65536
    return string.char(math.floor(high / 256), high % 256, math.floor(low / 256), low % 256)
end

-- Converts concatenated hexadecimal ids to the bytes that the set contains.
local function raw_ids(digits)
    local ids = {}
    for at = 1, #digits, 32 do
        ids[#ids + 1] = four_bytes(digits, at) .. four_bytes(digits, at + 8)
            .. four_bytes(digits, at + 16) .. four_bytes(digits, at + 24)
    end
    return ids
end

