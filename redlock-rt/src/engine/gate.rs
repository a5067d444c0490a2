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

use std::collections::HashMap;
use std::task::{Poll, Waker};
use std::time::Instant;

use super::waiters::{Call, Health, Ticket, Waiters};

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

/// The waiters of one gate; see the module.
#[derive(Debug)]
pub(crate) struct GateState<T> {
    waiters: Waiters,
    /// Those that were told and have not heard it yet.
    over: HashMap<Ticket, T>,
    /// Who looks, and the first that came after it began.
    looking: Option<(Ticket, Ticket)>,
}

impl<T> Default for GateState<T> {
    fn default() -> Self {
        Self {
            waiters: Waiters::default(),
            over: HashMap::new(),
            looking: None,
        }
    }
}

impl<T: Clone> GateState<T> {
    /// Joins the waiters.
    pub(crate) fn enter(&mut self) -> Ticket {
        let first = self.waiters.is_empty();
        let ticket = self.waiters.enter();
        self.waiters.permit |= first;
        ticket
    }

    /// Asks for news; the waker is woken when there are some.
    pub(crate) fn poll(&mut self, ticket: Ticket, waker: &Waker) -> Poll<Word<T>> {
        if let Some(outcome) = self.over.remove(&ticket) {
            return Poll::Ready(Word::Over(outcome));
        }
        let idle = self.looking.is_none();
        self.waiters
            .poll(ticket, idle, waker)
            .map(|call| match call {
                Call::Head => Word::Head,
                Call::Permit => {
                    self.looking = Some((ticket, self.waiters.next_ticket()));
                    Word::Look
                }
                Call::Closed => Word::Closed,
            })
    }

    /// Something happened that makes a look worth while, also where one is under way: it may have
    /// been answered before. The waker is to be woken once the lock around this state is free.
    #[must_use]
    pub(crate) fn notify(&mut self) -> Option<Waker> {
        self.waiters.notify()
    }

    /// The look found that they are to wait on; the head looks again at `retry_at`.
    pub(crate) fn shut(&mut self, retry_at: Instant, health: Health) {
        self.looking = None;
        self.waiters.set_retry(Some(retry_at));
        self.waiters.set_health(health);
    }

    /// The look found something for all that waited when it began. Who came since needs a look of
    /// its own.
    #[must_use]
    pub(crate) fn tell(&mut self, outcome: &T) -> Vec<Waker> {
        let Some((_, first_later)) = self.looking.take() else {
            return Vec::new();
        };
        let told = self.waiters.leave_before(first_later);
        let mut wakers = Vec::with_capacity(told.len() + 1);
        for (ticket, waker) in told {
            self.over.insert(ticket, outcome.clone());
            wakers.extend(waker);
        }
        self.waiters.permit = !self.waiters.is_empty();
        self.waiters.set_retry(None);
        self.waiters.set_health(Health::Answering);
        wakers.extend(self.waiters.head_waker());
        wakers
    }

    /// Leaves. Upholds invariants 4 and 5.
    #[must_use]
    pub(crate) fn leave(&mut self, ticket: Ticket) -> Option<Waker> {
        self.over.remove(&ticket);
        if self.looking.is_some_and(|(by, _)| by == ticket) {
            self.looking = None;
            self.waiters.permit = true;
            self.waiters.forget_call();
        }
        match self.waiters.leave(ticket) {
            true => self.waiters.head_waker(),
            false => None,
        }
    }

    /// Nobody is to wait here any more.
    #[must_use]
    pub(crate) fn close(&mut self) -> Vec<Waker> {
        self.waiters.close()
    }

    /// When `ticket` is to look again by itself; only the head does.
    pub(crate) fn retry_at(&self, ticket: Ticket) -> Option<Instant> {
        self.waiters.retry_at(ticket)
    }

    /// The moment to look again has come for the head.
    pub(crate) fn retry(&mut self) {
        self.waiters.set_retry(None);
        self.waiters.permit = true;
    }

    pub(crate) fn set_health(&mut self, health: Health) {
        self.waiters.set_health(health);
    }

    pub(crate) fn health(&self) -> Health {
        self.waiters.health()
    }

    /// Whether nobody is here, not even one that was told and has not heard it.
    pub(crate) fn is_empty(&self) -> bool {
        self.waiters.is_empty() && self.over.is_empty()
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
                let waiting = !gate.waiters.is_empty();
                prop_assert!(!waiting || gate.waiters.permit || timed || gate.looking.is_some());
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
