//! Whether other clients want the lock that this client releases, and how long to let them try first.
//!
//! Every client hears of a release at about the same time, but the one that released hears of it
//! first, and its tasks are awake. Without a pause it wins nearly always, and clients that are
//! farther away, or slower (Java), starve. So if others listen to the channel, the head of this
//! client's queue pauses for one hand-over after each announcement of its own client.
//!
//! Listeners need not be waiters: a subscription lingers. So after a few pauses that nobody used,
//! most releases are followed by none, until somebody uses one.
//!
//! In a cluster, others may listen at another node, where they are not counted. So a release there is
//! always followed by a pause, if it ends a chain of hand-overs, during which others could not try.
//!
//! Where many clients want the lock, those pause too that had it lately; see [`Crowd`].
//!
//! Pure state. A pause only delays a try, so a wrong guess costs no more than [`LONGEST`].
//!
//! # Invariants
//!
//! 1. A message is followed by a pause only if this client's release was announced by it, as far as
//!    can be known, and each release by one pause at most; or if this client gives way to a crowd.
//! 2. Where nobody else listens there is no pause, except after an uncounted chain.
//! 3. A pause is between [`SHORTEST`] and [`LONGEST`], where no crowd wants the lock.

use std::time::{Duration, Instant};

use super::crowd::Crowd;

/// The shortest pause: others may be slower than the connection of this client.
const SHORTEST: Duration = Duration::from_micros(200);
/// The longest pause.
pub(super) const LONGEST: Duration = Duration::from_millis(2);
/// After so many pauses in a row that nobody used, most releases are followed by none,
const IN_VAIN: u32 = 3;
/// but one of so many is.
const ONE_OF: u32 = 16;
/// A message that comes later is not the one of the release.
const EXPECTED_FOR: Duration = Duration::from_millis(200);

/// See the module. Boxed once there is something to know, since each lock that is held has room for it.
#[derive(Debug, Default)]
pub(crate) struct Rivals(Option<Box<Known>>);

/// What is known of the other clients.
#[derive(Debug, Default)]
struct Known {
    /// Others received the last announcement of this client.
    listen: bool,
    /// Pauses in a row that nobody used.
    in_vain: u32,
    /// Releases in a row without a pause.
    unpaused: u32,
    /// How long an own announcement takes to be heard, on average.
    way: Option<Duration>,
    step: Step,
    crowd: Crowd,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Step {
    #[default]
    Idle,
    /// A release began then; its announcement is to be followed by a pause.
    Releasing(Instant),
    /// There is a pause, or a try after it.
    Pausing,
}

impl Rivals {
    /// This client begins to release, and has waiters that will hear of it. `unseen`: others could
    /// not try for a while, and may listen without being counted.
    pub(crate) fn releasing(&mut self, now: Instant, unseen: bool) {
        if unseen {
            self.0.get_or_insert_default();
        }
        if let Some(known) = &mut self.0 {
            known.releasing(now, unseen);
        }
    }

    /// Redis has answered the release: so many other clients received the announcement.
    pub(crate) fn released(&mut self, others: u32) {
        if others > 0 {
            self.0.get_or_insert_default();
        }
        if let Some(known) = &mut self.0 {
            known.released(others);
        }
    }

    /// A message has come. Returns the pause before the next try.
    pub(crate) fn heard(&mut self, now: Instant) -> Option<Duration> {
        self.0.as_mut()?.heard(now)
    }

    /// A try of this client was refused.
    pub(crate) fn refused(&mut self) {
        if let Some(known) = &mut self.0 {
            known.refused();
        }
    }

    /// This client has the lock, by a call that was sent at `sent`.
    pub(crate) fn acquired(&mut self, sent: Instant) {
        if let Some(known) = &mut self.0 {
            known.crowd.acquired(sent);
            known.goes_on();
        }
    }

    /// This client has the lock, which its own tasks hand over to each other.
    pub(crate) fn goes_on(&mut self) {
        if let Some(known) = &mut self.0 {
            known.goes_on();
        }
    }

    /// Whether others want the lock, as far as is known.
    pub(crate) fn compete(&self) -> bool {
        self.0.as_ref().is_some_and(|known| known.compete())
    }
}

impl Known {
    fn releasing(&mut self, now: Instant, unseen: bool) {
        self.step = Step::Idle;
        if !self.listen && !unseen {
            return;
        }
        self.unpaused += 1;
        if unseen || self.compete() || self.unpaused >= ONE_OF {
            self.unpaused = 0;
            self.step = Step::Releasing(now);
        }
    }

    fn released(&mut self, others: u32) {
        if others == 0 {
            *self = Self {
                way: self.way,
                ..Self::default()
            };
        }
        self.listen = others > 0;
        self.crowd.released(others);
    }

    fn heard(&mut self, now: Instant) -> Option<Duration> {
        let pause = self.pause(now);
        self.crowd.heard(now, pause)
    }

    fn pause(&mut self, now: Instant) -> Option<Duration> {
        match self.step {
            Step::Releasing(since) => {
                let way = now.saturating_duration_since(since);
                if way > EXPECTED_FOR {
                    self.step = Step::Idle;
                    return None;
                }
                let way = self.way.map_or(way, |before| (before * 3 + way) / 4);
                self.way = Some(way);
                self.step = Step::Pausing;
                // A hand-over is an announcement and a try, which takes about as long.
                Some((way * 2).clamp(SHORTEST, LONGEST))
            }
            // Somebody had the lock and released it.
            Step::Pausing => {
                self.used();
                None
            }
            Step::Idle => None,
        }
    }

    fn refused(&mut self) {
        self.crowd.refused();
        if self.step == Step::Pausing {
            self.used();
        }
    }

    fn goes_on(&mut self) {
        if self.step == Step::Pausing {
            self.in_vain = self.in_vain.saturating_add(1);
        }
        self.step = Step::Idle;
    }

    fn compete(&self) -> bool {
        self.listen && self.in_vain < IN_VAIN
    }

    fn used(&mut self) {
        self.in_vain = 0;
        self.step = Step::Idle;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const MS: Duration = Duration::from_millis(1);

    /// The pause after a release.
    fn turn(rivals: &mut Rivals, now: Instant, way: Duration, others: bool) -> Option<Duration> {
        rivals.releasing(now, false);
        let pause = rivals.heard(now + way);
        rivals.released(u32::from(others));
        pause
    }

    #[test]
    fn others_that_listen_try_first_for_one_hand_over() {
        let (mut rivals, now) = (Rivals::default(), Instant::now());
        assert_eq!(turn(&mut rivals, now, MS / 4, true), None, "not known yet");
        assert!(rivals.compete());
        assert_eq!(turn(&mut rivals, now, MS / 4, true), Some(MS / 2));
        rivals.refused();
        assert_eq!(turn(&mut rivals, now, 50 * MS, true), Some(LONGEST));
    }

    #[test]
    fn where_nobody_else_listens_there_is_no_pause() {
        let (mut rivals, now) = (Rivals::default(), Instant::now());
        let _ = turn(&mut rivals, now, MS, true);
        assert!(turn(&mut rivals, now, MS, false).is_some(), "not known yet");
        assert_eq!(turn(&mut rivals, now, MS, false), None);
        assert!(!rivals.compete());
    }

    #[test]
    fn a_release_of_another_client_is_followed_by_no_pause() {
        let (mut rivals, now) = (Rivals::default(), Instant::now());
        rivals.released(1);
        assert_eq!(rivals.heard(now), None);
        assert!(turn(&mut rivals, now, MS, true).is_some());
        assert_eq!(rivals.heard(now + MS), None, "whoever tried first released");
    }

    #[test]
    fn listeners_that_never_try_cost_a_pause_now_and_then() {
        let (mut rivals, now) = (Rivals::default(), Instant::now());
        rivals.released(1);
        let mut pauses = 0;
        for _ in 0..160 {
            pauses += u32::from(turn(&mut rivals, now, MS, true).is_some());
            rivals.acquired(now);
        }
        assert!((10..=14).contains(&pauses), "{pauses}");
        assert!(!rivals.compete());
        while turn(&mut rivals, now, MS, true).is_none() {
            rivals.acquired(now);
        }
        rivals.refused();
        assert!(rivals.compete());
        assert!(turn(&mut rivals, now, MS, true).is_some());
    }

    #[test]
    fn where_others_are_not_counted_each_chain_is_followed_by_a_pause() {
        let (mut rivals, now) = (Rivals::default(), Instant::now());
        for _ in 0..40 {
            rivals.releasing(now, true);
            assert_eq!(rivals.heard(now + MS / 2), Some(MS));
            rivals.acquired(now);
            rivals.released(0);
            assert!(!rivals.compete());
            assert_eq!(turn(&mut rivals, now, MS, false), None, "no chain");
        }
    }

    proptest! {
        /// Whatever happens in whatever order: a pause is short, and there are no more of them than
        /// releases.
        #[test]
        fn pauses_are_short_and_no_more_than_releases(
            steps in proptest::collection::vec((0..7u8, 0..400u64), 1..200)
        ) {
            let (mut rivals, mut now) = (Rivals::default(), Instant::now());
            let (mut releases, mut pauses, mut listen) = (0, 0, false);
            for (step, ms) in steps {
                now += Duration::from_millis(ms);
                match step {
                    0 | 6 => {
                        rivals.releasing(now, step == 6);
                        releases += u32::from(listen || step == 6);
                    }
                    1 | 2 => {
                        listen = step == 1;
                        rivals.released(u32::from(listen));
                    }
                    3 => if let Some(pause) = rivals.heard(now) {
                        pauses += 1;
                        prop_assert!(pause <= LONGEST && pauses <= releases);
                    },
                    4 => rivals.refused(),
                    _ => rivals.acquired(now),
                }
            }
        }
    }
}
