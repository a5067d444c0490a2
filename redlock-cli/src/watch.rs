//! `redlock watch`: the events of one lock, one per line.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use clap::Args;
use redlock_rt::{Inspection, Shutdown};
use serde_json::json;
use tokio::time::{Instant, MissedTickBehavior, interval, timeout_at};

use crate::exit::{Code, Failure};
use crate::found::{millis, waiters};
use crate::output::Output;
use crate::server::Server;
use crate::span::{LONGEST, nonzero_span, span};

/// Prints what happens to a lock, a line an event
///
/// It looks again and again, so it does not see what comes and goes between two looks.
#[derive(Debug, Args)]
pub(crate) struct Watch {
    /// The lock, semaphore or latch
    key: String,
    /// How often to look
    #[arg(long, value_parser = nonzero_span, value_name = "TIME", default_value = "200ms")]
    every: Duration,
    /// Ends after this time [default: never]
    #[arg(long = "for", value_parser = span, value_name = "TIME")]
    duration: Option<Duration>,
}

/// The state whose changes are reported.
#[derive(Debug, Default, PartialEq, Eq)]
struct Look {
    /// How often each holder has it.
    holders: BTreeMap<String, u64>,
    count: Option<i64>,
    waiters: u64,
}

#[derive(Debug, PartialEq, Eq)]
enum Event {
    Acquired(String),
    Reentered(String, u64),
    Released(String),
    Count(i64),
    Waiters(u64),
}

pub(crate) async fn perform(
    watch: Watch,
    server: &Server,
    output: Output,
) -> Result<Code, Failure> {
    let client = server.client().await?;
    let key = server.full_name(&watch.key);
    let end = Instant::now() + watch.duration.unwrap_or(LONGEST);
    let mut looks = interval(watch.every);
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut before = Look::default();
    while Instant::now() < end && timeout_at(end, looks.tick()).await.is_ok() {
        let now = Look::from(client.inspect(&watch.key).await?);
        for event in now.events_since(&before) {
            event.print(&key, output)?;
        }
        before = now;
    }
    client.shutdown(Shutdown::ReleaseAll).await?;
    Ok(Code::DONE)
}

impl From<Option<Inspection>> for Look {
    fn from(found: Option<Inspection>) -> Self {
        let Some(found) = found else {
            return Self::default();
        };
        let holders = found.holders.iter().filter(|holding| holding.count > 0);
        let holders = holders.map(|holding| (holding.id.as_str().to_owned(), holding.count));
        Self {
            holders: holders.collect(),
            count: found.count,
            waiters: waiters(&found),
        }
    }
}

impl Look {
    fn events_since(&self, before: &Self) -> Vec<Event> {
        let mut events = Vec::new();
        for holder in before.holders.keys() {
            if !self.holders.contains_key(holder) {
                events.push(Event::Released(holder.clone()));
            }
        }
        for (holder, count) in &self.holders {
            match before.holders.get(holder) {
                None => events.push(Event::Acquired(holder.clone())),
                Some(was) if was != count => events.push(Event::Reentered(holder.clone(), *count)),
                Some(_) => {}
            }
        }
        // The key of an open latch is gone.
        let count = self.count.unwrap_or(0);
        if (self.count.is_some() || before.count.is_some()) && before.count != Some(count) {
            events.push(Event::Count(count));
        }
        if before.waiters != self.waiters {
            events.push(Event::Waiters(self.waiters));
        }
        events
    }
}

impl Event {
    fn print(&self, key: &str, output: Output) -> Result<(), Failure> {
        let (event, holder, number) = match self {
            Self::Acquired(holder) => ("acquired", Some(holder), None),
            Self::Reentered(holder, count) => ("held", Some(holder), i64::try_from(*count).ok()),
            Self::Released(holder) => ("released", Some(holder), None),
            Self::Count(count) => ("count", None, Some(*count)),
            Self::Waiters(number) => ("waiters", None, i64::try_from(*number).ok()),
        };
        let time = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        let object = json!({
            "time_ms": millis(Some(time)),
            "key": key,
            "event": event,
            "holder": holder,
            "number": number,
        });
        let number = number.map_or(String::new(), |number| number.to_string());
        let what = holder.map_or("", String::as_str);
        let text = format!("{} {event:8} {what}{number}", time_of_day(time));
        output.say(&object, text)?;
        Ok(())
    }
}

/// The time of the day in UTC.
fn time_of_day(since: Duration) -> String {
    let seconds = since.as_secs() % 86_400;
    let (hours, minutes, seconds) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    format!("{hours:02}:{minutes:02}:{seconds:02}Z")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn look(holders: &[(&str, u64)], waiters: u64) -> Look {
        let holders = holders
            .iter()
            .map(|(holder, count)| ((*holder).to_owned(), *count));
        Look {
            holders: holders.collect(),
            count: None,
            waiters,
        }
    }

    #[test]
    fn the_end_of_a_latch_was_no_event() {
        let closed = Look {
            count: Some(1),
            ..Look::default()
        };
        let open = Look::default();
        assert_eq!(open.events_since(&closed), [Event::Count(0)]);
        assert_eq!(open.events_since(&open), []);
    }

    #[test]
    fn the_time_of_an_event_is_that_of_the_day() {
        for (seconds, text) in [
            (0, "00:00:00Z"),
            (86_399, "23:59:59Z"),
            (86_400 + 3_723, "01:02:03Z"),
        ] {
            assert_eq!(time_of_day(Duration::from_secs(seconds)), text);
        }
    }

    #[test]
    fn what_has_changed_is_an_event() {
        let free = Look::default();
        let held = look(&[("a", 1)], 0);
        let text = |text: &str| text.to_owned();
        assert_eq!(held.events_since(&free), [Event::Acquired(text("a"))]);
        assert_eq!(held.events_since(&held), []);
        let twice = look(&[("a", 2)], 1);
        assert_eq!(
            twice.events_since(&held),
            [Event::Reentered(text("a"), 2), Event::Waiters(1)]
        );
        let passed = look(&[("b", 1)], 1);
        assert_eq!(
            passed.events_since(&twice),
            [Event::Released(text("a")), Event::Acquired(text("b"))]
        );
        assert_eq!(
            free.events_since(&passed),
            [Event::Released(text("b")), Event::Waiters(0)]
        );
    }
}
