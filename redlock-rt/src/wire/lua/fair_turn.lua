-- One fair lock, its clock and its waiters: what the scripts of fair locks need in the usual case.
--
-- Prelude: fair_wake
-- KEYS: 1 the lock (HASH: owner -> hold count), 2 queue (LIST of owners, the head is next),
--   3 deadlines (ZSET: owner -> epoch ms), 4 notes (HASH, of our clients alone; see docs/protocol.md)
-- ARGV: 1 publish command, 2 prefix of our clients' channels
-- Returns: nothing
--
-- Invariants:
-- * Each run of a script makes all functions that its text has up to the place where it returns. So the
--   usual case stands before the functions that only the other cases need (`fair_queue`).
-- * A number in a command is written by Redis as a float. So constants are texts.
-- The least distance of a live waiter of ours to its deadline, if its client counts as alive for so long.
local NEAR = 60000
-- The longest time between two heartbeats of a client.
local LONGEST_BEAT = 30000

local clock = redis.call('TIME')
local seconds, micros = tonumber(clock[1]), tonumber(clock[2])
local now = seconds * 1000 + math.floor(micros / 1000)

local LOCK, QUEUE, DEADLINES, NOTES, WAITERS, MOST
-- All waiters in their order, if waiters of other clients are queued beside ours; else false.
local waiters
local notes
-- Whether dead waiters were dropped before the one that is next.
local dropped

-- Selects the lock whose keys follow the first `keys` ones, with these arguments.
local function turn_to(keys, prefix, most)
    LOCK, QUEUE, DEADLINES, NOTES = KEYS[keys + 1], KEYS[keys + 2], KEYS[keys + 3], KEYS[keys + 4]
    WAITERS, MOST = prefix, tonumber(most)
    waiters, notes, dropped = false, {}, false
end

local function ms(number)
    return string.format('%.0f', number)
end

local function deadline_of(owner)
    return tonumber(redis.call('ZSCORE', DEADLINES, owner) or nil)
end

-- The time that a waiter of ours adds to the deadlines behind it, and when its wait has ended.
local function bounds_of(note)
    local counts, gone = string.match(note or '', '^(%d+) (%d+)$')
    gone = tonumber(gone) or 0
    return tonumber(counts) or MOST, gone > 0 and gone or math.huge
end

-- Until when the waiters of a client of ours count as alive, by its note `UNTIL.MS`. It never noted more than
-- MS: if it is more now, the clock was set back, and the note is cut.
local function alive_until(client, note)
    local heard, most = string.match(note or '', '^(%d+)%.?(%d*)$')
    heard, most = tonumber(heard) or 0, tonumber(most) or math.huge
    if heard > now + most then
        heard = now + most
        redis.call('HSET', NOTES, client, ms(heard) .. '.' .. ms(most))
    end
    return heard
end

-- The deadline of a waiter of ours, and a new one if Redisson would drop it while it counts as alive. `note`,
-- `heard`: the notes of the waiter and of its client.
local function kept(owner, note, heard)
    local _, gone = bounds_of(note)
    local deadline = deadline_of(owner) or 0
    local least = math.min(gone, now + NEAR, alive_until(client_of(owner), heard))
    return deadline, deadline < least and least
end

-- Takes the free lock for an owner. Returns the error if an ACL forbids that.
local function take(owner, lease)
    redis.call('HSET', LOCK, owner, '1')
    local leased = redis.pcall('PEXPIRE', LOCK, lease)
    if type(leased) == 'table' then
        redis.call('HDEL', LOCK, owner)
        return leased
    end
    return nil
end

-- Tells the new next waiter when the lease of the holder ends, if that may be before the next heartbeat
-- of its client, which asks anyway. Redisson's waiters know how long they have to wait.
local function tell_next(left)
    local head = left >= 0 and left < LONGEST_BEAT and redis.call('LINDEX', QUEUE, '0')
    if head and is_ours(head) then
        wake(head, LOCK, ARGV[1], ARGV[2], WAITERS, left)
    end
end

-- The next waiter, `head`, is ours and has the lock for `lease` ms: it leaves the queue. `heir`: the
-- waiter behind it, if there is one. Returns false, and changes nothing, if others in the queue are to be
-- looked at too.
local function leave_to(head, heir, lease)
    if not heir then
        redis.call('DEL', QUEUE, DEADLINES, NOTES)
        return true
    end
    if waiters or not is_ours(heir) then
        return false
    end
    local noted = redis.call('HMGET', NOTES, 'mixed', head, heir, client_of(heir))
    if noted[1] then
        return false
    end
    local _, new = kept(heir, noted[3], noted[4])
    if new then
        return false
    end
    -- No deadline is changed. So a waiter of another client that has entered behind these is found as it
    -- entered, by the next script that looks at the whole queue.
    redis.call('LREM', QUEUE, '1', head)
    redis.call('ZREM', DEADLINES, head)
    if noted[2] then
        redis.call('HDEL', NOTES, head)
    end
    tell_next(lease)
    return true
end
