//! Dead waiters of fair locks, and permits that are not renewed.

use redis::RedisError;

use super::keys::{Keys, semaphore_of};
use super::{Said, note, ok, warning};
use crate::nodes::Node;

/// Milliseconds for which a deadline may have passed: the next call for the lock removes the waiter.
const GRACE: f64 = 60_000.0;
/// An end of a lease that is farther away than this counts as none.
const A_DAY: f64 = 86_400_000.0;

/// The time of the server in milliseconds.
async fn now(node: &Node) -> Result<f64, RedisError> {
    let (seconds, micros): (f64, f64) = node.ask(&["TIME"]).await?;
    Ok(seconds * 1000.0 + micros / 1000.0)
}

pub(super) async fn queues(node: &Node, keys: &Keys) -> Result<Vec<Said>, RedisError> {
    const QUEUE: &str = "redisson_lock_queue:";
    let Ok(now) = now(node).await else {
        return Ok(vec![note("not known: TIME is not allowed")]);
    };
    let (mut said, mut number) = (Vec::new(), 0);
    for queue in keys.starting(QUEUE) {
        number += 1;
        let name = &queue[QUEUE.len()..];
        let deadlines = format!("redisson_lock_timeout:{name}");
        let limit = format!("({}", now - GRACE);
        let dead: u64 = match node.ask(&["ZCOUNT", &deadlines, "-inf", &limit]).await {
            Err(error) if error.code() == Some("WRONGTYPE") => {
                said.push(note(format!("not known of {name}: {error}")));
                continue;
            }
            dead => dead?,
        };
        if dead > 0 {
            said.push(warning(
                format!("{dead} in the queue of {name} are dead, and nobody has asked for the lock since"),
                "the next call for this lock takes them out; a lock that is not used any more: DEL its queue and \
                 its deadlines",
            ));
        }
    }
    if said.is_empty() {
        said.push(ok(format!(
            "{number} fair locks have a queue, without dead waiters"
        )));
    }
    Ok(said)
}

pub(super) async fn permits(node: &Node, keys: &Keys) -> Result<Vec<Said>, RedisError> {
    let Ok(now) = now(node).await else {
        return Ok(vec![note("not known: TIME is not allowed")]);
    };
    let (mut said, mut number) = (Vec::new(), 0);
    for leases in keys.names() {
        let Some(name) = semaphore_of(leases) else {
            continue;
        };
        // Other programs may have keys with such a name.
        if node.ask::<String>(&["TYPE", leases]).await? != "zset" {
            continue;
        }
        number += 1;
        let far = format!("{}", now + A_DAY);
        let endless: u64 = node.ask(&["ZCOUNT", leases, &far, "+inf"]).await?;
        if endless > 0 {
            said.push(warning(
                format!("{endless} permits of {name} end in more than a day: a crashed holder keeps them"),
                "acquire with a lease that is renewed (here always; in Redisson by updateLeaseTime)",
            ));
        }
    }
    if said.is_empty() {
        said.push(ok(format!(
            "{number} semaphores have permits with leases, all for less than a day"
        )));
    }
    Ok(said)
}
