-- Ends a hold, and keeps the lock taken for a while: it is free when its TTL is over.
--
-- Prelude: fair_wake
-- KEYS: 1 the lock (HASH: field -> hold count), 2 the queue of a fair lock (LIST; of another kind, the
--   lock again)
-- ARGV: 1 field of the hold, 2 for how long in ms, 3 channel (of a fair lock, the prefix of the
--   waiters' channels; empty: none), 4 publish command, 5 prefix of our clients' channels
-- Returns: 2 = kept, 0 = the lock does not exist, -1 = another owner has it; if waiters were to be
--   woken, {that, 1 = announced or 0 = Redis refused to, of a fair lock also the waiter}
--
-- Invariants:
-- * Without the field nothing is changed or published, so the call may be late or repeated.
-- * The field stays with a count of 0: the hold has ended, so a renewal or an extension that comes late
--   does not lengthen the rest.
-- * The TTL is set, also to a shorter one. Waiters sleep for the lease that they were told, so they
--   are woken and told the new one: of a Redisson client by 1 all threads that sleep, and by 0 one that does
--   not sleep yet.
-- * A refused PUBLISH (an ACL) is not a failure: waiters poll.
-- Redisson: has no equivalent; its clients see a holder that does not release.
if redis.call('HEXISTS', KEYS[1], ARGV[1]) == 0 then
    return -redis.call('EXISTS', KEYS[1])
end
redis.call('PEXPIRE', KEYS[1], ARGV[2])
-- Behind a write, so that a full memory does not refuse it.
redis.call('HSET', KEYS[1], ARGV[1], 0)
if KEYS[2] ~= KEYS[1] then
    local head = redis.call('LINDEX', KEYS[2], 0)
    return head and {2, wake(head, KEYS[1], ARGV[4], ARGV[5], ARGV[3]) and 1 or 0, shown(head)} or 2
end
if ARGV[3] == '' then
    return 2
end
redis.pcall(ARGV[4], ARGV[3], '1')
return {2, type(redis.pcall(ARGV[4], ARGV[3], '0')) == 'number' and 1 or 0}
