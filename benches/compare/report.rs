//! The figures, for people and for programs.

use std::{
    fmt::{self, Display, Formatter},
    io::{self, Write},
};

use hdrhistogram::Histogram;
use serde_json::{Map, Value, json};

use crate::{
    contention::{Crowd, Shared},
    machine::{self, Machine},
    rounds::{Effort, Quartiles, Rates},
    scenes::Scene,
};

/// Everything that was measured.
#[derive(Debug)]
pub(crate) struct Report {
    machine: Machine,
    effort: Effort,
    current_thread: bool,
    load_before: Option<f64>,
    pub(crate) load_after: Option<f64>,
    pub(crate) scenes: Vec<Scene>,
    /// The last is the baseline.
    pub(crate) contended: Vec<Crowd>,
    pub(crate) shared: Vec<Shared>,
    pub(crate) handover: Option<Histogram<u64>>,
}

impl Report {
    pub(crate) fn new(machine: Machine, effort: Effort, current_thread: bool) -> Self {
        Self {
            machine,
            effort,
            current_thread,
            load_before: machine::load(),
            load_after: None,
            scenes: Vec::new(),
            contended: Vec::new(),
            shared: Vec::new(),
            handover: None,
        }
    }

    pub(crate) fn goals_are_met(&self) -> bool {
        self.scenes.iter().all(|scene| scene.met() != Some(false))
    }

    pub(crate) fn print(&self, json: bool) {
        let text = match json {
            true => format!("{:#}\n", self.json()),
            false => self.to_string(),
        };
        // The reader may have closed the pipe.
        let _ = io::stdout().write_all(text.as_bytes());
    }

    fn over_baseline(&self, crowd: &Crowd) -> Option<Quartiles> {
        let baseline = &self.contended.last()?.rates;
        (baseline.name != crowd.rates.name).then(|| crowd.rates.over(baseline))
    }

    fn runtime(&self) -> &'static str {
        match self.current_thread {
            true => "current_thread",
            false => "multi_thread",
        }
    }

    fn json(&self) -> Value {
        let scenes = self.scenes.iter();
        let contended = self.contended.iter().map(|crowd| {
            let side = json!({
                "turns_per_second": quartiles(crowd.rates.quartiles()),
                "ratio": self.over_baseline(crowd).map(quartiles),
                "calls_per_turn": crowd.commands,
                "wait_p50_us": crowd.waits.value_at_quantile(0.50),
                "wait_p99_us": crowd.waits.value_at_quantile(0.99),
                "wait_max_us": crowd.waits.max(),
            });
            (crowd.rates.name.to_owned(), side)
        });
        let shared = self.shared.iter().map(|shared| {
            let side = json!({
                "turns": shared.turns,
                "share_of_other": quartiles(shared.share),
                "longest_wait_ms": shared.longest_wait,
                "longest_wait_of_other_ms": shared.longest_wait_of_other,
            });
            (shared.name.to_owned(), side)
        });
        let handover = self.handover.as_ref().map(|latencies| {
            json!({
                "turns": latencies.len(),
                "p50_us": latencies.value_at_quantile(0.50),
                "p99_us": latencies.value_at_quantile(0.99),
                "max_us": latencies.max(),
            })
        });
        json!({
            "machine": self.machine.json(),
            "runtime": self.runtime(),
            "rounds": self.effort.rounds,
            "turns": self.effort.turns,
            "slice_ms": self.effort.slice.as_millis(),
            "load_before": self.load_before,
            "load_after": self.load_after,
            "scenes": scenes.map(|scene| (scene.name.to_owned(), scene.json())).collect::<Map<_, _>>(),
            "contended": contended.collect::<Map<_, _>>(),
            "shared": shared.collect::<Map<_, _>>(),
            "handover": handover,
        })
    }
}

impl Scene {
    fn baseline(&self) -> Option<&Rates> {
        self.rates.last()
    }

    fn ratio(&self) -> Option<Quartiles> {
        Some(self.rates.first()?.over(self.baseline()?))
    }

    fn met(&self) -> Option<bool> {
        Some(self.ratio()?.median >= self.goal?)
    }

    fn json(&self) -> Value {
        let side = |rates: &Rates| {
            let over = self
                .baseline()
                .map(|baseline| quartiles(rates.over(baseline)));
            let side = json!({
                "pairs_per_second": quartiles(rates.quartiles()),
                "ratio": over,
            });
            (rates.name.to_owned(), side)
        };
        json!({
            "about": self.about,
            "goal": self.goal,
            "met": self.met(),
            "sides": self.rates.iter().map(side).collect::<Map<_, _>>(),
        })
    }
}

fn quartiles(of: Quartiles) -> Value {
    json!({ "q1": of.low, "median": of.median, "q3": of.high })
}

impl Display for Report {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Machine {
            cores,
            cpu,
            kernel,
            redis,
        } = &self.machine;
        writeln!(
            f,
            "{cores} cores of {cpu}, Linux {kernel}, redis-server {redis}"
        )?;
        let load =
            |load: Option<f64>| load.map_or_else(|| "unknown".into(), |load| load.to_string());
        writeln!(
            f,
            "{} runtime, {} rounds of {} x {:?} a side, load of the machine {} before, {} after",
            self.runtime(),
            self.effort.rounds,
            self.effort.turns,
            self.effort.slice,
            load(self.load_before),
            load(self.load_after),
        )?;
        writeln!(f, "medians, with the quartiles in brackets")?;
        for scene in &self.scenes {
            write!(f, "\n{scene}")?;
        }
        if !self.contended.is_empty() {
            writeln!(f, "\ncontended: 32 tasks of one process, one key")?;
        }
        for crowd in &self.contended {
            let Quartiles { low, median, high } = crowd.rates.quartiles();
            write!(
                f,
                "  {:<14} {median:>9.0} turns/s [{low:.0} {high:.0}], {:.3} calls a turn, wait p50 {} us, \
                 p99 {} us",
                crowd.rates.name,
                crowd.commands,
                crowd.waits.value_at_quantile(0.50),
                crowd.waits.value_at_quantile(0.99),
            )?;
            match self.over_baseline(crowd) {
                Some(Quartiles { low, median, high }) => {
                    writeln!(f, "  {median:.2} x [{low:.2} {high:.2}]")?;
                }
                None => writeln!(f)?,
            }
        }
        if !self.shared.is_empty() {
            writeln!(
                f,
                "\nshared: a saturated lock, with a client like Redisson's"
            )?;
        }
        for shared in &self.shared {
            let Quartiles { low, median, high } = shared.share;
            writeln!(
                f,
                "  {:<14} {:>9.0} turns, {:.0} % the other's [{:.0} {:.0}], longest wait {:.0} ms, the \
                 other's {:.0} ms",
                shared.name,
                shared.turns,
                median * 100.0,
                low * 100.0,
                high * 100.0,
                shared.longest_wait,
                shared.longest_wait_of_other,
            )?;
        }
        if let Some(latencies) = &self.handover {
            writeln!(
                f,
                "\nhandover: from unlock in one client to the guard in another"
            )?;
            writeln!(
                f,
                "  redlock-rt     p50 {} us, p99 {} us, max {} us of {} hand-overs",
                latencies.value_at_quantile(0.50),
                latencies.value_at_quantile(0.99),
                latencies.max(),
                latencies.len()
            )?;
        }
        Ok(())
    }
}

impl Display for Scene {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}: {}", self.name, self.about)?;
        for rates in &self.rates {
            let Quartiles { low, median, high } = rates.quartiles();
            write!(
                f,
                "  {:<14} {median:>9.0} pairs/s [{low:.0} {high:.0}]",
                rates.name
            )?;
            match self.baseline() {
                Some(baseline) if baseline.name != rates.name => {
                    let ratio = rates.over(baseline);
                    writeln!(
                        f,
                        "  {:.3} of {} [{:.3} {:.3}]",
                        ratio.median, baseline.name, ratio.low, ratio.high
                    )?;
                }
                _ => writeln!(f)?,
            }
        }
        if let (Some(goal), Some(met)) = (self.goal, self.met()) {
            let met = if met { "met" } else { "MISSED" };
            writeln!(f, "  goal: at least {goal:.2}: {met}")?;
        }
        Ok(())
    }
}
