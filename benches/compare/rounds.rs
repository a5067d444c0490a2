//! Interleaved rounds, and what is read off them.
//!
//! A shared machine is faster at one moment than at another, so rates of different moments say
//! little. In a round every side works for a slice, then again in the opposite order (A B B A), and
//! what is compared is the ratio of the rates of one round. Who begins changes from round to round.

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
    pub(crate) slice: Duration,
}

/// Has the sides work in turn; the first rounds of the warm-up do not count.
pub(crate) async fn interleaved(sides: &mut [Box<dyn Side>], effort: Effort) -> Vec<Rates> {
    let mut rates: Vec<Rates> = sides
        .iter()
        .map(|side| Rates {
            name: side.name(),
            rounds: Vec::with_capacity(effort.rounds),
        })
        .collect();
    for side in &mut *sides {
        side.work(effort.slice).await;
    }
    let count = sides.len();
    for round in 0..effort.rounds {
        let forth = (0..count).map(|turn| (round + turn) % count);
        let order: Vec<usize> = forth.clone().chain(forth.rev()).collect();
        let mut sums = vec![0.0; count];
        for at in order {
            sums[at] += sides[at].work(effort.slice).await;
        }
        for (rates, sum) in rates.iter_mut().zip(sums) {
            rates.rounds.push(sum / 2.0);
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
