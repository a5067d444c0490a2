//! The goals, and whether a scene meets them.

use std::fmt::{self, Display, Formatter};

use self::{
    Bound::{AtLeast, AtMost},
    Of::{Calls, Longest, P99, Ratio, Share, Value},
};
use crate::{
    figures::{Figures, Scene},
    sides::{DEDICATED, OURS},
};

/// A bound for a figure of a side.
#[derive(Debug)]
pub(crate) struct Goal {
    scene: &'static str,
    side: &'static str,
    of: Of,
    bound: Bound,
}

/// What is bounded.
#[derive(Debug, Clone, Copy)]
enum Of {
    /// In the scene's unit.
    Value,
    /// To the baseline.
    Ratio,
    /// The percentage of what all sides do at the same time.
    Share,
    /// To the server, for each pair.
    Calls,
    /// Of the waits, in microseconds.
    P99,
    Longest,
}

#[derive(Debug, Clone, Copy)]
enum Bound {
    AtLeast(f64),
    AtMost(f64),
}

/// In place of a side: each side of the scene.
const EACH: &str = "each side";

const fn goal(scene: &'static str, side: &'static str, of: Of, bound: Bound) -> Goal {
    Goal {
        scene,
        side,
        of,
        bound,
    }
}

pub(crate) const GOALS: [Goal; 22] = [
    goal("1 task", OURS, Ratio, AtLeast(1.0)),
    goal("1 task", DEDICATED, Ratio, AtLeast(0.9)),
    goal("1 task", "dropping", Ratio, AtLeast(1.9)),
    goal("64 tasks", OURS, Ratio, AtLeast(2.0)),
    goal("256 tasks", OURS, Ratio, AtLeast(2.4)),
    goal("contended", OURS, Ratio, AtLeast(30.0)),
    goal("contended", OURS, P99, AtMost(2_000.0)),
    goal("contended", "FencedLock", Ratio, AtLeast(30.0)),
    goal("contended", "FencedLock", Calls, AtMost(0.1)),
    goal("contended", "FairLock", Calls, AtMost(2.0)),
    goal("handover", OURS, Ratio, AtMost(1.15)),
    goal("clients", "8 clients", Calls, AtMost(4.0)),
    goal("1 task, embedded", OURS, Value, AtLeast(150_000.0)),
    goal("64 tasks, embedded", OURS, Value, AtLeast(150_000.0)),
    goal("shared", EACH, Share, AtLeast(25.0)),
    goal("shared", EACH, Longest, AtMost(1e6)),
    goal("shared, a call each", EACH, Share, AtLeast(25.0)),
    goal("shared, a call each", EACH, Longest, AtMost(1e6)),
    goal("shared, FencedLock", EACH, Share, AtLeast(25.0)),
    goal("shared, FencedLock", EACH, Longest, AtMost(1e6)),
    goal("shared, WriteLock", EACH, Share, AtLeast(25.0)),
    goal("shared, WriteLock", EACH, Longest, AtMost(1e6)),
];

/// A goal of a scene that was measured.
#[derive(Debug)]
pub(crate) struct Judged {
    goal: &'static Goal,
    /// The worst, if there are several.
    value: f64,
}

impl Goal {
    /// `None` if the scene has no such figure.
    fn judge(&'static self, scene: &Scene) -> Option<Judged> {
        let sides = scene.sides.iter();
        let sides = sides.filter(|side| [EACH, &*side.name].contains(&self.side));
        let values = sides.filter_map(|side| self.of.told(side, scene));
        let value = values.reduce(|one, other| match self.bound {
            AtLeast(_) => one.min(other),
            AtMost(_) => one.max(other),
        })?;
        Some(Judged { goal: self, value })
    }
}

impl Of {
    /// As it is printed, so that nothing is missed by what nobody sees.
    fn told(self, side: &Figures, scene: &Scene) -> Option<f64> {
        let hundredths = |value: f64| (value * 100.0).round() / 100.0;
        Some(match self {
            Value => side.value.median.round(),
            Ratio => hundredths(side.ratio?.median),
            Share => {
                let all: f64 = scene.sides.iter().map(|side| side.value.median).sum();
                (side.value.median / all * 100.0).round()
            }
            Calls => hundredths(side.calls?),
            P99 => side.waits.p99 as f64,
            Longest => side.waits.max as f64,
        })
    }
}

impl Judged {
    pub(crate) fn met(&self) -> bool {
        match self.goal.bound {
            AtLeast(least) => self.value >= least,
            AtMost(most) => self.value <= most,
        }
    }
}

impl Scene {
    pub(crate) fn goals(&self) -> impl Iterator<Item = Judged> {
        let goals = GOALS.iter().filter(|goal| goal.scene == self.name);
        goals.filter_map(|goal| goal.judge(self))
    }
}

impl Display for Judged {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Goal {
            side, of, bound, ..
        } = self.goal;
        let (how, bound) = match bound {
            AtLeast(least) => ("at least", least),
            AtMost(most) => ("at most", most),
        };
        let value = self.value;
        let met = if self.met() { "met" } else { "MISSED" };
        let (what, unit) = match of {
            Value => ("", ""),
            Ratio => ("", " x"),
            Share => ("", " % of all"),
            Calls => ("", " calls"),
            P99 => ("p99 ", " us"),
            Longest => ("max ", " us"),
        };
        write!(f, "{side}: {what}{how} {bound}{unit}, is {value}: {met}")
    }
}

#[cfg(test)]
mod tests {
    use ::tests::RedisServer;
    use clap::Parser;

    use super::*;
    use crate::{
        Options,
        report::{Report, Run},
        rows::ROWS,
        sample::report,
        scenes,
    };

    /// What a run says of the goals of a scene.
    fn told(run: usize, scene: &str) -> Vec<String> {
        let report = report();
        let scene = report.runs[run].scene(scene).unwrap();
        scene.goals().map(|goal| goal.to_string()).collect()
    }

    #[test]
    fn a_goal_is_judged_in_each_run() {
        let [one, two] = [0, 1].map(|run| told(run, "1 task"));
        assert_eq!(one, ["redlock-rt: at least 1 x, is 1.01: met"]);
        assert_eq!(two, ["redlock-rt: at least 1 x, is 0.99: MISSED"]);
        let mut report = report();
        for run in &mut report.runs {
            run.scenes.retain(|scene| scene.name == "1 task");
        }
        assert!(!report.goals_are_met());
        report.runs.truncate(1);
        assert!(report.goals_are_met());
    }

    #[test]
    fn a_time_is_to_be_short() {
        let told = [told(0, "handover"), told(1, "contended")].concat();
        let expected = [
            "redlock-rt: at most 1.15 x, is 1.05: met",
            "redlock-rt: at least 30 x, is 66: met",
            "redlock-rt: p99 at most 2000 us, is 4100: MISSED",
        ];
        assert_eq!(told, expected);
    }

    #[test]
    fn the_side_that_has_least_of_a_shared_lock_counts() {
        let expected = [
            "each side: at least 25 % of all, is 41: met",
            "each side: max at most 1000000 us, is 1584127: MISSED",
        ];
        assert_eq!(told(0, "shared"), expected);
    }

    /// With the shortest of turns, in which no figure means anything.
    #[tokio::test]
    async fn each_goal_and_each_row_is_about_a_side_that_is_measured() {
        let shortest = ["compare", "--rounds", "1", "--turns", "1", "--slice", "1"];
        let options = Options::parse_from(shortest);
        let run = Run {
            threads: 1,
            load_before: None,
            load_after: None,
            scenes: scenes(&RedisServer::start(), &options).await,
        };
        for goal in &GOALS {
            let scene = run.scene(goal.scene);
            let judged = scene.and_then(|scene| goal.judge(scene));
            assert!(judged.is_some(), "{goal:?}");
        }
        let report = Report {
            runs: vec![run],
            ..report()
        };
        for row in &ROWS {
            assert!(row.is_in(&report), "{row:?}");
        }
    }
}
