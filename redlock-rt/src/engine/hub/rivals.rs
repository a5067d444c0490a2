//! When a client tries for a lock, or a permit, that other clients want too.
//!
//! Every client receives the message of a release at about the same time, but the releasing client knows first, and
//! its tasks are awake. It would win nearly always, and clients that are farther away, or slower (Java), would
//! starve. And if all tried at once, all but one would have sent a call for nothing. So each client counts the
//! releases that were announced since it had the lock. If `n` clients take turns, each has the lock at every `n`-th
//! release. So a client that has counted `n` is next and tries at once. The others *yield*: each tries after a pause
//! of two turns or more, unless another release is announced before. The client with the highest count has the
//! shortest pause. That the lock was taken is not announced. A caller that comes to an empty queue yields as if it
//! had waited since the last announcement.
//!
//! `n` is the number of connections that received the last announcement of this client, without those that it
//! assumes to be *idle*, since a subscription lingers. A client that finds the lock still free after a pause assumes
//! nearly all that it has waited for to be idle. It reduces that a little when others use the turns that they are
//! left, or are faster. If all are idle, one pause now and then is long enough for the slowest. If some are, one of
//! them is left a turn now and then.
//!
//! One other connection may serve many threads of Java. So a client that is next yields for one more turn. If that
//! is in vain, it does so less and less often.
//!
//! In a cluster, others may listen at another node, where they are not counted. So after a chain of hand-overs,
//! during which others could not try, at least one other client is assumed.
//!
//! Pure state, one for each channel to which the client is subscribed. It ends with the subscription, which lingers.
//! A pause only delays a try.
//!
//! # Invariants
//!
//! 1. If no other client has received the last two announcements, no try is delayed.
//! 2. A try is delayed for at most four times [`LONGEST`] after the last announcement, and after the release of this
//!    client whose announcement is still to come.

use std::time::{Duration, Instant};

use crate::clock::after;

/// The shortest pause of the first client that yields: others may be slower than this client.
const SHORTEST: Duration = Duration::from_millis(1);
/// The longest pause of that client.
const LONGEST: Duration = Duration::from_millis(16);
/// The last client that yields pauses for this many times more.
const SPREAD: u32 = 3;
/// For how long clients that are assumed to be idle are not waited for.
const TRUSTED: Duration = Duration::from_millis(128);
/// The longest time after which the one other connection gets one more turn.
const SELDOM: Duration = Duration::from_secs(4);
/// An assumption about a client changes by one part in this many.
const PARTS: u32 = 4;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Rivals {
    /// How many other clients received the last announcement of this one.
    others: u32,
    /// No other client did, for the first time.
    gone: bool,
    /// How many of those are assumed to be idle, in [`PARTS`].
    idle: u32,
    /// The number of releases that were announced since this client had the lock.
    heard: u32,
    /// When a release was announced last.
    last: Option<Instant>,
    /// The time between two announcements, on average.
    turn: Duration,
    /// When this client has released, if that is still to be announced.
    releasing: Option<Instant>,
    /// Until when this client yields, and the reason.
    yields: Option<(Instant, Yield)>,
    /// Others have used a pause since this client had the lock.
    used: bool,
    /// Until when clients that are assumed to be idle are not waited for.
    trusted: Option<Instant>,
    /// Until when the one other connection gets no further turn, and how long that was last.
    eager: Option<Instant>,
    gap: Duration,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Yield {
    /// This many clients should have the lock before.
    Before(u32),
    /// All are assumed to be idle.
    Probe,
    /// The one other connection has had its turn.
    Further,
}

impl Rivals {
    /// This client begins to release. `unseen`: others could not try for a while, and may listen without being
    /// counted.
    pub(crate) fn releasing(&mut self, now: Instant, unseen: bool) {
        self.others = self.others.max(u32::from(unseen));
        self.releasing = Some(now).filter(|_| self.others > 0);
    }

    /// Redis has answered the release: this many other clients received the announcement.
    pub(super) fn released(&mut self, others: u32) {
        // Redisson's clients subscribe for each wait, and may be about to do so.
        let gone = others == 0 && self.others > 0;
        if gone && !std::mem::replace(&mut self.gone, true) {
            return;
        }
        match others {
            0 => *self = Self::default(),
            _ => {
                self.gone = false;
                self.others = others;
                self.idle = self.idle.min(others.saturating_mul(PARTS));
            }
        }
    }

    /// A message has come, which lets this many clients proceed. Returns the pause before this client tries.
    pub(super) fn heard(&mut self, now: Instant, free: u32) -> Option<Duration> {
        self.was_used();
        let own = self.releasing.take().is_some();
        self.heard = self.heard.saturating_add(1);
        if let Some(last) = self.last.replace(now) {
            // One turn that no client used does not make the next pauses long.
            let most = (self.turn * 2).clamp(SHORTEST, LONGEST);
            let turn = now.saturating_duration_since(last).min(most);
            self.turn = (self.turn * 3 + turn) / 4;
        }
        if self.others == 0 {
            return None;
        }
        let longest = (self.turn * 2).clamp(SHORTEST, LONGEST);
        let due = self.heard.saturating_add(free - 1);
        let before = self.clients().saturating_sub(due);
        let is_over = |until| is_over(until, now);
        let (to, pause) = if before > 0 {
            let all = self.others.saturating_add(1);
            let part = longest * SPREAD * all.saturating_sub(due + 1) / all;
            (Yield::Before(before), longest + part)
        } else if own && self.heard == 1 && is_over(self.trusted) {
            (Yield::Probe, LONGEST)
        } else if self.others == 1 && self.heard == 2 && free == 1 && is_over(self.eager) {
            (Yield::Further, (longest / 2).max(SHORTEST))
        } else {
            return None;
        };
        self.yields = Some((after(now, pause), to));
        Some(pause)
    }

    /// A caller comes, and no task waits here: when it tries; `None`: at once.
    pub(super) fn asks(&self, now: Instant) -> Option<Instant> {
        let announced = || self.yields.map(|(until, _)| until);
        let until = match self.releasing {
            Some(since) => Some(after(since, LONGEST)),
            None => announced(),
        };
        until.filter(|until| self.others > 0 && *until > now)
    }

    /// A try of this client was refused.
    pub(crate) fn refused(&mut self) {
        self.releasing = None;
        if !self.was_used() {
            self.idle = self.idle.saturating_sub(1);
        }
    }

    /// This client has the lock, by a call that was sent at `sent`.
    pub(crate) fn acquired(&mut self, sent: Instant) {
        match self.yields.take() {
            Some((until, to)) if sent >= until => self.in_vain(until, to),
            _ if self.used && self.others == 1 => self.idle = self.idle.saturating_sub(1),
            // With several, those assumed to be idle come back by being faster, and one after a while.
            _ if self.used && is_over(self.trusted, sent) => {
                self.idle = self.idle.saturating_sub(PARTS);
                self.trust(sent);
            }
            _ => {}
        }
        self.heard = 0;
        self.used = false;
        self.releasing = None;
    }

    /// Whether others received the last announcement.
    pub(crate) fn listen(&self) -> bool {
        self.others > 0
    }

    /// Whether others want the lock, as far as this client knows.
    pub(crate) fn compete(&self) -> bool {
        self.clients() > 1
    }

    /// How many clients take turns, as far as this client knows.
    fn clients(&self) -> u32 {
        let all = self.others.saturating_mul(PARTS);
        (all - self.idle).saturating_add(PARTS / 2) / PARTS + 1
    }

    /// Others have tried since this client yielded, if it did.
    fn was_used(&mut self) -> bool {
        let Some((_, to)) = self.yields.take() else {
            return false;
        };
        match to {
            Yield::Before(_) => {}
            Yield::Probe => self.idle = 0,
            Yield::Further => self.gap = Duration::ZERO,
        }
        self.used = true;
        true
    }

    /// Stops waiting for clients that are assumed to be idle. All clients together check one of them now and then.
    fn trust(&mut self, from: Instant) {
        self.trusted = Some(after(from, TRUSTED * self.others));
    }

    fn in_vain(&mut self, until: Instant, to: Yield) {
        self.trust(until);
        match to {
            Yield::Before(clients) => {
                let all = self.others.saturating_mul(PARTS);
                let idle = (clients.saturating_mul(PARTS) + 1).saturating_sub(PARTS);
                self.idle = self.idle.saturating_add(idle).min(all);
            }
            Yield::Probe => {}
            Yield::Further => {
                self.gap = (self.gap * 2).clamp(TRUSTED, SELDOM);
                self.eager = Some(after(until, self.gap));
            }
        }
    }
}

/// Whether it is later than that, if there is such a time.
fn is_over(until: Option<Instant>, now: Instant) -> bool {
    until.is_none_or(|until| until <= now)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const MS: Duration = Duration::from_millis(1);
    const HOLD: Duration = MS;
    const WAY: Duration = Duration::from_micros(200);

    /// Clients that always want the lock, of which each hears of a release at the same time.
    struct World {
        clients: Vec<Rivals>,
        /// The last of these tries at each announcement.
        greedy: bool,
        /// The first is slower than all others.
        slow: bool,
        /// Clients that listen and want nothing.
        idle: usize,
        now: Instant,
        random: fastrand::Rng,
        /// The last holder.
        holder: usize,
    }

    /// The costs and results of some turns.
    #[derive(Debug, Default)]
    struct Turns {
        tries: usize,
        /// Turns before which no client tried at once.
        late: usize,
        of: Vec<usize>,
    }

    impl World {
        fn of(clients: usize) -> Self {
            Self {
                clients: (0..clients).map(|_| Rivals::default()).collect(),
                greedy: false,
                slow: false,
                idle: 0,
                now: Instant::now(),
                random: fastrand::Rng::with_seed(7),
                holder: 0,
            }
        }

        fn take_turns(&mut self, turns: usize) -> Turns {
            let all = self.clients.len();
            let mut found = Turns {
                of: vec![0; all],
                ..Turns::default()
            };
            for _ in 0..turns {
                self.now += HOLD;
                let others = u32::try_from(all - 1 + self.idle).unwrap();
                self.clients[self.holder].releasing(self.now, false);
                self.clients[self.holder].released(others);
                self.now += WAY;
                let now = self.now;
                let pauses = self.clients.iter_mut().map(|one| one.heard(now, 1));
                let mut pauses: Vec<_> = pauses.map(Option::unwrap_or_default).collect();
                if self.greedy {
                    pauses[all - 1] = Duration::ZERO;
                }
                let first = pauses.iter().min().copied().unwrap();
                found.late += usize::from(!first.is_zero());
                // The clients that have tried before they could know that another one had it.
                let tried = |at: &usize| pauses[*at] <= first + WAY;
                let mut tries: Vec<_> = (0..all).filter(tried).collect();
                if self.slow && tries.len() > 1 {
                    tries.retain(|at| *at != 0);
                }
                found.tries += tries.len();
                self.now += first;
                self.holder = tries[self.random.usize(..tries.len())];
                found.of[self.holder] += 1;
                for at in tries {
                    match at == self.holder {
                        true => self.clients[at].acquired(self.now),
                        false => self.clients[at].refused(),
                    }
                }
            }
            found
        }
    }

    #[test]
    fn a_server_that_names_the_most_receivers_is_believed_without_a_panic() {
        let mut rivals = Rivals::default();
        rivals.released(u32::MAX);
        rivals.heard(crate::clock::now(), 1);
        assert!(rivals.compete());
    }

    #[test]
    fn one_of_many_clients_tries_at_once_and_all_have_their_share() {
        for clients in [2, 3, 8, 30, 100] {
            let mut world = World::of(clients);
            let _ = world.take_turns(50 * clients);
            let turns = world.take_turns(100 * clients);
            assert!(turns.tries <= 102 * clients, "{clients}: {turns:?}");
            assert!(turns.late <= 2 * clients, "{clients}: {turns:?}");
            assert!(
                turns.of.iter().all(|of| (95..=105).contains(of)),
                "{turns:?}"
            );
        }
    }

    #[test]
    fn a_client_that_is_slower_than_all_others_has_its_share() {
        for clients in [2, 3, 8, 30] {
            let mut world = World::of(clients);
            world.slow = true;
            let _ = world.take_turns(50 * clients);
            let turns = world.take_turns(100 * clients);
            assert!(turns.tries <= 200 * clients, "{clients}: {turns:?}");
            assert!(turns.of.iter().all(|of| *of >= 60), "{clients}: {turns:?}");
        }
    }

    /// Such as a thread of Java that is near.
    #[test]
    fn a_client_that_yields_to_nobody_leaves_the_others_their_share() {
        for clients in [2, 3, 8] {
            let mut world = World::of(clients);
            world.greedy = true;
            let _ = world.take_turns(50 * clients);
            let turns = world.take_turns(200 * clients);
            assert!(turns.of.iter().all(|of| *of >= 60), "{turns:?}");
        }
    }

    /// It was late when it came, and was taken for one that only listens.
    #[test]
    fn a_slower_client_that_a_faster_one_believed_idle_had_no_turn() {
        let mut world = World::of(4);
        world.slow = true;
        let _ = world.take_turns(50);
        // The second has every other turn, and the last two have the rest.
        world.holder = 1;
        for (client, heard) in world.clients.iter_mut().zip([9, 0, 3, 1]) {
            (client.heard, client.idle) = (heard, 0);
        }
        world.clients[1].idle = 2 * PARTS;
        let turns = world.take_turns(2000);
        assert!(turns.of[0] >= 200, "{turns:?}");
    }

    #[test]
    fn clients_that_only_listen_do_not_make_the_others_late() {
        for (clients, idle) in [(1, 1), (1, 20), (3, 20), (20, 1), (20, 20)] {
            let mut world = World::of(clients);
            world.idle = idle;
            let _ = world.take_turns(50 * clients);
            let turns = world.take_turns(100 * clients);
            assert!(turns.late <= 8 * clients, "{clients} {idle}: {turns:?}");
            assert!(
                turns.of.iter().all(|of| *of >= 60),
                "{clients} {idle}: {turns:?}"
            );
        }
    }

    /// The remaining clients must notice that no other client tries.
    #[test]
    fn when_most_clients_go_the_others_are_late_for_a_few_turns_only() {
        for left in [1, 2, 3, 4] {
            let mut world = World::of(8);
            let _ = world.take_turns(400);
            world.clients.truncate(left);
            (world.holder, world.idle) = (0, 8 - left);
            let turns = world.take_turns(30);
            assert!((1..=20).contains(&turns.late), "{left}: {turns:?}");
            let turns = world.take_turns(100 * left);
            assert!(turns.late <= 10 * left, "{left}: {turns:?}");
            assert!(turns.of.iter().all(|of| *of >= 60), "{turns:?}");
        }
    }

    #[test]
    fn who_asks_again_yields_as_one_that_has_waited_there() {
        let (mut rivals, now) = (Rivals::default(), Instant::now());
        assert_eq!(rivals.asks(now), None);
        rivals.released(1);
        assert_eq!(rivals.asks(now), None, "its announcement is over");
        rivals.acquired(now);
        rivals.releasing(now, false);
        assert_eq!(rivals.asks(now), Some(now + LONGEST), "it is still to come");
        let pause = rivals.heard(now, 1).unwrap();
        assert_eq!(rivals.asks(now), Some(now + pause));
        assert_eq!(rivals.asks(now + pause), None);
        rivals.refused();
        assert_eq!(rivals.asks(now), None);
    }

    #[test]
    fn where_nobody_else_listens_nothing_is_put_off() {
        let (mut rivals, now) = (Rivals::default(), Instant::now());
        for others in [0, 0, 3, 0, 0] {
            rivals.releasing(now, false);
            let _ = rivals.heard(now, 1);
            rivals.released(others);
        }
        for _ in 0..9 {
            rivals.acquired(now);
            rivals.releasing(now, false);
            assert_eq!((rivals.asks(now), rivals.heard(now, 1)), (None, None));
            assert!(!rivals.compete());
            rivals.released(0);
        }
    }

    /// It is one connection to Redis, and each release of its own is another's turn.
    #[test]
    fn a_client_with_many_threads_has_most_turns() {
        let (mut rivals, mut now, mut theirs) = (Rivals::default(), Instant::now(), 0);
        for _ in 0..100 {
            rivals.releasing(now, false);
            rivals.released(1);
            while rivals.heard(now, 1).is_some() {
                now += HOLD;
                theirs += 1;
            }
            rivals.acquired(now);
            now += HOLD;
        }
        assert!((190..=200).contains(&theirs), "{theirs}");
    }

    #[test]
    fn the_one_other_client_is_left_a_further_turn_less_and_less_often() {
        let mut rivals = Rivals::default();
        rivals.released(1);
        let mut now = Instant::now();
        let gaps = std::iter::repeat_with(|| {
            rivals.heard(now, 1);
            now += rivals.heard(now, 1).expect("it is left one more turn");
            rivals.acquired(now);
            assert_eq!(rivals.eager, Some(now + rivals.gap));
            now += rivals.gap;
            rivals.gap.as_millis()
        });
        let gaps: Vec<_> = gaps.take(7).collect();
        assert_eq!(gaps, [128, 256, 512, 1024, 2048, 4000, 4000]);
    }

    #[test]
    fn where_others_are_not_counted_each_chain_is_followed_by_a_short_pause() {
        let (mut rivals, mut now) = (Rivals::default(), Instant::now());
        for _ in 0..100 {
            rivals.releasing(now, true);
            let pause = rivals.heard(now, 1).unwrap();
            assert!(pause <= 2 * MS, "{pause:?}");
            now += pause;
            rivals.acquired(now);
            rivals.released(0);
            now += 10 * MS;
        }
    }

    #[test]
    fn free_permits_are_for_as_many_clients() {
        let (mut rivals, now) = (Rivals::default(), Instant::now());
        rivals.released(4);
        assert!(rivals.heard(now, 3).is_some());
        assert_eq!(rivals.heard(now, 4), None);
    }

    proptest! {
        #[test]
        fn nobody_yields_for_long_nor_without_others(
            steps in proptest::collection::vec((0..7u8, 0..9000u64, 0..50u32), 1..300)
        ) {
            let (mut rivals, mut now) = (Rivals::default(), Instant::now());
            let mut others = [0; 2];
            for (step, micros, count) in steps {
                now += Duration::from_micros(micros);
                let may = others != [0; 2];
                match step {
                    0 | 1 => if let Some(pause) = rivals.heard(now, 1 + count % 3) {
                        prop_assert!(pause <= 4 * LONGEST && may);
                    },
                    2 => {
                        others = [others[1], count];
                        rivals.released(count);
                    }
                    3 => rivals.refused(),
                    4 => if let Some(until) = rivals.asks(now) {
                        prop_assert!(until <= now + 4 * LONGEST && may);
                    },
                    5 => rivals.releasing(now, false),
                    _ => rivals.acquired(now),
                }
            }
        }
    }
}
