//! Which of many clients try for a lock at once when its release is announced.
//!
//! Every client hears of a release at about the same time. If the heads of all of them tried at once, one
//! would get the lock, and each other one would have sent a call for nothing. So a client that had the
//! lock lately lets those try that have waited longer. Nobody announces that the lock was taken, so it
//! tries by itself a moment later, unless another release is announced before.
//!
//! A client counts the releases that were announced since it had the lock. Where `n` clients take turns,
//! each has the lock at every `n`-th release, so one that has counted `n` is next and tries at once, and
//! at every other turn so does one that has counted `n - 1`: if there was one only, all would wait for it
//! if it is slow or has gone, and if there were two always, the slower one would never have the lock.
//!
//! At most so many take turns as received the last announcement of this client. Some of those may only
//! listen. So a client that gave way and finds the lock still free believes half of the others idle, and
//! takes that back slowly when others use what it leaves them. Of those that give way the one that has
//! waited longest tries first, and the one that released last: who gives way too much finds out.
//!
//! Who gives way tries after about two turns of the others, so that those who are next can have the lock
//! and release it.
//!
//! Pure state.
//!
//! # Invariants
//!
//! 1. A try is put off for [`AT_MOST`] after the last announcement.
//! 2. Nothing is put off unless two others listen, and nothing by a client that has not had the lock
//!    since it waits.

use std::time::{Duration, Instant};

use super::rivals::LONGEST;
use crate::clock::after;

/// The longest time for which a client gives way.
const AT_MOST: Duration = Duration::from_millis(5);
/// How many clients are believed to want the lock again when one has used what was left to it.
const REGAINED: f32 = 1.0 / 16.0;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Crowd {
    /// The number of releases that were announced since this client had the lock.
    heard: u32,
    /// How many other clients received the last announcement of this one.
    others: u32,
    /// How many of those are believed to want nothing.
    idle: f32,
    /// When a release was announced last.
    last: Option<Instant>,
    /// The time between two announcements, on average.
    turn: Duration,
    /// Whether it waits until it is next, this time.
    patient: bool,
    /// Until when this client lets others try.
    gives_way: Option<Instant>,
}

impl Crowd {
    /// A release was announced. `pause`: how long this client lets others try in any case, since it was
    /// its own release and there is one other at least. Returns how long it does.
    pub(super) fn heard(&mut self, now: Instant, mut pause: Option<Duration>) -> Option<Duration> {
        self.used();
        self.heard = self.heard.saturating_add(1);
        if let Some(last) = self.last.replace(now) {
            let turn = now.saturating_duration_since(last).min(2 * AT_MOST);
            self.turn = (self.turn * 3 + turn) / 4;
        }
        // Of two, the one that released lets the other try, and nobody else does.
        if self.others > 1 {
            let others = self.others();
            let next = others + if self.patient { 1.0 } else { 0.0 };
            let before = next - count(self.heard);
            if before >= 0.5 {
                // Those who are next have the lock and release it in the first half.
                pause = Some(
                    self.longest()
                        .mul_f32(0.5 + 0.5 * (before / others).min(1.0)),
                );
            } else if pause.is_some() {
                pause = Some(self.longest());
            }
        }
        self.gives_way = pause.map(|pause| after(now, pause));
        pause
    }

    /// Redis has answered the release: so many other clients received the announcement.
    pub(super) fn released(&mut self, others: u32) {
        self.others = others;
    }

    /// A try of this client was refused.
    pub(super) fn refused(&mut self) {
        self.used();
    }

    /// This client has the lock, by a call that was sent at `sent`.
    pub(super) fn acquired(&mut self, sent: Instant) {
        self.heard = 0;
        self.patient = !self.patient;
        if self.gives_way.take().is_some_and(|until| sent >= until) {
            self.idle = count(self.others) - self.others() / 2.0;
        }
    }

    /// Others have tried since it gave way, if it did.
    fn used(&mut self) {
        if self.gives_way.take().is_some() {
            self.idle = (self.idle - REGAINED).max(0.0);
        }
    }

    /// How long the last of those that give way does so.
    fn longest(&self) -> Duration {
        // What takes longer than the pause is not worth to wait for.
        match self.turn < AT_MOST {
            true => (2 * self.turn).clamp(LONGEST, AT_MOST),
            false => LONGEST,
        }
    }

    /// How many other clients take turns, as far as is known.
    fn others(&self) -> f32 {
        (count(self.others) - self.idle).max(0.0)
    }
}

/// A small number.
fn count(number: u32) -> f32 {
    u16::try_from(number).unwrap_or(u16::MAX).into()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::rivals::Rivals;
    use super::*;

    const WAY: Duration = Duration::from_micros(100);

    /// Clients that always want the lock, and one at most that tries at each announcement.
    struct World {
        clients: Vec<Rivals>,
        greedy: bool,
        /// Clients that listen and want nothing.
        idle: usize,
        now: Instant,
        /// `None`: of several that try, always the same is the fastest.
        random: Option<fastrand::Rng>,
        /// The last holder.
        holder: usize,
    }

    /// What some turns cost and brought.
    #[derive(Debug, Default)]
    struct Turns {
        tries: usize,
        /// Turns before which nobody tried at once.
        late: usize,
        /// The turns of each client, the greedy one last.
        of: Vec<usize>,
    }

    impl World {
        fn of(clients: usize, greedy: bool, idle: usize) -> Self {
            Self {
                clients: (0..clients).map(|_| Rivals::default()).collect(),
                greedy,
                idle,
                now: Instant::now(),
                random: Some(fastrand::Rng::with_seed(7)),
                holder: 0,
            }
        }

        fn take_turns(&mut self, turns: usize) -> Turns {
            let greedy = self.clients.len();
            let mut all = Turns {
                of: vec![0; greedy + 1],
                ..Turns::default()
            };
            for _ in 0..turns {
                self.now += LONGEST;
                let others = greedy - 1 + usize::from(self.greedy) + self.idle;
                if let Some(holder) = self.clients.get_mut(self.holder) {
                    holder.releasing(self.now, false);
                    holder.released(u32::try_from(others).unwrap());
                }
                self.now += WAY;
                let now = self.now;
                let pauses = self.clients.iter_mut().map(|one| one.heard(now));
                let pauses: Vec<_> = pauses.collect();
                let mut tries: Vec<_> = (0..greedy).filter(|at| pauses[*at].is_none()).collect();
                tries.extend(self.greedy.then_some(greedy));
                let mut sent = now;
                if tries.is_empty() {
                    all.late += 1;
                    let first = (0..greedy).min_by_key(|at| pauses[*at]).unwrap();
                    sent += pauses[first].unwrap();
                    tries.push(first);
                }
                all.tries += tries.len();
                let fastest = self
                    .random
                    .as_mut()
                    .map(|random| random.usize(..tries.len()));
                self.holder = tries[fastest.unwrap_or_default()];
                all.of[self.holder] += 1;
                for at in tries {
                    match self.clients.get_mut(at) {
                        Some(client) if at == self.holder => client.acquired(sent),
                        Some(client) => client.refused(),
                        None => {}
                    }
                }
            }
            all
        }
    }

    #[test]
    fn of_many_clients_two_or_three_try_at_once_and_all_get_their_share() {
        for clients in [4, 8, 30] {
            let mut world = World::of(clients, false, 0);
            let _ = world.take_turns(50 * clients);
            let turns = world.take_turns(100 * clients);
            assert!(turns.tries <= 250 * clients, "{clients}: {turns:?}");
            assert!(turns.late <= 2 * clients, "{clients}: {turns:?}");
            let of = &turns.of[..clients];
            assert!(of.iter().all(|of| (60..=140).contains(of)), "{turns:?}");
        }
    }

    #[test]
    fn a_client_that_is_slower_than_all_others_has_its_share() {
        for clients in [3, 4, 8, 30] {
            let mut world = World::of(clients, false, 0);
            world.random = None;
            let _ = world.take_turns(50 * clients);
            let turns = world.take_turns(100 * clients);
            assert!(turns.tries <= 250 * clients, "{clients}: {turns:?}");
            let of = &turns.of[..clients];
            assert!(of.iter().all(|of| *of >= 50), "{clients}: {turns:?}");
        }
    }

    /// Only who released lets the other try first, as ever.
    #[test]
    fn two_clients_do_not_give_way() {
        let turns = World::of(2, false, 0).take_turns(100);
        assert_eq!(turns.late, 0);
        assert!(turns.of[..2].iter().all(|of| *of >= 49), "{turns:?}");
    }

    /// It would have the lock more often than the others, which would give way more and more.
    #[test]
    fn a_client_that_gives_way_to_nobody_leaves_the_others_their_share() {
        for clients in [1, 2, 7] {
            let mut world = World::of(clients, true, 0);
            let _ = world.take_turns(50 * clients);
            let turns = world.take_turns(200 * clients);
            let (greedy, others) = (turns.of[clients], &turns.of[..clients]);
            assert!((60..=140 * clients).contains(&greedy), "{turns:?}");
            assert!(others.iter().all(|of| *of >= 60), "{turns:?}");
        }
    }

    #[test]
    fn clients_that_only_listen_do_not_make_the_others_late() {
        let mut world = World::of(3, false, 20);
        let _ = world.take_turns(100);
        let turns = world.take_turns(300);
        assert!(turns.late <= 30, "{turns:?}");
        assert!(turns.of[..3].iter().all(|of| *of >= 70), "{turns:?}");
    }

    /// Those that are left have to notice that nobody else tries.
    #[test]
    fn when_most_clients_go_the_others_are_late_for_a_few_turns_only() {
        for left in [1, 2, 3, 4] {
            let mut world = World::of(8, false, 0);
            let _ = world.take_turns(400);
            world.clients.truncate(left);
            world.holder = 0;
            world.idle = 8 - left;
            let turns = world.take_turns(30);
            assert!((1..=20).contains(&turns.late), "{left}: {turns:?}");
            let turns = world.take_turns(100 * left);
            assert!(turns.late <= 10 * left, "{left}: {turns:?}");
            assert!(turns.of[..left].iter().all(|of| *of >= 60), "{turns:?}");
        }
    }

    proptest! {
        #[test]
        fn nobody_gives_way_for_long_nor_without_others(
            steps in proptest::collection::vec((0..5u8, 0..9000u64, 0..50u32), 1..300)
        ) {
            let (mut crowd, mut now) = (Crowd::default(), Instant::now());
            let mut others = 0;
            for (step, micros, count) in steps {
                now += Duration::from_micros(micros);
                match step {
                    0 | 1 => if let Some(pause) = crowd.heard(now, None) {
                        prop_assert!(pause <= AT_MOST && others > 1);
                    },
                    2 => {
                        others = count;
                        crowd.released(count);
                    }
                    3 => crowd.refused(),
                    _ => crowd.acquired(now),
                }
            }
        }
    }
}
