-- The queue of a fair lock: common code of every script that changes it.
--
-- Prelude: fair_wake, fair_turn
-- KEYS: 1 the lock (HASH: owner -> hold count), 2 queue (LIST of owners, the head is next),
--   3 deadlines (ZSET: owner -> epoch ms), 4 notes (HASH, of our clients alone; see docs/protocol.md)
-- ARGV: 1 publish command, 2 prefix of our clients' channels
-- Returns: nothing
--
-- Invariants:
-- * A waiter of ours is dead when its client has sent no heartbeat for a while, whatever its
--   deadline. Any other waiter is dead at its deadline, and without a deadline it is alive (as in
--   Redisson). A waiter of ours without a deadline is a left-over of one that queued again.
-- * The deadline of another client's waiter is what Redisson would have given it behind its own
--   waiters with the same waits. Redisson gives it the deadline of the waiter before it, plus its
--   wait. If that waiter is ours, the next script of ours that looks at the whole queue (a heartbeat
--   does) corrects the deadline, which ends in .5 from then on. Deadlines that Redisson derives from
--   it also end in .5, and need no correction.
-- * The deadline of a waiter of ours is that of Redisson as well, without the waits of ours before it. While
--   its client counts as alive, it is also later than that, by the waits of all other clients' waiters
--   before it: Redisson reduces all deadlines by the wait of the waiter that takes the lock.
-- * The whole queue is read only if waiters of other clients are queued beside ours. Another
--   client's waiter enters at the end, so the next script that looks there, or changes the deadline of
--   a waiter, finds it.
-- * Deadlines without a queue are void: their owners must queue again.
-- Redisson: the head of every RFairLock script.
-- The least time for a waiter of another client after one of ours has made it the next.
local GRACE = 5000
-- After this time every live client has sent a heartbeat, so a client without a note is dead.
local UNHEARD = LONGEST_BEAT + 5000

local function pairs_of(list)
    local map = {}
    for i = 1, #list, 2 do
        map[list[i]] = list[i + 1]
    end
    return map
end

-- Computes `counts`, the time that a waiter adds to the deadlines behind it, and `nominal`, the
-- deadline that it would have in a queue of Redisson only. `began`: the start of that queue, if known.
local function count(waiter, before, began)
    local score = waiter.score
    if waiter.ours then
        local from = before and before.nominal or began or now
        waiter.counts, waiter.gone = bounds_of(notes[waiter.owner])
        waiter.nominal = from + waiter.counts
        if not before and notes.anchor == waiter.owner and score then
            -- Redisson shifts its deadline and the nominal one by the same time.
            waiter.nominal = score - tonumber(notes.surplus)
        end
        if waiter.nominal <= now and waiter.counts > 0 then
            -- Redisson would have dropped this waiter, without a shift, so it no longer counts.
            waiter.counts = 0
            local gone = waiter.gone < math.huge and waiter.gone or 0
            redis.call('HSET', NOTES, waiter.owner, '0 ' .. ms(gone))
        end
    elseif not score then
        waiter.counts, waiter.nominal = 0, before and before.nominal or now
    elseif not before then
        -- Of a queue that began before ours came, only the latest moment is known: the end of the lease.
        began = began or now + math.max(0, redis.call('PTTL', LOCK))
        waiter.counts = math.max(0, score - began)
        waiter.nominal = score
    elseif score % 1 == 0.5 then
        waiter.counts, waiter.nominal = math.max(0, score - before.nominal), score
    else
        local from = before.ours and math.max(before.nominal, now) or before.nominal
        waiter.counts = math.max(0, score - (before.was or now))
        waiter.nominal = from + waiter.counts
        if before.ours or waiter.nominal ~= score then
            waiter.nominal = math.floor(waiter.nominal) + 0.5
            waiter.score = waiter.nominal
        end
    end
end

-- Reads the queue if it is mixed, or becomes mixed because a waiter of ours `joins`.
local function look(joins)
    local last = not waiters and redis.call('LINDEX', QUEUE, -1)
    if not last then
        return
    end
    if is_ours(last) then
        if redis.call('HEXISTS', NOTES, 'mixed') == 0 then
            return
        end
    elseif not joins and redis.call('EXISTS', NOTES) == 0 then
        return
    end
    notes = pairs_of(redis.call('HGETALL', NOTES))
    local deadlines = pairs_of(redis.call('ZRANGE', DEADLINES, 0, -1, 'WITHSCORES'))
    local queued, any = {}, false
    waiters = {}
    for i, owner in ipairs(redis.call('LRANGE', QUEUE, 0, -1)) do
        local score = tonumber(deadlines[owner])
        waiters[i] = {owner = owner, ours = is_ours(owner), score = score, was = score}
        queued[owner] = true
        any = any or waiters[i].ours
    end
    -- With a waiter of ours, the queue has not been empty since then.
    local began = any and tonumber(notes.began)
    for i, waiter in ipairs(waiters) do
        count(waiter, waiters[i - 1], began)
    end
    for field in pairs(notes) do
        if string.find(field, ':', 1, true) and not queued[field] then
            redis.call('HDEL', NOTES, field)
        end
    end
end

-- Takes a waiter out of the queue. If it is ours, the deadlines of other clients' waiters behind it
-- are reduced by the time that it counted, as Redisson does when its waiter acquires or gives up.
local function take_out(owner)
    redis.call('LREM', QUEUE, 1, owner)
    redis.call('ZREM', DEADLINES, owner)
    redis.call('HDEL', NOTES, owner)
    local at = 1
    while waiters and waiters[at] and waiters[at].owner ~= owner do
        at = at + 1
    end
    local left = waiters and table.remove(waiters, at)
    if not left or not left.ours then
        return
    end
    local shift, first = -left.counts, waiters[at]
    if at == 1 and first and not first.ours and first.score then
        -- The living behind get as much: each loses the wait of the first when that gives up.
        shift = math.max(shift, now + GRACE + 0.5 - first.score)
    end
    for i = at, #waiters do
        local waiter = waiters[i]
        local by = (i == at or waiter.score and waiter.score > now) and shift or -left.counts
        waiter.nominal = waiter.nominal + by
        if not waiter.ours and waiter.score then
            waiter.score = waiter.score + by
        end
    end
end

-- If all waiters are ours, Redisson can drop only heads. So each one up to the first that is far from
-- its deadline gets a new deadline.
local function keep_first(most)
    for i = 0, most - 1 do
        local owner = redis.call('LINDEX', QUEUE, i)
        if not owner or not is_ours(owner) then
            return
        end
        local noted = redis.call('HMGET', NOTES, owner, client_of(owner))
        local deadline, new = kept(owner, noted[1], noted[2])
        if new then
            redis.call('ZADD', DEADLINES, 'XX', ms(new), owner)
        end
        if (new or deadline) >= now + NEAR then
            return
        end
    end
end

-- Ends every script that has changed the queue, or may have been delayed: live waiters of ours get
-- deadlines at which no Redisson client drops them. If all waiters are ours, it checks at `most` this
-- many.
local function settle(most)
    if redis.call('EXISTS', QUEUE) == 0 then
        redis.call('DEL', DEADLINES, NOTES)
        return
    end
    if not waiters then
        return keep_first(most)
    end
    local began = waiters[1] and waiters[1].nominal - waiters[1].counts
    local room, mixed, anchor = 0, false, nil
    for _, waiter in ipairs(waiters) do
        if not waiter.ours then
            room, mixed = room + waiter.counts, true
        else
            anchor = anchor or waiter
            local client = client_of(waiter.owner)
            local alive = math.min(now + NEAR, alive_until(client, notes[client]))
            local far = math.max(began + waiter.counts, alive)
            if room == 0 then
                -- A waiter of Redisson before it counts nothing where the lease ends after its deadline.
                far = math.min(far, mixed and math.max(waiter.gone, waiter.nominal) or waiter.gone)
            end
            local near, score = room + math.min(far, alive), waiter.score
            if score and (score < near or score > room + far + 1000) then
                waiter.score = math.ceil(room + far)
            end
        end
        if waiter.score ~= waiter.was then
            redis.call('ZADD', DEADLINES, 'XX', string.format('%.1f', waiter.score), waiter.owner)
        end
    end
    if not anchor then
        redis.call('DEL', NOTES)
        return
    end
    redis.call('HSET', NOTES, 'began', string.format('%.1f', began))
    if mixed and anchor.score then
        local surplus = string.format('%.1f', anchor.score - anchor.nominal)
        redis.call('HSET', NOTES, 'mixed', 1, 'anchor', anchor.owner, 'surplus', surplus)
    elseif not mixed then
        redis.call('HDEL', NOTES, 'mixed', 'anchor', 'surplus')
    end
end

local function is_alive(owner, deadline)
    if not is_ours(owner) then
        return not deadline or deadline > now
    end
    local client = client_of(owner)
    local noted = redis.call('HMGET', NOTES, client, 'since')
    local since = tonumber(noted[2])
    if not deadline or noted[1] then
        return deadline and alive_until(client, noted[1]) > now
    end
    if since and since > now then
        -- The clock was set back.
        since = now
        redis.call('HSET', NOTES, 'since', ms(now))
    end
    -- There is no note of its client: the client is long dead, or the notes are gone.
    return deadline > now and not (since and since + UNHEARD <= now)
end

-- The waiter that is next, or false; drops the dead before it.
local function head_of_queue()
    while true do
        local head = redis.call('LINDEX', QUEUE, 0)
        if not head then
            redis.call('DEL', DEADLINES, NOTES)
            -- A waiter that joins now is the first of an empty queue.
            waiters = false
            return false
        end
        local deadline = waiters and waiters[1].score or deadline_of(head)
        if is_alive(head, deadline) then
            if dropped then
                settle(1)
            end
            return head
        end
        look()
        take_out(head)
        dropped = true
    end
end

-- The waiter that was woken, and whether Redis published that: 1, or 0 = it refused to.
local woken, told

-- Wakes the waiter that is next, if there is one.
local function wake_next(head)
    if head then
        woken, told = head, wake(head, LOCK, ARGV[1], ARGV[2], WAITERS) and 1 or 0
    end
end

-- As `leave_to`, where others in the queue are to be looked at too.
local function leave(head, lease)
    look()
    take_out(head)
    settle(1)
    tell_next(lease)
end

-- The reply of a script that may have woken a waiter.
local function answer(number)
    return woken and {number, told, shown(woken)} or number
end

-- Forgets dead clients: amortised O(1) for each new client, since the next time there are twice as
-- many.
local function forget()
    local kept, all = 0, redis.call('HGETALL', NOTES)
    for i = 1, #all, 2 do
        if #all[i] == 36 and tonumber(all[i + 1]) <= now then
            redis.call('HDEL', NOTES, all[i])
        else
            kept = kept + 1
        end
    end
    redis.call('HSET', NOTES, 'most', 2 * kept + 32)
end

-- Notes that this client's waiters are alive for `alive` ms from now on.
local function hear(client, alive)
    local until_then = ms(now + alive) .. '.' .. ms(alive)
    local new = redis.call('HSET', NOTES, client, until_then) == 1
    notes[client] = until_then
    redis.call('PEXPIRE', NOTES, 600000)
    if not new then
        return
    end
    local noted = redis.call('HMGET', NOTES, 'since', 'most')
    if not noted[1] then
        redis.call('HSET', NOTES, 'since', ms(now))
        if redis.call('EXISTS', QUEUE) == 1 then
            -- The queued waiters came while there were no notes.
            redis.call('HSET', NOTES, 'mixed', 1)
        end
    elseif redis.call('HLEN', NOTES) > (tonumber(noted[2]) or 32) then
        forget()
    end
end
