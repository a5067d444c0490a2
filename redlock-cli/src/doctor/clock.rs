//! The clock of the server, by which leases end and tokens grow.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::{Said, note, ok, warning};
use crate::nodes::Node;

const FAR: Duration = Duration::from_secs(5);

pub(super) async fn check(node: &Node) -> Vec<Said> {
    let asked = SystemTime::now();
    let Ok((seconds, micros)) = node.ask::<(u64, u32)>(&["TIME"]).await else {
        return vec![note("not known: TIME is not allowed")];
    };
    let took = asked.elapsed().unwrap_or_default();
    let since = Duration::from_secs(seconds).saturating_add(Duration::from_micros(micros.into()));
    let Some(theirs) = UNIX_EPOCH.checked_add(since) else {
        return vec![note(format!("not known: TIME says {seconds} s"))];
    };
    let ours = asked + took / 2;
    let (apart, word) = match theirs.duration_since(ours) {
        Ok(ahead) => (ahead, "ahead of"),
        Err(behind) => (behind.duration(), "behind"),
    };
    let message = format!("it is {apart:.1?} {word} ours");
    vec![match apart > FAR + took {
        true => warning(
            message,
            "set both by NTP: a clock that jumps back makes leases longer, and fencing tokens wait for it after a \
             failover",
        ),
        false => ok(message),
    }]
}
