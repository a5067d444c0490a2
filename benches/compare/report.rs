//! All figures of a run, for people and for programs.

use std::fmt::{self, Display, Formatter};

use serde::{Deserialize, Serialize};

use crate::{
    figures::{Figures, Quartiles, Scene, Unit},
    held::Held,
    machine::Machine,
    scenes::some,
    table::of_held,
};

/// Everything that was measured.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Report {
    pub(crate) machine: Machine,
    pub(crate) rounds: usize,
    pub(crate) turns: u32,
    /// In milliseconds.
    pub(crate) slice: u64,
    pub(crate) runs: Vec<Run>,
    pub(crate) held: Vec<Held>,
}

/// What was measured with one runtime.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Run {
    pub(crate) threads: usize,
    pub(crate) load_before: Option<f64>,
    pub(crate) load_after: Option<f64>,
    pub(crate) scenes: Vec<Scene>,
}

impl Report {
    pub(crate) fn goals_are_met(&self) -> bool {
        let mut scenes = self.runs.iter().flat_map(|run| &run.scenes);
        scenes.all(|scene| scene.goals().all(|goal| goal.met()))
    }

    pub(crate) fn json(&self) -> String {
        let json = serde_json::to_string_pretty(self);
        json.expect("all keys are texts") + "\n"
    }
}

impl Run {
    pub(crate) fn scene(&self, name: &str) -> Option<&Scene> {
        self.scenes.iter().find(|scene| scene.name == name)
    }

    pub(crate) fn runtime(&self) -> String {
        some(self.threads as u64, "thread")
    }
}

impl Display for Report {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.machine)?;
        writeln!(
            f,
            "{} rounds of {} x {} ms a side; medians, with the quartiles in brackets",
            self.rounds, self.turns, self.slice
        )?;
        self.runs.iter().try_for_each(|run| write!(f, "\n{run}"))?;
        match self.held.is_empty() {
            true => Ok(()),
            false => write!(f, "\n{}", of_held(&self.held)),
        }
    }
}

impl Display for Run {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let load =
            |load: Option<f64>| load.map_or_else(|| "unknown".into(), |load| load.to_string());
        writeln!(
            f,
            "=== a runtime of {}, load of the machine {} before, {} after",
            self.runtime(),
            load(self.load_before),
            load(self.load_after),
        )?;
        self.scenes
            .iter()
            .try_for_each(|scene| write!(f, "\n{scene}"))
    }
}

impl Display for Scene {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}: {}", self.name, self.about)?;
        for side in &self.sides {
            side.write(self.unit, f)?;
        }
        self.goals()
            .try_for_each(|goal| writeln!(f, "  goal of {goal}"))
    }
}

impl Figures {
    fn write(&self, unit: Unit, f: &mut Formatter<'_>) -> fmt::Result {
        let Quartiles { low, median, high } = self.value;
        let of = unit.name();
        write!(
            f,
            "  {:<22} {median:>8.0} {of:<7} [{low:.0} {high:.0}]",
            self.name
        )?;
        if let Some(Quartiles { low, median, high }) = self.ratio {
            write!(f, "  {median:.3} x [{low:.3} {high:.3}]")?;
        }
        if let Some(calls) = self.calls {
            write!(f, "  {calls:.3} calls each")?;
        }
        let waits = &self.waits;
        writeln!(
            f,
            "  p50 {} us, p99 {} us, max {} us",
            waits.p50, waits.p99, waits.max
        )
    }
}

impl Unit {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Pairs => "pairs/s",
            Self::Turns | Self::Shared => "turns/s",
            Self::Micros => "us",
        }
    }
}
