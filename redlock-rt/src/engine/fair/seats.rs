//! Who waits in a room, and when Redis is to hear of it next.
//!
//! Pure state: time comes in as an argument, and whom to call goes out as a return value.
//!
//! # Invariants
//!
//! 1. After a beat was asked for, one is sent: where another is under way, or nobody is queued yet,
//!    it follows.
//! 2. Who has a seat is never taken out of the queue: a seat is taken before the first call is sent,
//!    and left after the last. Owner numbers are not used again, so nobody is queued as one that had
//!    no seat at any time since Redis named it.
//! 3. Who left its seat while a beat was under way is not taken for one without a task: Redis may have
//!    named it before. While the lock is handed on quickly that is so in most beats.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use crate::engine::wait::Health;

/// So many of the oldest waiters are asked after in a beat: other clients drop from the front.
const ASKED_AFTER: usize = 50;
/// So many of the oldest waiters are heard on channels of their own in a mixed queue: more than turns
/// that come while one is being subscribed to.
const HEADS: usize = 4;
/// After an announcement that nobody waits for the next beat comes soon: as a rule whom it is for
/// has been served.
const SOON: Duration = Duration::from_millis(250);
/// So many are taken out of the queue by one beat.
const MOST_TAKEN_OUT: usize = 50;

/// A waiter, and how it is called.
#[derive(Debug)]
struct Sitter<L> {
    line: L,
    /// Once Redis has said that it is queued: its turn in `Seats::queued`.
    queued: Option<u64>,
}

/// What a beat tells Redis and asks it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Question {
    /// Those that nobody waits as: they are to leave the queue.
    pub(super) gone: Vec<u64>,
    /// Those to ask after.
    pub(super) oldest: Vec<u64>,
    /// For how long there was no beat.
    pub(super) rested: Duration,
}

/// The waiters of a room; see the module.
#[derive(Debug)]
pub(super) struct Seats<L> {
    /// By owner number.
    map: BTreeMap<u64, Sitter<L>>,
    /// The numbers of those that are queued, in their order.
    queued: BTreeMap<u64, u64>,
    turns: u64,
    /// Whether clients that are not ours had the lock or were queued, when one that sat here since queued.
    mixed: bool,
    /// Who is next, as far as Redis has said, if that is one that waits here.
    next: Option<u64>,
    /// Those that Redis named as next, and that have no seat: their leave has not come.
    gone: Vec<u64>,
    /// While a beat is under way, those that left their seats since it began.
    left: Option<BTreeSet<u64>>,
    /// When the next beat is due, unless one is asked for.
    due: Option<Instant>,
    /// By when a beat was asked for since the last one began.
    asked: Option<Instant>,
    /// When the last beat ended.
    ended: Option<Instant>,
    /// While Redis answers no beats, when whoever is next looks by itself.
    alone: Option<Instant>,
    /// Whether Redis answers beats.
    pub(super) health: Health,
}

impl<L> Default for Seats<L> {
    fn default() -> Self {
        Self {
            map: BTreeMap::new(),
            queued: BTreeMap::new(),
            turns: 0,
            mixed: false,
            next: None,
            gone: Vec::new(),
            left: None,
            due: None,
            asked: None,
            ended: None,
            alone: None,
            health: Health::Answering,
        }
    }
}

impl<L: Clone> Seats<L> {
    /// Beats begin with the first, at `due`.
    pub(super) fn sit(&mut self, number: u64, line: L, due: Instant) {
        if self.map.is_empty() {
            self.due = Some(due);
        }
        let queued = None;
        self.map.insert(number, Sitter { line, queued });
    }

    pub(super) fn leave(&mut self, number: u64) {
        let left = self.map.remove(&number);
        if let Some(turn) = left.and_then(|sitter| sitter.queued) {
            self.queued.remove(&turn);
        }
        if let Some(left) = &mut self.left {
            left.insert(number);
        }
        self.next = self.next.filter(|&next| next != number);
        if self.map.is_empty() {
            *self = Self {
                left: self.left.take(),
                ..Self::default()
            };
        }
    }

    #[cfg(test)]
    fn is_empty(&self) -> bool {
        self.map.is_empty()
    }

    /// Redis has said that this waiter is queued, and whether that is in a `mixed` queue; `look_at`: that
    /// it is next, and by when to look again. Returns whether nobody else is queued.
    pub(super) fn is_queued(&mut self, number: u64, mixed: bool, look_at: Option<Instant>) -> bool {
        let Some(sitter) = self.map.get_mut(&number) else {
            return false;
        };
        let is_first = self.queued.is_empty();
        self.mixed |= mixed;
        if sitter.queued.is_none() {
            self.turns += 1;
            sitter.queued = Some(self.turns);
            self.queued.insert(self.turns, number);
        }
        if let Some(at) = look_at {
            self.next = Some(number);
            self.ask(at);
        }
        is_first
    }

    /// An announcement came for a number that has no seat: the next beat, which asks who is next, is
    /// due soon.
    pub(super) fn unclaimed(&mut self, now: Instant) {
        self.ask(now + SOON);
    }

    /// A beat named this number as the one that is next. Answers its line; where it has no seat, and
    /// had none when the beat began, the next beat, which is due now, takes it out of the queue.
    fn named(&mut self, number: u64, now: Instant) -> Option<L> {
        let line = self.line(number);
        let left = self.left.as_ref();
        let was_left = left.is_some_and(|left| left.contains(&number));
        if line.is_none() && !was_left && !self.map.is_empty() {
            self.ask(now);
            self.gone.truncate(MOST_TAKEN_OUT - 1);
            self.gone.push(number);
        }
        line
    }

    /// The line of a waiter.
    pub(super) fn line(&self, number: u64) -> Option<L> {
        Some(self.map.get(&number)?.line.clone())
    }

    /// Whether one that waits here is next, as far as Redis has said.
    pub(super) fn has_next(&self) -> bool {
        self.next.is_some()
    }

    /// The lines of those that are asked after.
    pub(super) fn oldest_lines(&self) -> Vec<L> {
        let oldest = self.oldest();
        oldest.filter_map(|number| self.line(number)).collect()
    }

    /// Those whose turns clients that are not ours may announce next.
    pub(super) fn heads(&self) -> Vec<u64> {
        let most = if self.mixed { HEADS } else { 0 };
        self.queued.values().copied().take(most).collect()
    }

    /// Those to ask after: others have their first call under way.
    fn oldest(&self) -> impl Iterator<Item = u64> {
        self.queued.values().copied().take(ASKED_AFTER)
    }

    /// When the next beat is due; none while one is under way. Where nobody is queued, one that was asked
    /// for is owed.
    pub(super) fn due(&self) -> Option<Instant> {
        let asked = self.asked.filter(|_| !self.queued.is_empty());
        let due = self.due.map(|due| asked.map_or(due, |at| at.min(due)));
        due.filter(|_| self.left.is_none())
    }

    /// Asks for a beat at that moment at the latest, if anybody waits.
    pub(super) fn ask(&mut self, at: Instant) {
        if self.due.is_some() {
            self.asked = Some(self.asked.map_or(at, |asked| asked.min(at)));
        }
    }

    /// A beat begins; the next is due at `until` unless one is asked for. Where nobody is queued
    /// none is sent.
    pub(super) fn begin(&mut self, now: Instant, until: Instant) -> Option<Question> {
        self.due = self.due.map(|_| until);
        let oldest: Vec<u64> = self.oldest().collect();
        if oldest.is_empty() {
            return None;
        }
        self.asked = None;
        if self.health == Health::Answering {
            self.health = Health::Asking(now);
        }
        self.left = Some(BTreeSet::new());
        let gone = std::mem::take(&mut self.gone);
        let rested = now.saturating_duration_since(self.ended.unwrap_or(now));
        Some(Question {
            gone,
            oldest,
            rested,
        })
    }

    /// Redis has answered a beat; the next is due at `until`, or when one was asked for meanwhile.
    pub(super) fn rest(&mut self, now: Instant, until: Instant) {
        self.end(now, until);
        self.alone = None;
        self.health = Health::Answering;
    }

    /// A beat did not reach Redis; the next is due at `until`. Returns the line of the one that is next
    /// where it is to look by itself meanwhile: after the moment `alone`, and then each time that one
    /// named later has come.
    pub(super) fn untold(&mut self, now: Instant, until: Instant, alone: Instant) -> Option<L> {
        self.end(now, until);
        self.health = Health::Failing;
        if *self.alone.get_or_insert(alone) > now {
            return None;
        }
        self.alone = Some(alone);
        self.line(self.next?)
    }

    fn end(&mut self, now: Instant, until: Instant) {
        self.due = self.due.map(|_| until);
        self.ended = Some(now);
        self.left = None;
    }

    /// Takes in the numbers that a beat told: who is next, if it is one of these, and who was
    /// dropped. Answers whom to call.
    pub(super) fn told(
        &mut self,
        next: Option<u64>,
        is_free: bool,
        dropped: &[u64],
        now: Instant,
    ) -> Vec<L> {
        let mut called = Vec::new();
        for number in dropped {
            if let Some(sitter) = self.map.get_mut(number) {
                if let Some(turn) = sitter.queued.take() {
                    self.queued.remove(&turn);
                }
                called.push(sitter.line.clone());
            }
        }
        let line = next.and_then(|number| self.named(number, now));
        self.next = next.filter(|_| line.is_some());
        called.extend(line.filter(|_| is_free));
        called
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;

    use super::*;

    const S: Duration = Duration::from_secs(1);

    #[test]
    fn who_is_next_is_called_while_the_lock_is_free() {
        let now = Instant::now();
        let mut seats = Seats::default();
        seats.sit(1, "a", now);
        seats.sit(2, "b", now);
        assert!(seats.told(Some(1), false, &[], now).is_empty());
        assert!(seats.has_next());
        for _ in 0..2 {
            assert_eq!(seats.told(Some(1), true, &[], now), ["a"]);
        }
        seats.leave(1);
        assert!(!seats.has_next());
        // Somebody of another client.
        assert!(seats.told(None, true, &[], now).is_empty());
        assert!(!seats.has_next());
    }

    /// Its try knows the lease of the holder before the first beat does, or while one is under way.
    #[test]
    fn who_is_next_has_a_beat_by_the_end_of_the_lease() {
        let now = Instant::now();
        let mut seats = Seats::default();
        seats.sit(1, "a", now + 9 * S);
        seats.is_queued(1, false, Some(now + 3 * S));
        assert_eq!(seats.due(), Some(now + 3 * S));
        seats.begin(now, now + 9 * S).unwrap();
        seats.is_queued(1, false, Some(now + 2 * S));
        seats.told(None, false, &[], now);
        seats.rest(now, now + 9 * S);
        assert_eq!(seats.due(), Some(now + 2 * S));
        seats.begin(now, now + 9 * S).unwrap();
        seats.rest(now, now + 9 * S);
        assert_eq!(seats.due(), Some(now + 9 * S), "the answer says when");
    }

    #[test]
    fn who_is_next_looks_by_itself_while_beats_fail() {
        let now = Instant::now();
        let mut seats = Seats::default();
        seats.sit(1, "a", now);
        seats.is_queued(1, false, Some(now));
        let fails = |seats: &mut Seats<_>, at| {
            seats.begin(at, at).unwrap();
            seats.untold(at, at, at + 2 * S)
        };
        let called: Vec<_> = (0..6).map(|at| fails(&mut seats, now + at * S)).collect();
        assert_eq!(called, [None, None, Some("a"), None, Some("a"), None]);
        seats.begin(now, now).unwrap();
        seats.rest(now, now);
        assert_eq!(fails(&mut seats, now + 9 * S), None, "answered since");
        seats.leave(1);
        seats.sit(2, "b", now);
        seats.is_queued(2, false, None);
        let called: Vec<_> = (0..6).map(|at| fails(&mut seats, now + at * S)).collect();
        assert_eq!(called, [None; 6], "another is next");
    }

    #[test]
    fn a_beat_says_for_how_long_there_was_none() {
        let now = Instant::now();
        let mut seats = Seats::default();
        seats.sit(1, "a", now);
        seats.is_queued(1, false, None);
        let rested = |seats: &mut Seats<_>, at| seats.begin(at, at).unwrap().rested;
        assert_eq!(rested(&mut seats, now), Duration::ZERO);
        seats.rest(now + S, now);
        assert_eq!(rested(&mut seats, now + 3 * S), 2 * S);
    }

    #[test]
    fn who_was_dropped_is_called() {
        let now = Instant::now();
        let mut seats = Seats::default();
        seats.sit(1, "a", now);
        seats.sit(2, "b", now);
        assert_eq!(seats.told(None, false, &[1, 2, 3], now), ["a", "b"]);
    }

    /// The same few would be asked after for ever, and the others never be missed.
    #[test]
    fn who_queues_again_is_behind_those_who_are_queued() {
        let now = Instant::now();
        let mut seats = Seats::default();
        for number in 1..=3 {
            seats.sit(number, "line", now);
            seats.is_queued(number, false, None);
        }
        seats.told(None, false, &[1], now);
        assert_eq!(seats.oldest().collect::<Vec<_>>(), [2, 3]);
        seats.is_queued(1, false, None);
        assert_eq!(seats.oldest().collect::<Vec<_>>(), [2, 3, 1]);
        seats.leave(2);
        assert_eq!(seats.oldest().collect::<Vec<_>>(), [3, 1]);
    }

    #[test]
    fn beats_end_with_the_last_waiter() {
        let now = Instant::now();
        let mut seats = Seats::default();
        seats.sit(1, "a", now);
        assert_eq!(seats.due(), Some(now));
        seats.leave(1);
        assert_eq!(seats.due(), None);
        seats.ask(now);
        assert_eq!(seats.due(), None);
    }

    #[test]
    fn a_beat_asked_for_while_one_is_under_way_is_due_when_that_is_over() {
        let now = Instant::now();
        let mut seats = Seats::default();
        seats.sit(1, "a", now);
        seats.is_queued(1, false, None);
        assert_eq!(seats.begin(now, now + S).unwrap().oldest, [1]);
        seats.ask(now);
        assert_eq!(seats.due(), None);
        seats.rest(now, now + 2 * S);
        assert_eq!(seats.due(), Some(now));
        seats.begin(now, now + S);
        seats.rest(now, now + 2 * S);
        assert_eq!(seats.due(), Some(now + 2 * S));
    }

    #[test]
    fn a_beat_asked_for_before_anybody_is_queued_is_due_when_somebody_is() {
        let now = Instant::now();
        let mut seats = Seats::default();
        seats.sit(1, "a", now + S);
        seats.ask(now);
        assert!(seats.begin(now, now + S).is_none());
        assert_eq!(seats.due(), Some(now + S));
        seats.is_queued(1, false, None);
        assert_eq!(seats.due(), Some(now));
    }

    #[test]
    fn who_is_named_without_a_seat_is_taken_out_by_the_next_beat() {
        let now = Instant::now();
        let mut seats = Seats::default();
        seats.sit(2, "b", now + S);
        seats.is_queued(2, false, None);
        assert!(seats.told(Some(1), true, &[], now).is_empty());
        assert_eq!(seats.due(), Some(now));
        let question = seats.begin(now, now + S).unwrap();
        assert_eq!((question.gone, question.oldest), (vec![1], vec![2]));
        let question = seats.begin(now, now + S).unwrap();
        assert!(question.gone.is_empty());
    }

    #[test]
    fn who_leaves_its_seat_while_a_beat_is_under_way_is_not_taken_out() {
        let now = Instant::now();
        let mut seats = Seats::default();
        for number in 1..=2 {
            seats.sit(number, number, now + S);
            seats.is_queued(number, false, None);
        }
        seats.begin(now, now + S).unwrap();
        // Served, or its leave is under way.
        seats.leave(1);
        assert!(seats.told(Some(1), true, &[], now).is_empty());
        seats.rest(now, now + S);
        assert_eq!(seats.due(), Some(now + S));
        // Still next.
        seats.begin(now, now + S).unwrap();
        assert!(seats.told(Some(1), true, &[], now).is_empty());
        assert_eq!(seats.begin(now, now + S).unwrap().gone, [1]);
    }

    #[test]
    fn an_announcement_that_nobody_waits_for_brings_the_next_beat_nearer() {
        let now = Instant::now();
        let mut seats = Seats::default();
        seats.sit(1, "a", now + S);
        seats.is_queued(1, false, None);
        assert_eq!(seats.due(), Some(now + S));
        seats.unclaimed(now);
        assert_eq!(seats.due(), Some(now + SOON));
    }

    #[test]
    fn in_a_mixed_queue_the_oldest_that_are_queued_have_channels() {
        let now = Instant::now();
        let mut seats = Seats::default();
        for number in 1..=9 {
            seats.sit(number, "line", now);
            if number > 1 {
                seats.is_queued(number, false, None);
            }
        }
        assert_eq!(seats.heads(), []);
        seats.is_queued(9, true, None);
        assert_eq!(seats.heads(), [2, 3, 4, 5]);
        seats.leave(3);
        assert_eq!(seats.heads(), [2, 4, 5, 6]);
        (1..=9).for_each(|number| seats.leave(number));
        seats.sit(10, "line", now);
        seats.is_queued(10, false, None);
        assert_eq!(seats.heads(), [], "whoever queued beside others has left");
    }

    /// A second one would have the first one's waiters taken for gone.
    #[test]
    fn whoever_comes_while_a_beat_is_under_way_begins_none() {
        let now = Instant::now();
        let mut seats = Seats::default();
        seats.sit(1, "a", now);
        seats.is_queued(1, false, None);
        seats.begin(now, now + S).unwrap();
        seats.leave(1);
        seats.sit(2, "b", now);
        assert_eq!(seats.due(), None);
        assert!(seats.told(Some(1), true, &[], now).is_empty());
        seats.rest(now, now + S);
        assert_eq!(seats.due(), Some(now + S));
    }

    /// Its first call is under way.
    #[test]
    fn who_has_a_seat_is_not_taken_out() {
        let now = Instant::now();
        let mut seats = Seats::default();
        seats.sit(1, "a", now + S);
        assert_eq!(seats.told(Some(1), true, &[], now), ["a"]);
        seats.is_queued(1, false, None);
        assert!(seats.begin(now, now + S).unwrap().gone.is_empty());
    }

    #[derive(Debug, Clone, Copy)]
    enum Step {
        Sit(u64),
        Leave(u64),
        Queued(u64),
        Ask,
        Begin,
        End,
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            (0..4u64).prop_map(Step::Sit),
            (0..4u64).prop_map(Step::Leave),
            (0..4u64).prop_map(Step::Queued),
            Just(Step::Ask),
            Just(Step::Begin),
            Just(Step::End),
        ]
    }

    proptest! {
        /// Invariant 1.
        #[test]
        fn a_beat_that_was_asked_for_is_sent(steps in prop::collection::vec(step(), 1..60)) {
            let now = Instant::now();
            let later = now + S;
            let mut seats = Seats::default();
            let mut owed = false;
            let mut under_way = false;
            for step in steps {
                match step {
                    Step::Sit(number) if seats.line(number).is_none() => {
                        seats.sit(number, number, later);
                    }
                    Step::Sit(_) => {}
                    Step::Leave(number) => seats.leave(number),
                    Step::Queued(number) => {
                        seats.is_queued(number, false, None);
                    }
                    Step::Ask => {
                        seats.ask(now);
                        owed = true;
                    }
                    Step::Begin if !under_way => {
                        under_way = seats.begin(now, later).is_some();
                        owed &= !under_way;
                    }
                    Step::Begin => {}
                    Step::End => {
                        if under_way {
                            seats.rest(now, later);
                        }
                        under_way = false;
                    }
                }
                owed &= !seats.is_empty();
                let can_be_sent = !under_way && seats.oldest().next().is_some();
                if owed && can_be_sent {
                    prop_assert_eq!(seats.due(), Some(now));
                }
            }
        }
    }
}
