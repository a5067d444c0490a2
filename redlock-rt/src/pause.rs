//! The growing pause between tries.

use std::time::Duration;

const LONGEST: Duration = Duration::from_millis(500);

/// Grows with each use, from the shortest to the longest.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Pause {
    shortest: Duration,
    longest: Duration,
    /// By which factor it grows.
    growth: f32,
    /// Which part of it is taken at least; the rest is left to chance.
    least: f32,
    /// How often it has grown.
    grown: u32,
}

impl Pause {
    /// For callers that wait for Redis to come back: 10 ms to half a second.
    pub(crate) const FOREGROUND: Self = Self::new(Duration::from_millis(10), LONGEST);
    /// For what follows from cancelled calls and dropped guards: 5 ms to half a second.
    pub(crate) const BACKGROUND: Self = Self::new(Duration::from_millis(5), LONGEST);

    /// Doubles with each use.
    pub(crate) const fn new(shortest: Duration, longest: Duration) -> Self {
        Self {
            shortest,
            longest,
            growth: 2.0,
            least: 1.0,
            grown: 0,
        }
    }

    /// Grows by this factor instead.
    pub(crate) const fn growing(mut self, growth: f32) -> Self {
        self.growth = growth;
        self
    }

    /// Each pause is as long as it has grown, or shorter at random, down to this part of itself.
    pub(crate) const fn varied(mut self, least: f32) -> Self {
        self.least = least;
        self
    }

    pub(crate) const fn longest(&self) -> Duration {
        self.longest
    }

    /// The pause before the next try.
    pub(crate) fn take(&mut self) -> Duration {
        let mut pause = self.shortest;
        for _ in 0..self.grown {
            pause = pause.mul_f64(self.growth.into());
        }
        if pause < self.longest {
            self.grown += 1;
        }
        let least = f64::from(self.least);
        let part = least + (1.0 - least) * fastrand::f64();
        pause.min(self.longest).mul_f64(part)
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
        let mut pause = Pause::FOREGROUND;
        let ms = Duration::from_millis;
        let taken = [(); 8].map(|()| pause.take());
        assert_eq!(taken, [10, 20, 40, 80, 160, 320, 500, 500].map(ms));
        pause.reset();
        assert_eq!(pause.take(), ms(10));
    }

    #[test]
    fn a_varied_pause_grows_as_it_would_if_it_were_not_varied() {
        let mut pause = Pause::new(4 * MS, 10 * MS).growing(1.5).varied(0.25);
        for longest in [4 * MS, 6 * MS, 9 * MS, 10 * MS, 10 * MS] {
            let taken = pause.take();
            assert!(longest / 4 <= taken && taken <= longest, "{taken:?}");
        }
    }
}
