//! Every command: its name, how many arguments it takes, what it may do, and its function.

use super::call::CommandRun::{self, Plain, Script};
use super::call::no_subcommand;
use super::{
    connection, expiry, hashes, keys, lists, pubsub, restore, scripting, server, sets, strings,
    zranges, zsets,
};

/// Not to be called by scripts.
pub(in super::super) const NO_SCRIPT: u8 = 1;
/// Allowed before the password was given.
pub(in super::super) const NO_AUTH: u8 = 2;
/// Allowed to a client that has subscriptions.
pub(in super::super) const WHILE_SUBSCRIBED: u8 = 4;
/// Has subcommands, which are commands of their own, named `container|sub`.
pub(super) const CONTAINER: u8 = 8;
/// Takes about the same short time for any data.
pub(in super::super) const QUICK: u8 = 16;

const SUBSCRIPTION: u8 = NO_SCRIPT | WHILE_SUBSCRIBED;
const CLOSED_CONTAINER: u8 = NO_SCRIPT | CONTAINER;

/// The documentation of [`Engine`](super::super::Engine) lists the same.
pub(super) const COMMANDS: &[(&str, i64, u8, CommandRun)] = &[
    // Connection
    ("auth", -2, NO_SCRIPT | NO_AUTH, Plain(connection::auth)),
    ("client", -2, CLOSED_CONTAINER, Plain(no_subcommand)),
    ("client|id", 2, NO_SCRIPT, Plain(connection::id)),
    ("client|kill", -3, NO_SCRIPT, Plain(connection::kill)),
    ("client|setinfo", 4, NO_SCRIPT, Plain(connection::set_info)),
    ("client|setname", 3, NO_SCRIPT, Plain(connection::set_name)),
    ("ping", -1, WHILE_SUBSCRIBED, Plain(connection::ping)),
    ("select", 2, 0, Plain(connection::select)),
    // Server
    ("dbsize", 1, 0, Plain(server::dbsize)),
    ("flushall", -1, 0, Plain(server::flushall)),
    ("info", -1, 0, Plain(server::info)),
    ("time", 1, QUICK, Plain(server::time)),
    // Scripts
    ("eval", -3, NO_SCRIPT, Script(scripting::eval)),
    ("evalsha", -3, NO_SCRIPT, Script(scripting::evalsha)),
    ("script", -2, CLOSED_CONTAINER, Plain(no_subcommand)),
    ("script|exists", -3, NO_SCRIPT, Script(scripting::exists)),
    ("script|flush", -2, NO_SCRIPT, Script(scripting::flush)),
    ("script|load", 3, NO_SCRIPT, Script(scripting::load)),
    // Messages
    ("psubscribe", -2, SUBSCRIPTION, Plain(pubsub::psubscribe)),
    ("publish", 3, 0, Plain(pubsub::publish)),
    ("pubsub", -2, CONTAINER, Plain(no_subcommand)),
    ("pubsub|channels", -2, 0, Plain(pubsub::channels)),
    ("pubsub|numpat", 2, 0, Plain(pubsub::numpat)),
    ("pubsub|numsub", -2, 0, Plain(pubsub::numsub)),
    (
        "punsubscribe",
        -1,
        SUBSCRIPTION,
        Plain(pubsub::punsubscribe),
    ),
    ("subscribe", -2, SUBSCRIPTION, Plain(pubsub::subscribe)),
    ("unsubscribe", -1, SUBSCRIPTION, Plain(pubsub::unsubscribe)),
    // Keys
    ("del", -2, 0, Plain(keys::del)),
    ("exists", -2, QUICK, Plain(keys::exists)),
    ("expire", -3, QUICK, Plain(expiry::expire)),
    ("keys", 2, 0, Plain(keys::keys)),
    ("persist", 2, QUICK, Plain(expiry::persist)),
    ("pexpire", -3, QUICK, Plain(expiry::pexpire)),
    ("pexpireat", -3, 0, Plain(expiry::pexpireat)),
    ("pttl", 2, QUICK, Plain(expiry::pttl)),
    ("restore", -4, 0, Plain(restore::restore)),
    ("scan", -2, 0, Plain(keys::scan)),
    ("ttl", 2, QUICK, Plain(expiry::ttl)),
    ("type", 2, QUICK, Plain(keys::key_type)),
    // Strings
    ("append", 3, 0, Plain(strings::append)),
    ("decr", 2, 0, Plain(strings::decr)),
    ("decrby", 3, 0, Plain(strings::decrby)),
    ("get", 2, QUICK, Plain(strings::get)),
    ("incr", 2, QUICK, Plain(strings::incr)),
    ("incrby", 3, 0, Plain(strings::incrby)),
    ("set", -3, 0, Plain(strings::set)),
    // Hashes
    ("hdel", -3, QUICK, Plain(hashes::hdel)),
    ("hexists", 3, QUICK, Plain(hashes::hexists)),
    ("hget", 3, QUICK, Plain(hashes::hget)),
    ("hgetall", 2, 0, Plain(hashes::hgetall)),
    ("hincrby", 4, QUICK, Plain(hashes::hincrby)),
    ("hkeys", 2, 0, Plain(hashes::hkeys)),
    ("hlen", 2, QUICK, Plain(hashes::hlen)),
    ("hmget", -3, 0, Plain(hashes::hmget)),
    ("hrandfield", -2, 0, Plain(hashes::hrandfield)),
    ("hset", -4, QUICK, Plain(hashes::hset)),
    ("hvals", 2, 0, Plain(hashes::hvals)),
    // Lists
    ("lindex", 3, QUICK, Plain(lists::lindex)),
    ("llen", 2, QUICK, Plain(lists::llen)),
    ("lpop", -2, 0, Plain(lists::lpop)),
    ("lpos", -3, 0, Plain(lists::lpos)),
    ("lpush", -3, 0, Plain(lists::lpush)),
    ("lrange", 4, 0, Plain(lists::lrange)),
    ("lrem", 4, 0, Plain(lists::lrem)),
    ("rpop", -2, 0, Plain(lists::rpop)),
    ("rpush", -3, 0, Plain(lists::rpush)),
    // Sets
    ("sadd", -3, 0, Plain(sets::sadd)),
    ("scard", 2, QUICK, Plain(sets::scard)),
    ("sismember", 3, QUICK, Plain(sets::sismember)),
    ("smembers", 2, 0, Plain(sets::smembers)),
    ("srem", -3, 0, Plain(sets::srem)),
    // Sorted sets
    ("zadd", -4, 0, Plain(zsets::zadd)),
    ("zcard", 2, QUICK, Plain(zsets::zcard)),
    ("zcount", 4, 0, Plain(zranges::zcount)),
    ("zincrby", 4, 0, Plain(zsets::zincrby)),
    ("zrange", -4, 0, Plain(zranges::zrange)),
    ("zrangebyscore", -4, 0, Plain(zranges::zrangebyscore)),
    ("zrem", -3, 0, Plain(zsets::zrem)),
    ("zremrangebyscore", 4, 0, Plain(zranges::zremrangebyscore)),
    ("zscore", 3, QUICK, Plain(zsets::zscore)),
];
