//! Which figures docs/performance.md shows, and how they are written.

use crate::{
    figures::{Figures, Scene, Unit, Waits},
    report::{Report, Run},
    sides::{BARE, BARE_DROPPING, BARE_ON_THREAD, DEDICATED, OURS},
};

/// A row of the table, and of the plot.
#[derive(Debug)]
pub(crate) struct Row {
    pub(crate) label: &'static str,
    scene: &'static str,
    side: &'static str,
    /// The scene in which other crates do the same.
    peers: Option<&'static str>,
}

/// One row: a side of a scene, and where other crates do the same.
const fn row(
    label: &'static str,
    scene: &'static str,
    side: &'static str,
    peers: Option<&'static str>,
) -> Row {
    Row {
        label,
        scene,
        side,
        peers,
    }
}

pub(crate) const ROWS: [Row; 20] = [
    row("1 task", "1 task", OURS, Some("1 task")),
    row("the same, guard dropped", "1 task", "dropping", None),
    row("the same, `dedicated_thread`", "1 task", DEDICATED, None),
    row("64 tasks, a key each", "64 tasks", OURS, Some("64 tasks")),
    row("the same, `dedicated_thread`", "64 tasks", DEDICATED, None),
    row(
        "256 tasks, a key each",
        "256 tasks",
        OURS,
        Some("256 tasks"),
    ),
    row("32 tasks, 1 key", "contended", OURS, Some("peers")),
    row(
        "the same, `hand_over` off",
        "contended",
        "a call each",
        None,
    ),
    row("the same, `FairLock`", "contended", "FairLock", None),
    row("the same, `FencedLock`", "contended", "FencedLock", None),
    row("hand-over between 2 clients", "handover", OURS, None),
    row("1 client of 4 tasks, 1 key", "clients", "1 client", None),
    row("2 clients of 4 tasks, 1 key", "clients", "2 clients", None),
    row("4 clients of 4 tasks, 1 key", "clients", "4 clients", None),
    row("8 clients of 4 tasks, 1 key", "clients", "8 clients", None),
    row("beside a client like Redisson's", "shared", OURS, None),
    row("the same, `FencedLock`", "shared, FencedLock", OURS, None),
    row("the same, `WriteLock`", "shared, WriteLock", OURS, None),
    row("1 task, embedded engine", "1 task, embedded", OURS, None),
    row(
        "64 tasks, embedded engine",
        "64 tasks, embedded",
        OURS,
        None,
    ),
];

/// The sides that are no other crates, besides the last one.
const NO_PEERS: [&str; 6] = [
    OURS,
    DEDICATED,
    "dropping",
    BARE,
    BARE_DROPPING,
    BARE_ON_THREAD,
];

impl Row {
    /// The label without marks.
    pub(crate) fn plain(&self) -> String {
        self.label.replace('`', "")
    }

    pub(crate) fn scene<'a>(&self, run: &'a Run) -> Option<&'a Scene> {
        run.scene(self.scene)
    }

    pub(crate) fn figures<'a>(&self, run: &'a Run) -> Option<&'a Figures> {
        self.scene(run)?.side(self.side)
    }

    /// The other crates.
    pub(crate) fn peers<'a>(&self, run: &'a Run) -> impl Iterator<Item = &'a Figures> {
        let scene = self.peers.and_then(|name| run.scene(name));
        let sides = scene.and_then(|scene| scene.sides.split_last());
        let others = sides.map_or(&[][..], |(_, others)| others).iter();
        others.filter(|side| !NO_PEERS.contains(&side.name.as_str()))
    }

    pub(crate) fn fastest_peer<'a>(&self, run: &'a Run) -> Option<&'a Figures> {
        let peers = self.peers(run);
        peers.max_by(|one, other| one.value.median.total_cmp(&other.value.median))
    }

    /// Whether any run has it.
    pub(crate) fn is_in(&self, report: &Report) -> bool {
        report.runs.iter().any(|run| self.figures(run).is_some())
    }
}

/// Three digits, with spaces between thousands.
pub(crate) fn count(value: f64) -> String {
    let rounded: f64 = format!("{value:.2e}").parse().unwrap_or(value);
    let digits = format!("{rounded:.0}");
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at) % 3 == 0 {
            text.push(' ');
        }
        text.push(digit);
    }
    text
}

pub(crate) fn micros(value: f64) -> String {
    match value {
        small if small < 1e3 => format!("{small:.0} us"),
        middle if middle < 1e4 => format!("{:.1} ms", middle / 1e3),
        large if large < 1e6 => format!("{:.0} ms", large / 1e3),
        huge => format!("{:.1} s", huge / 1e6),
    }
}

pub(crate) fn ratio(value: f64) -> String {
    match value {
        large if large >= 9.95 => format!("{large:.0}"),
        small => format!("{small:.2}"),
    }
}

pub(crate) fn value(figures: &Figures, scene: &Scene) -> String {
    let median = figures.value.median;
    match scene.unit {
        Unit::Pairs => format!("{} pairs/s", count(median)),
        Unit::Turns => format!("{} turns/s, {}", count(median), longest(&figures.waits)),
        Unit::Shared => {
            let theirs = scene.sides.last().map_or(0, |side| side.waits.max);
            let [max, theirs] = [figures.waits.max, theirs].map(|wait| micros(wait as f64));
            format!("{} turns/s, max {max}, theirs {theirs}", count(median))
        }
        Unit::Micros => micros(median),
    }
}

pub(crate) fn longest(waits: &Waits) -> String {
    let [p99, max] = [waits.p99, waits.max].map(|wait| micros(wait as f64));
    format!("p99 {p99}, max {max}")
}
