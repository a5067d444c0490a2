//! The growing pause between the tries of one caller.

use std::time::Duration;

const LONGEST: Duration = Duration::from_millis(500);

/// Doubles with each use, from the shortest to the longest.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Pause {
    shortest: Duration,
    next: Duration,
}

impl Pause {
    /// For callers that wait for Redis to come back: 10 ms to half a second.
    pub(crate) const FOREGROUND: Self = Self::new(Duration::from_millis(10));
    /// For what follows from cancelled calls and dropped guards: 5 ms to half a second.
    pub(crate) const BACKGROUND: Self = Self::new(Duration::from_millis(5));

    const fn new(shortest: Duration) -> Self {
        Self {
            shortest,
            next: shortest,
        }
    }

    /// The pause before the next try.
    pub(crate) fn take(&mut self) -> Duration {
        let pause = self.next;
        self.next = (pause * 2).min(LONGEST);
        pause
    }

    /// Redis has answered: the next pause is the shortest.
    pub(crate) fn reset(&mut self) {
        self.next = self.shortest;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pause_doubles_up_to_the_longest_until_it_is_reset() {
        let mut pause = Pause::FOREGROUND;
        let ms = Duration::from_millis;
        let taken = [(); 8].map(|()| pause.take());
        assert_eq!(taken, [10, 20, 40, 80, 160, 320, 500, 500].map(ms));
        pause.reset();
        assert_eq!(pause.take(), ms(10));
    }
}
