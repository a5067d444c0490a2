//! What is told of a comparison.

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

use crate::{rounds::Rounds, sides::Work};

/// A comparison.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Scene {
    pub(crate) name: String,
    pub(crate) about: String,
    pub(crate) unit: Unit,
    pub(crate) sides: Vec<Figures>,
}

/// What is compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Unit {
    /// Locks and unlocks per second.
    Pairs,
    /// The same, of a lock for which tasks wait.
    Turns,
    /// The same, where the last side takes turns at the same lock.
    Shared,
    /// The median wait.
    Micros,
}

/// The figures of a side.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Figures {
    pub(crate) name: String,
    /// Of the rounds, in the scene's unit.
    pub(crate) value: Quartiles,
    /// To the last side of the scene, if that is a baseline, round by round.
    pub(crate) ratio: Option<Quartiles>,
    /// Calls to the server for each pair.
    pub(crate) calls: Option<f64>,
    pub(crate) waits: Waits,
}

/// From the call to the lock, in microseconds.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Waits {
    pub(crate) p50: u64,
    pub(crate) p99: u64,
    pub(crate) max: u64,
}

/// The three quartiles of a sample.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(crate) struct Quartiles {
    pub(crate) low: f64,
    pub(crate) median: f64,
    pub(crate) high: f64,
}

impl Scene {
    pub(crate) fn new(name: &str, about: &str, unit: Unit, sides: &[Rounds]) -> Self {
        Self {
            name: name.into(),
            about: about.into(),
            unit,
            sides: sides
                .iter()
                .map(|side| Figures::of(side, unit, None))
                .collect(),
        }
    }

    /// The last side is the baseline.
    pub(crate) fn against_last(name: &str, about: &str, unit: Unit, sides: &[Rounds]) -> Self {
        let mut scene = Self::new(name, about, unit, sides);
        if let Some((baseline, others)) = sides.split_last() {
            let ratios = others
                .iter()
                .map(|side| Figures::of(side, unit, Some(baseline)));
            scene.sides.splice(..others.len(), ratios);
        }
        scene
    }

    pub(crate) fn side(&self, name: &str) -> Option<&Figures> {
        self.sides.iter().find(|side| side.name == name)
    }
}

impl Figures {
    fn of(side: &Rounds, unit: Unit, baseline: Option<&Rounds>) -> Self {
        let value = |work: &Work| match unit {
            Unit::Pairs | Unit::Turns | Unit::Shared => work.rate(),
            Unit::Micros => work.median(),
        };
        let ratio = |baseline: &Rounds| {
            let rounds = side.works.iter().zip(&baseline.works);
            Quartiles::of(rounds.map(|(ours, theirs)| value(ours) / value(theirs)))
        };
        let mut all = Work::nothing();
        side.works.iter().for_each(|work| all.add(work));
        let done = all.waits.len() as f64;
        Self {
            name: side.name.clone(),
            value: Quartiles::of(side.works.iter().map(value)),
            ratio: baseline.map(ratio),
            calls: side.calls.map(|calls| digits(calls as f64 / done)),
            waits: Waits::of(&all.waits),
        }
    }
}

impl Waits {
    fn of(waits: &Histogram<u64>) -> Self {
        Self {
            p50: waits.value_at_quantile(0.50),
            p99: waits.value_at_quantile(0.99),
            max: waits.max(),
        }
    }
}

impl Quartiles {
    /// Interpolates between two values of the sample. All are zero for an empty sample.
    pub(crate) fn of(sample: impl IntoIterator<Item = f64>) -> Self {
        let mut sample: Vec<f64> = sample.into_iter().collect();
        sample.sort_by(f64::total_cmp);
        let quartile = |quarters: usize| {
            let Some(last) = sample.len().checked_sub(1) else {
                return 0.0;
            };
            let (at, rest) = (last * quarters / 4, last * quarters % 4);
            let next = sample[(at + 1).min(last)];
            digits(sample[at] + (next - sample[at]) * [0.0, 0.25, 0.5, 0.75][rest])
        };
        Self {
            low: quartile(1),
            median: quartile(2),
            high: quartile(3),
        }
    }
}

/// Four digits, which is more than a measurement has.
fn digits(value: f64) -> f64 {
    format!("{value:.3e}").parse().unwrap_or(value)
}
