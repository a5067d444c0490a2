//! The growing pause between tries.

use std::time::Duration;

/// How pauses grow.
#[derive(Debug)]
pub(crate) struct Growth {
    pub(crate) shortest: Duration,
    pub(crate) longest: Duration,
    /// By how much each is longer than the one before it.
    pub(crate) factor: f64,
    /// The fraction of a pause that is always taken. The rest is random.
    pub(crate) least: f64,
}

impl Growth {
    /// The pause after this many others.
    pub(crate) fn pause(&self, before: u32) -> Duration {
        let mut pause = self.shortest;
        for _ in 0..before {
            if pause >= self.longest {
                break;
            }
            let longer = pause.as_secs_f64() * self.factor;
            pause = Duration::try_from_secs_f64(longer).unwrap_or(Duration::MAX);
        }
        let pause = pause.min(self.longest);
        pause - pause.mul_f64((1.0 - self.least) * fastrand::f64())
    }
}

/// The pauses of one caller. Small, since every task that waits has one.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Pause {
    growth: &'static Growth,
    /// How often it has grown.
    grown: u32,
}

impl Pause {
    /// For background work after cancelled calls and dropped guards: 5 ms to half a second.
    pub(crate) const BACKGROUND: Self = Self::new(&Growth {
        shortest: Duration::from_millis(5),
        longest: Duration::from_millis(500),
        factor: 2.0,
        least: 1.0,
    });
    /// For the tasks that subscribe and that ask for the layout of a cluster: 10 ms to half a second.
    /// Randomised, so that clients that lost one server together do not reconnect together.
    pub(crate) const SUBSCRIBING: Self = Self::new(&Growth {
        shortest: Duration::from_millis(10),
        longest: Duration::from_millis(500),
        factor: 2.0,
        least: 0.5,
    });

    pub(crate) const fn new(growth: &'static Growth) -> Self {
        Self { growth, grown: 0 }
    }

    /// Whether no pause was taken yet.
    pub(crate) const fn is_first(&self) -> bool {
        self.grown == 0
    }

    pub(crate) const fn longest(&self) -> Duration {
        self.growth.longest
    }

    /// The pause before the next try.
    pub(crate) fn take(&mut self) -> Duration {
        self.take_up_to(self.growth.longest)
    }

    /// Takes the next pause, with another upper limit.
    pub(crate) fn take_up_to(&mut self, longest: Duration) -> Duration {
        let before = self.grown;
        self.grown = before.saturating_add(1);
        let growth = Growth {
            longest,
            ..*self.growth
        };
        growth.pause(before)
    }

    /// The try was answered: the next pause is the shortest.
    pub(crate) fn reset(&mut self) {
        self.grown = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn a_pause_doubles_up_to_the_longest_until_it_is_reset() {
        let mut pause = Pause::BACKGROUND;
        let ms = Duration::from_millis;
        let taken = [(); 9].map(|()| pause.take());
        assert_eq!(taken, [5, 10, 20, 40, 80, 160, 320, 500, 500].map(ms));
        pause.reset();
        assert_eq!(pause.take(), ms(5));
    }

    #[test]
    fn a_varied_pause_grows_as_it_would_if_it_were_not_varied() {
        const GROWTH: Growth = Growth {
            shortest: Duration::from_millis(4),
            longest: Duration::from_millis(10),
            factor: 1.5,
            least: 0.25,
        };
        let mut pause = Pause::new(&GROWTH);
        for longest in [4 * MS, 6 * MS, 9 * MS, 10 * MS, 10 * MS] {
            let taken = pause.take();
            assert!(longest / 4 <= taken && taken <= longest, "{taken:?}");
        }
        assert!(pause.take_up_to(8 * MS) <= 8 * MS);
    }
}
