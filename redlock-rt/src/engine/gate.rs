//! Who waits in this process for one gate to open: however many do, one of them looks.
//!
//! Pure state. The first of the waiters, the *head*, looks when there is a *permit*: somebody came
//! where nobody waited, something was announced, the subscription was confirmed (what was announced
//! before is not known), or time came to look again. What it finds it tells all.
//!
//! # Invariants
//!
//! 1. Only the head takes a permit, and one look is under way at a time.
//! 2. What a look finds is told to those that waited when it began, and to nobody else: who comes
//!    later may know of a gate that was closed since.
//! 3. Whoever is not told waits for a look that is still to come: one is owed by a permit, by an
//!    announcement, or by the moment to look again, for which the head has the timer.
//! 4. A head that leaves in the middle of a look, or without having taken a permit, leaves the permit
//!    to the next.
//! 5. Whoever becomes head is woken, since it has the timer and the subscription to look after.

#[cfg(all(test, redlock_loom))]
mod loom;

use std::collections::{BTreeMap, HashMap};
use std::task::{Poll, Waker};
use std::time::Instant;

use super::line::Health;

/// A waiter. The later it came, the greater.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Ticket(u64);

/// What a waiter is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Word<T> {
    /// Head now, without a permit yet. Told once.
    Head,
    /// Head, with a permit, which is hereby taken.
    Look,
    /// It need not wait any more.
    Over(T),
    /// The client shuts down.
    Closed,
}

#[derive(Debug, Default)]
struct Waiter {
    waker: Option<Waker>,
    told: bool,
}

/// The waiters of one gate; see the module.
#[derive(Debug)]
pub(crate) struct GateState<T> {
    waiting: BTreeMap<Ticket, Waiter>,
    /// Those that were told and have not heard it yet.
    over: HashMap<Ticket, T>,
    next: u64,
    permit: bool,
    /// Who looks, and the first that came after it began.
    looking: Option<(Ticket, Ticket)>,
    closed: bool,
    /// When the head looks again although nothing was announced.
    retry_at: Option<Instant>,
    /// How the head fares, for those whose time runs out.
    health: Health,
}

impl<T> Default for GateState<T> {
    fn default() -> Self {
        Self {
            waiting: BTreeMap::new(),
            over: HashMap::new(),
            next: 0,
            permit: false,
            looking: None,
            closed: false,
            retry_at: None,
            health: Health::Answering,
        }
    }
}

impl<T: Clone> GateState<T> {
    /// Joins the waiters.
    pub(crate) fn enter(&mut self) -> Ticket {
        let ticket = Ticket(self.next);
        self.next += 1;
        if self.waiting.is_empty() {
            self.permit = true;
            self.retry_at = None;
            self.health = Health::Answering;
        }
        self.waiting.insert(ticket, Waiter::default());
        ticket
    }

    fn head(&self) -> Option<Ticket> {
        self.waiting.keys().next().copied()
    }

    /// Asks for news; the waker is woken when there are some.
    pub(crate) fn poll(&mut self, ticket: Ticket, waker: &Waker) -> Poll<Word<T>> {
        if let Some(outcome) = self.over.remove(&ticket) {
            return Poll::Ready(Word::Over(outcome));
        }
        if self.closed {
            return Poll::Ready(Word::Closed);
        }
        let head = self.head() == Some(ticket);
        if head && self.permit && self.looking.is_none() {
            self.permit = false;
            self.looking = Some((ticket, Ticket(self.next)));
            return Poll::Ready(Word::Look);
        }
        if let Some(waiter) = self.waiting.get_mut(&ticket) {
            if head && !waiter.told {
                waiter.told = true;
                return Poll::Ready(Word::Head);
            }
            let known = waiter.waker.as_ref();
            if !known.is_some_and(|known| known.will_wake(waker)) {
                waiter.waker = Some(waker.clone());
            }
        }
        Poll::Pending
    }

    fn head_waker(&mut self) -> Option<Waker> {
        self.waiting.values_mut().next()?.waker.take()
    }

    /// Something happened that makes a look worth while, also where one is under way: it may have
    /// been answered before. The waker is to be woken once the lock around this state is free.
    #[must_use]
    pub(crate) fn notify(&mut self) -> Option<Waker> {
        if self.waiting.is_empty() {
            return None;
        }
        self.permit = true;
        self.head_waker()
    }

    /// The look found that they are to wait on; the head looks again at `retry_at`.
    pub(crate) fn shut(&mut self, retry_at: Instant, health: Health) {
        self.looking = None;
        self.retry_at = Some(retry_at);
        self.set_health(health);
    }

    /// The look found something for all that waited when it began. Who came since needs a look of
    /// its own.
    #[must_use]
    pub(crate) fn tell(&mut self, outcome: &T) -> Vec<Waker> {
        let Some((_, first_later)) = self.looking.take() else {
            return Vec::new();
        };
        let later = self.waiting.split_off(&first_later);
        let told = std::mem::replace(&mut self.waiting, later);
        let mut wakers = Vec::with_capacity(told.len() + 1);
        for (ticket, waiter) in told {
            self.over.insert(ticket, outcome.clone());
            wakers.extend(waiter.waker);
        }
        self.permit = !self.waiting.is_empty();
        self.retry_at = None;
        self.set_health(Health::Answering);
        wakers.extend(self.head_waker());
        wakers
    }

    /// Leaves. Upholds invariants 4 and 5.
    #[must_use]
    pub(crate) fn leave(&mut self, ticket: Ticket) -> Option<Waker> {
        self.over.remove(&ticket);
        if let Some((by, _)) = self.looking
            && by == ticket
        {
            self.looking = None;
            self.permit = true;
            if matches!(self.health, Health::Asking(_)) {
                // Its outcome will not be told here.
                self.health = Health::Answering;
            }
        }
        let was_head = self.head() == Some(ticket);
        self.waiting.remove(&ticket);
        if was_head { self.head_waker() } else { None }
    }

    /// Nobody is to wait here any more.
    #[must_use]
    pub(crate) fn close(&mut self) -> Vec<Waker> {
        self.closed = true;
        let waiters = self.waiting.values_mut();
        waiters.filter_map(|waiter| waiter.waker.take()).collect()
    }

    /// When `ticket` is to look again by itself; only the head does.
    pub(crate) fn retry_at(&self, ticket: Ticket) -> Option<Instant> {
        self.retry_at.filter(|_| self.head() == Some(ticket))
    }

    /// The moment to look again has come for the head.
    pub(crate) fn retry(&mut self) {
        self.retry_at = None;
        self.permit = true;
    }

    pub(crate) fn set_health(&mut self, health: Health) {
        // After a look that failed, another is no better before it is answered.
        if !matches!((self.health, health), (Health::Failing, Health::Asking(_))) {
            self.health = health;
        }
    }

    pub(crate) fn health(&self) -> Health {
        self.health
    }

    /// Whether nobody is here, not even one that was told and has not heard it.
    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.is_empty() && self.over.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::super::count_waker::waker;
    use super::*;
    use proptest::prelude::*;

    const LOOK: Poll<Word<u8>> = Poll::Ready(Word::Look);
    const HEAD: Poll<Word<u8>> = Poll::Ready(Word::Head);

    fn over(outcome: u8) -> Poll<Word<u8>> {
        Poll::Ready(Word::Over(outcome))
    }

    #[test]
    fn one_looks_and_all_that_waited_are_told() {
        let (count, waker) = waker();
        let mut gate = GateState::<u8>::default();
        let tickets: Vec<_> = (0..5).map(|_| gate.enter()).collect();
        for ticket in &tickets[1..] {
            assert_eq!(gate.poll(*ticket, &waker), Poll::Pending);
        }
        assert_eq!(gate.poll(tickets[0], &waker), LOOK);
        gate.tell(&7).into_iter().for_each(Waker::wake);
        assert_eq!(count.get(), 4);
        for ticket in tickets {
            assert_eq!(gate.poll(ticket, &waker), over(7));
            assert!(gate.leave(ticket).is_none());
        }
        assert!(gate.is_empty());
    }

    #[test]
    fn who_came_after_the_look_began_has_one_of_its_own() {
        let (count, waker) = waker();
        let mut gate = GateState::<u8>::default();
        let first = gate.enter();
        assert_eq!(gate.poll(first, &waker), LOOK);
        let later = gate.enter();
        assert_eq!(gate.poll(later, &waker), Poll::Pending);
        gate.tell(&1).into_iter().for_each(Waker::wake);
        assert_eq!(count.get(), 1);
        assert_eq!(gate.poll(later, &waker), LOOK);
        let _ = gate.tell(&2);
        assert_eq!(gate.poll(first, &waker), over(1));
        assert_eq!(gate.poll(later, &waker), over(2));
    }

    #[test]
    fn who_leaves_in_the_middle_of_a_look_passes_it_on() {
        let (count, waker) = waker();
        let mut gate = GateState::<u8>::default();
        let (first, second) = (gate.enter(), gate.enter());
        assert_eq!(gate.poll(second, &waker), Poll::Pending);
        assert_eq!(gate.poll(first, &waker), LOOK);
        gate.set_health(Health::Asking(Instant::now()));
        gate.leave(first).into_iter().for_each(Waker::wake);
        assert_eq!(count.get(), 1);
        assert_eq!(gate.health(), Health::Answering);
        assert_eq!(gate.poll(second, &waker), LOOK);
    }

    #[test]
    fn the_timer_is_the_heads_and_goes_with_it() {
        let (count, waker) = waker();
        let now = Instant::now();
        let mut gate = GateState::<u8>::default();
        let (first, second) = (gate.enter(), gate.enter());
        assert_eq!(gate.poll(first, &waker), LOOK);
        assert_eq!(gate.poll(second, &waker), Poll::Pending);
        gate.shut(now, Health::Answering);
        assert_eq!(
            (gate.retry_at(first), gate.retry_at(second)),
            (Some(now), None)
        );
        gate.leave(first).into_iter().for_each(Waker::wake);
        assert_eq!(count.get(), 1);
        assert_eq!(gate.poll(second, &waker), HEAD);
        assert_eq!(gate.retry_at(second), Some(now));
        assert_eq!(gate.poll(second, &waker), Poll::Pending);
        gate.retry();
        assert_eq!(gate.poll(second, &waker), LOOK);
    }

    #[test]
    fn what_is_announced_during_a_look_asks_for_another() {
        let waker = Waker::noop();
        let mut gate = GateState::<u8>::default();
        let ticket = gate.enter();
        assert_eq!(gate.poll(ticket, waker), LOOK);
        let _ = gate.notify();
        assert_eq!(gate.poll(ticket, waker), HEAD);
        assert_eq!(gate.poll(ticket, waker), Poll::Pending);
        gate.shut(Instant::now(), Health::Answering);
        assert_eq!(gate.poll(ticket, waker), LOOK);
    }

    #[test]
    fn closing_tells_everybody() {
        let (count, waker) = waker();
        let mut gate = GateState::<u8>::default();
        let tickets = [gate.enter(), gate.enter()];
        assert_eq!(gate.poll(tickets[0], &waker), LOOK);
        for ticket in tickets {
            while gate.poll(ticket, &waker).is_ready() {}
        }
        gate.close().into_iter().for_each(Waker::wake);
        assert_eq!(count.get(), 2);
        for ticket in tickets {
            assert_eq!(gate.poll(ticket, &waker), Poll::Ready(Word::Closed));
        }
    }

    proptest! {
        /// However waiters come and go, whoever waits is told by a look that began after it came,
        /// and the gate is looked at for as long as anybody waits.
        #[test]
        fn nobody_is_forgotten(steps in proptest::collection::vec((0..7u8, 0..6usize), 1..120)) {
            let waker = Waker::noop();
            let mut gate = GateState::<u64>::default();
            // Each waiter with the number of looks that had begun when it came.
            let mut here: Vec<(Ticket, u64)> = vec![];
            let (mut begun, mut looking) = (0_u64, None);
            let poll_all = |gate: &mut GateState<u64>, here: &mut Vec<(Ticket, u64)>,
                            begun: &mut u64, looking: &mut Option<Ticket>| {
                let mut at = 0;
                while at < here.len() {
                    let (ticket, since) = here[at];
                    match gate.poll(ticket, waker) {
                        Poll::Ready(Word::Over(look)) => {
                            prop_assert!(look > since, "told by a look that began before it came");
                            here.remove(at);
                            drop(gate.leave(ticket));
                        }
                        Poll::Ready(Word::Look) => {
                            prop_assert!(looking.is_none(), "two looks at a time");
                            *begun += 1;
                            *looking = Some(ticket);
                        }
                        Poll::Ready(Word::Head) => {}
                        Poll::Ready(Word::Closed) => unreachable!("never closed here"),
                        Poll::Pending => at += 1,
                    }
                }
                Ok(())
            };
            for (step, at) in steps {
                match step {
                    0 | 1 => here.push((gate.enter(), begun)),
                    2 if !here.is_empty() => {
                        let (ticket, _) = here.remove(at % here.len());
                        drop(gate.leave(ticket));
                        looking = looking.filter(|by| *by != ticket);
                    }
                    3 => drop(gate.notify()),
                    4 if looking.take().is_some() => gate.shut(Instant::now(), Health::Answering),
                    5 if looking.take().is_some() => drop(gate.tell(&begun)),
                    6 => poll_all(&mut gate, &mut here, &mut begun, &mut looking)?,
                    _ => {}
                }
                // Invariant 3: a look is under way, owed, or timed.
                let timed = here.iter().any(|(ticket, _)| gate.retry_at(*ticket).is_some());
                let waiting = !gate.waiting.is_empty();
                prop_assert!(!waiting || gate.permit || timed || gate.looking.is_some());
            }
            // Everybody is served in the end.
            for _ in 0..3 {
                poll_all(&mut gate, &mut here, &mut begun, &mut looking)?;
                if looking.take().is_some() {
                    drop(gate.tell(&begun));
                } else {
                    drop(gate.notify());
                }
            }
            poll_all(&mut gate, &mut here, &mut begun, &mut looking)?;
            prop_assert!(here.is_empty() && gate.is_empty());
        }
    }
}
