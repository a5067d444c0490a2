//! Interleaved rounds, and what is read off them.
//!
//! A shared machine is faster at one moment than at another, so rates of different moments say
//! little. In a round the sides take turns of a few milliseconds, in an order that changes all the
//! time (A B, B A, A B …), so that whatever else the machine does meets all alike. What is compared
//! is the ratio of the rates of one round.

use std::time::Duration;

use crate::sides::Side;

/// The rates of one side, one a round, in pairs per second.
#[derive(Debug)]
pub(crate) struct Rates {
    pub(crate) name: &'static str,
    pub(crate) rounds: Vec<f64>,
}

/// How long it is measured.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Effort {
    pub(crate) rounds: usize,
    /// Turns of a side in a round.
    pub(crate) turns: usize,
    pub(crate) slice: Duration,
}

/// Has the sides work in turn, after a warm-up.
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
    /// Between two values of the sample, in proportion. A sample of nothing is all zeros.
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
