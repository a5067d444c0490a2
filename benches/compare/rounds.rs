//! Interleaved rounds.
//!
//! The speed of a shared machine changes, so rates of different moments say little. In a round the
//! sides take turns of a few milliseconds, in alternating order (A B, B A, A B …), so that other work
//! of the machine affects all alike. The comparison is the ratio of the rates of one round.

use std::time::Duration;

use redis::aio::MultiplexedConnection;

use crate::sides::{Side, Work};

/// The shortest warm-up of a side.
const WARM_UP: Duration = Duration::from_millis(100);

/// The length of a measurement.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Effort {
    pub(crate) rounds: usize,
    /// Turns of a side in a round.
    pub(crate) turns: u32,
    pub(crate) slice: Duration,
}

impl Effort {
    /// As long, with one turn a round: for tasks that wait for each other.
    pub(crate) fn in_one(self) -> Self {
        Self {
            turns: 1,
            slice: self.slice * self.turns,
            ..self
        }
    }
}

/// What one side did, round by round.
#[derive(Debug)]
pub(crate) struct Rounds {
    pub(crate) name: String,
    pub(crate) works: Vec<Work>,
    /// Calls that the server has answered in all rounds.
    pub(crate) calls: Option<u64>,
}

impl Rounds {
    pub(crate) fn new(side: &dyn Side, effort: Effort) -> Self {
        Self {
            name: side.name().to_owned(),
            works: vec![Work::nothing(); effort.rounds],
            calls: None,
        }
    }
}

/// Lets the sides work in turn, after a warm-up. Calls are counted if there is a connection to ask.
pub(crate) async fn interleaved(
    sides: &mut [Box<dyn Side>],
    effort: Effort,
    mut server: Option<MultiplexedConnection>,
) -> Vec<Rounds> {
    let mut all: Vec<Rounds> = sides
        .iter()
        .map(|side| Rounds::new(&**side, effort))
        .collect();
    for side in &mut *sides {
        side.work(effort.slice.max(WARM_UP)).await;
    }
    let count = sides.len();
    for round in 0..effort.rounds {
        for turn in round..round + effort.turns as usize {
            for place in 0..count {
                let at = match turn % 2 {
                    0 => (turn / 2 + place) % count,
                    _ => (turn / 2 + count - 1 - place) % count,
                };
                let (side, rounds) = (&mut sides[at], &mut all[at]);
                let before = answered(&mut server, side.calls()).await;
                rounds.works[round].add(&side.work(effort.slice).await);
                let after = answered(&mut server, side.calls()).await;
                let more = after.zip(before).map(|(after, before)| after - before);
                rounds.calls = more.map(|more| rounds.calls.unwrap_or(0) + more);
            }
        }
    }
    all
}

/// How many of these commands the server has answered, also in scripts.
async fn answered(server: &mut Option<MultiplexedConnection>, commands: &[&str]) -> Option<u64> {
    if commands.is_empty() {
        return None;
    }
    let info: String = redis::cmd("INFO")
        .arg("commandstats")
        .query_async(server.as_mut()?)
        .await
        .expect("the server answers");
    let calls = |line: &str| {
        let (command, counts) = line.strip_prefix("cmdstat_")?.split_once(":calls=")?;
        let count: u64 = counts.split(',').next()?.parse().ok()?;
        commands.contains(&command).then_some(count)
    };
    Some(info.lines().filter_map(calls).sum())
}
