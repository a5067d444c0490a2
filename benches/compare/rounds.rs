//! Interleaved rounds, and their statistics.
//!
//! The speed of a shared machine changes, so rates of different moments say little. In a round the
//! sides take turns of a few milliseconds, in alternating order (A B, B A, A B …), so that other work
//! of the machine affects all alike. The comparison is the ratio of the rates of one round.

use std::time::Duration;

use crate::sides::Side;

/// The rates of one side, one per round, in pairs per second.
#[derive(Debug)]
pub(crate) struct Rates {
    pub(crate) name: &'static str,
    pub(crate) rounds: Vec<f64>,
}

/// The length of a measurement.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Effort {
    pub(crate) rounds: usize,
    /// Turns of a side in a round.
    pub(crate) turns: usize,
    pub(crate) slice: Duration,
}

/// Lets the sides work in turn, after a warm-up.
pub(crate) async fn interleaved(sides: &mut [Box<dyn Side>], effort: Effort) -> Vec<Rates> {
    let mut rates: Vec<Rates> = sides
        .iter()
        .map(|side| Rates {
            name: side.name(),
            rounds: Vec::with_capacity(effort.rounds),
        })
        .collect();
    for side in &mut *sides {
        side.work(effort.slice * 4).await;
    }
    let count = sides.len();
    for round in 0..effort.rounds {
        let mut sums = vec![0.0; count];
        for turn in round..round + effort.turns {
            for place in 0..count {
                let at = match turn % 2 {
                    0 => (turn / 2 + place) % count,
                    _ => (turn / 2 + count - 1 - place) % count,
                };
                sums[at] += sides[at].work(effort.slice).await;
            }
        }
        for (rates, sum) in rates.iter_mut().zip(sums) {
            rates.rounds.push(sum / effort.turns as f64);
        }
    }
    rates
}

/// The three quartiles of a sample.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Quartiles {
    pub(crate) low: f64,
    pub(crate) median: f64,
    pub(crate) high: f64,
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
            sample[at] + (next - sample[at]) * [0.0, 0.25, 0.5, 0.75][rest]
        };
        Self {
            low: quartile(1),
            median: quartile(2),
            high: quartile(3),
        }
    }
}

impl Rates {
    pub(crate) fn quartiles(&self) -> Quartiles {
        Quartiles::of(self.rounds.iter().copied())
    }

    /// The quartiles of the ratios to `other`, round by round.
    pub(crate) fn over(&self, other: &Self) -> Quartiles {
        let ratios = self.rounds.iter().zip(&other.rounds);
        Quartiles::of(ratios.map(|(ours, theirs)| ours / theirs))
    }
}
