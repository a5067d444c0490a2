//! The rights of a user, against those that the kinds in use need.

use clap::ValueEnum;

use super::facts::Facts;
use super::places::{self, Place};
use super::{Doctor, Kind, Said, error, note, ok, warning};
use crate::nodes::Node;
use crate::server::Server;

/// The commands of the library's rule as they are sent, for a key K and a channel C: Redis checks their number of
/// arguments.
const SAMPLES: &[&str] = &[
    "EVALSHA 0 1 K",
    "SCRIPT|LOAD x",
    "CLIENT|ID",
    "CLIENT|KILL ID 1",
    "INFO",
    "PING",
    "SELECT 0",
    "SUBSCRIBE C",
    "UNSUBSCRIBE C",
    "PTTL K",
    "HGET K f",
    "HSET K f 1",
    "HDEL K f",
    "HLEN K",
    "HEXISTS K f",
    "HGETALL K",
    "EXISTS K",
    "PEXPIRE K 1",
    "DEL K",
    "PUBLISH C 0",
    "DECR K",
    "DECRBY K 1",
    "GET K",
    "HMGET K f",
    "HRANDFIELD K",
    "INCR K",
    "INCRBY K 1",
    "LINDEX K 0",
    "LLEN K",
    "LPOS K v",
    "LRANGE K 0 1",
    "LREM K 1 v",
    "PERSIST K",
    "PEXPIREAT K 1",
    "RPUSH K v",
    "SET K 1",
    "TIME",
    "ZADD K 1 m",
    "ZCARD K",
    "ZCOUNT K 0 1",
    "ZRANGE K 0 1",
    "ZRANGEBYSCORE K 0 1",
    "ZREM K m",
    "ZREMRANGEBYSCORE K 0 1",
    "ZSCORE K m",
    "CLUSTER|SLOTS",
    "CLUSTER|INFO",
    "ASKING",
    "PUBSUB|SHARDNUMSUB",
    "SPUBLISH C 0",
    "SSUBSCRIBE C",
    "SUNSUBSCRIBE C",
];
/// Takes a free lock without a script.
const RESTORE: &str = "RESTORE K 0 v";
/// Locks work without these.
const MINOR: [&str; 6] = [
    "+subscribe",
    "+unsubscribe",
    "+publish",
    "+client|id",
    "+client|kill",
    "+info",
];
/// Names of connections.
const NAMES: &[&str] = &["CLIENT|SETNAME x", "CLIENT|SETINFO LIB-NAME x"];

/// With these, Redis reports a lock that others delete or take.
const TRACKING: &[(&str, &str)] = &[
    ("CLIENT|TRACKING OFF", "+client|tracking"),
    ("CLIENT|CACHING YES", "+client|caching"),
    ("SUBSCRIBE __redis__:invalidate", "&__redis__:invalidate"),
];

fn in_use(doctor: &Doctor) -> &[Kind] {
    match &doctor.kinds[..] {
        [] => Kind::value_variants(),
        kinds => kinds,
    }
}

/// The commands of a rule, without those for names of connections.
fn commands(rule: &str) -> Vec<&'static str> {
    let samples = SAMPLES.iter().copied();
    let has = |right: &str| rule.split(' ').any(|word| word == right);
    samples.filter(|sample| has(&right(sample))).collect()
}

/// Whether the user may send this; an error if that cannot be found out.
async fn may(
    node: &Node,
    user: &str,
    command: &str,
    name: &str,
) -> Result<bool, redis::RedisError> {
    let channel = format!("redisson_lock__channel:{{{name}}}");
    may_with(node, user, command, [name, &channel]).await
}

/// The same, for this key and this channel.
async fn may_with(
    node: &Node,
    user: &str,
    command: &str,
    [key, channel]: [&str; 2],
) -> Result<bool, redis::RedisError> {
    let mut words: Vec<&str> = command.split(' ').collect();
    for word in &mut words[1..] {
        match *word {
            "K" => *word = key,
            "C" => *word = channel,
            _ => {}
        }
    }
    let parts: Vec<&str> = words[0].split('|').collect();
    let all = [&["ACL", "DRYRUN", user][..], &parts, &words[1..]].concat();
    let reply: String = node.ask(&all).await?;
    Ok(reply == "OK")
}

async fn user_of(doctor: &Doctor, node: &Node) -> Option<String> {
    match &doctor.acl_user {
        Some(user) => Some(user.clone()),
        None => node.ask(&["ACL", "WHOAMI"]).await.ok(),
    }
}

/// `None`: that cannot be found out.
pub(super) async fn may_restore(doctor: &Doctor, node: &Node) -> Option<bool> {
    let user = user_of(doctor, node).await?;
    may(node, &user, RESTORE, "redlock_probe").await.ok()
}

/// The missing rights of a user.
#[derive(Default)]
struct Lacking {
    /// For all names, or for those without `{`.
    rights: Vec<String>,
    /// For those with `{` only.
    braced: Vec<String>,
    /// Without these rights calls are refused. Without the others waiters poll, late commands are not prevented,
    /// and no holder is told of a theft.
    is_serious: bool,
    /// Why the result for some is not known.
    unknown: Option<redis::RedisError>,
}

impl Lacking {
    async fn of(
        node: &Node,
        user: &str,
        name: &str,
        commands: &[&'static str],
        places: &[Place],
    ) -> Self {
        let mut lacking = Self::default();
        for command in commands {
            match may(node, user, command, name).await {
                Ok(true) => {}
                Ok(false) => {
                    lacking.rights.push(right(command));
                    lacking.is_serious |= !MINOR.contains(&right(command).as_str());
                }
                // Also a command that this version does not have.
                Err(error) => lacking.unknown = Some(error),
            }
        }
        let refused = lacking.rights.clone();
        for place in places {
            // Otherwise the command itself is refused.
            let may_ask = !refused.contains(&right(place.command()));
            let sample = [place.sample.as_str(); 2];
            let missing = match place.braced {
                true => &mut lacking.braced,
                false => &mut lacking.rights,
            };
            if may_ask
                && !missing.contains(&place.pattern)
                && let Ok(false) = may_with(node, user, place.command(), sample).await
            {
                missing.push(place.pattern.clone());
                lacking.is_serious |= !place.braced && place.is_serious();
            }
        }
        lacking
    }
}

pub(super) async fn check(
    doctor: &Doctor,
    server: &Server,
    facts: &Facts,
    node: &Node,
) -> Vec<Said> {
    let rule = match places::rule(in_use(doctor), facts) {
        Ok(rule) => rule,
        Err(error) => return vec![note(format!("not known: {error}"))],
    };
    let commands = commands(&rule);
    let places = places::of(server.namespace.as_deref(), &rule);
    let line = line(server, &places, &commands);
    let Some(user) = user_of(doctor, node).await else {
        return vec![note(format!(
            "not known: ACL WHOAMI is not allowed. Enough is: {line}"
        ))];
    };
    let name = server.full_name("redlock_probe");
    let lacking = Lacking::of(node, &user, &name, &commands, &places).await;
    let remedy = format!("as an administrator: {line}");
    if !lacking.rights.is_empty() {
        let message = format!(
            "{user} lacks {} for the keys and channels of {name}",
            lacking.rights.join(" ")
        );
        return vec![match lacking.is_serious {
            true => error(message, &remedy),
            false => warning(message, &remedy),
        }];
    }
    if let Some(error) = lacking.unknown {
        let message = format!("of {user}, not known ({error}). Enough is: {line}");
        return vec![note(message)];
    }
    let verdict = match lacking.braced.is_empty() {
        true => {
            let names = extra(node, &user, &name).await;
            ok(format!("{user} has all that the kinds in use need{names}"))
        }
        false => {
            let message = format!(
                "{user} lacks {}: calls with names that contain {{, such as {}, are refused, or wait for polls",
                lacking.braced.join(" "),
                server.full_name("order:{42}")
            );
            warning(message, &remedy)
        }
    };
    let late = noticed_late(facts, node, &user).await;
    std::iter::once(verdict).chain(late).collect()
}

/// Whether it lacks what `ClientBuilder::tracking` needs.
async fn noticed_late(facts: &Facts, node: &Node, user: &str) -> Option<Said> {
    if facts.info("cluster_enabled") == Some("1") {
        return None;
    }
    let mut missing = Vec::new();
    for (command, right) in TRACKING {
        if matches!(may(node, user, command, "").await, Ok(false)) {
            missing.push(*right);
        }
    }
    let message = format!(
        "{user} lacks {}: a lock that others delete or take is noticed at its next renewal, also with \
         ClientBuilder::tracking",
        missing.join(" ")
    );
    (!missing.is_empty()).then(|| note(message))
}

/// Missing rights that cause no failure.
async fn extra(node: &Node, user: &str, name: &str) -> String {
    let mut missing = Vec::new();
    for command in [&[RESTORE], NAMES].concat() {
        if matches!(may(node, user, command, name).await, Ok(false)) {
            missing.push(right(command));
        }
    }
    match missing.is_empty() {
        true => String::new(),
        false => format!(", but not {}, which helps", missing.join(" ")),
    }
}

fn right(command: &str) -> String {
    let name = command.split(' ').next().unwrap_or(command);
    format!("+{}", name.to_lowercase())
}

/// The minimal rights, as an administrator grants them.
fn line(server: &Server, places: &[Place], commands: &[&str]) -> String {
    let mut words = match &server.namespace {
        Some(namespace) => vec![format!("~{namespace}:*"), "~redlock_probe".to_owned()],
        None => vec!["~*".to_owned()],
    };
    let patterns = places.iter().map(|place| place.pattern.clone());
    let rights = commands.iter().chain(NAMES).map(|command| right(command));
    for word in patterns.chain(rights) {
        if !words.contains(&word) {
            words.push(word);
        }
    }
    let words = words.join(" ");
    format!("ACL SETUSER app on >PASSWORD resetkeys resetchannels -@all {words}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_command_of_a_rule_has_its_sample() {
        let facts = Facts::with_info("cluster_enabled:1");
        let rule = places::rule(Kind::value_variants(), &facts).unwrap();
        assert_eq!(commands(&rule), SAMPLES);
        for word in rule.split(' ').filter(|word| word.starts_with('+')) {
            let mut samples = SAMPLES.iter().chain(NAMES);
            assert!(samples.any(|sample| right(sample) == word), "{word}");
        }
    }
}
