-- Wakes a waiter of a fair lock: common code of several scripts.
--
-- KEYS: none
-- ARGV: none
-- Returns: nothing
--
-- Invariants:
-- * A waiter of ours is woken through the one channel of its client; the message has the owner's
--   number and the lock's name. So a client that waits for many locks needs no subscription for
--   each, and no pattern, which the server would compare with every message.
-- * A waiter of ours that is next, but cannot have the lock yet, is told when the holder's lease ends:
--   NUMBER@MS. Its client asks again then, since the end of a lease is not announced.
-- * A waiter of another client is woken through its own channel, as Redisson wakes it.
-- * What another program has put into a queue may be of any length, and is never ours.
-- * A refused PUBLISH (an ACL) is not a failure: waiters poll.
-- Redisson: subscribes each waiter to a separate channel.
local function client_of(owner)
    return string.match(owner, '^(.*):') or owner
end

-- The UUID marks our clients.
local function is_ours(owner)
    return string.sub(owner, 15, 18) == '8fa1'
end

-- A waiter in a reply.
local function shown(waiter)
    return string.sub(waiter, 1, 600)
end

-- Returns false if Redis refuses to publish. `publish`: the command for the channels of waiters,
-- which are in the slot of their lock; a client's channel is in none. `clients`, `waiters`: prefixes of
-- the channels. `left`: the ms until the holder's lease ends; nil: the waiter may try now.
local function wake(waiter, name, publish, clients, waiters, left)
    local sent
    if is_ours(waiter) then
        local client = client_of(waiter)
        local number = string.sub(waiter, #client + 2)
        local message = (left and number .. '@' .. left or number) .. ' ' .. name
        sent = redis.pcall('PUBLISH', clients .. ':' .. client, message)
    else
        sent = redis.pcall(publish, waiters .. ':' .. waiter, '0')
    end
    return type(sent) == 'number'
end

