//! The background releases, in the order in which they came.
//!
//! Releases that were sent at the drop wait in a separate line, oldest first. The waker of their calls is the queue
//! itself. So the task that brings a reply, usually the connection's, ends the oldest answered releases. A separate
//! task would be woken for each dropped guard, often on another worker. The release task is woken for releases that
//! need more than a reply (an error, a script to load). It also looks for missing replies eight times in the response
//! time-out. In a cluster a master that hangs would hold up the line, so the release task runs all.

#[cfg(test)]
mod loom;

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use crate::clock;
use crate::connection::Came;

/// Items to run, and items that were sent and are taken when their replies come. Both are first in,
/// first out, until the queue is closed.
#[derive(Debug)]
pub(in crate::engine) struct Queue<T> {
    items: VecDeque<T>,
    sent: VecDeque<T>,
    /// The number of items that were ever taken out of `sent`.
    taken: u64,
    watch: Option<Watch>,
    /// Some caller is asking for the oldest item again and again.
    ending: bool,
    closed: bool,
}

/// A check of the sent items, for missing replies.
#[derive(Debug)]
struct Watch {
    at: Instant,
    /// Items are old then if they are among the first ones, up to this number, that were ever sent.
    old: u64,
}

/// The oldest sent item. All variants but `Answered` end the loop of the caller.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::engine) enum Oldest<T> {
    /// There is none, or it has no result yet.
    Waits,
    /// It has its reply, and now belongs to the caller.
    Answered(T),
    /// It needs more than a reply. All sent items must be run now.
    TakenIn,
}

impl<T> Default for Queue<T> {
    fn default() -> Self {
        Self {
            items: VecDeque::new(),
            sent: VecDeque::new(),
            taken: 0,
            watch: None,
            ending: false,
            closed: false,
        }
    }
}

impl<T> Queue<T> {
    /// Adds an item, behind all others or `first`; returns it if the queue is closed.
    pub(in crate::engine) fn push(&mut self, item: T, first: bool) -> Result<(), T> {
        if self.closed {
            return Err(item);
        }
        match first {
            true => self.items.push_front(item),
            false => self.items.push_back(item),
        }
        Ok(())
    }

    /// Adds a sent item; returns it if the queue is closed. Then call [`begin_ending`](Self::begin_ending): the reply
    /// may have come before. Returns whether to call [`watch`](Self::watch) too.
    pub(in crate::engine) fn push_sent(&mut self, item: T) -> Result<bool, T> {
        if self.closed {
            return Err(item);
        }
        self.sent.push_back(item);
        Ok(self.watch.is_none())
    }

    pub(in crate::engine) fn pop(&mut self) -> Option<T> {
        self.items.pop_front()
    }

    /// The next item to [`pop`](Self::pop).
    pub(in crate::engine) fn first(&self) -> Option<&T> {
        self.items.front()
    }

    /// Call this whenever a result came for an item. Returns whether the caller must ask for the
    /// [`oldest`](Self::oldest) until none is answered. Otherwise another caller does so, and will look at the same
    /// item: perhaps one further up the stack, which ends an item that came back.
    pub(in crate::engine) fn begin_ending(&mut self) -> bool {
        !std::mem::replace(&mut self.ending, true)
    }

    /// The caller stops before [`oldest`](Self::oldest) has ended its loop.
    pub(in crate::engine) fn stop_ending(&mut self) {
        self.ending = false;
    }

    /// Takes the oldest sent item, if its reply came.
    pub(in crate::engine) fn oldest(&mut self, came: impl Fn(&T) -> Came) -> Oldest<T> {
        match self.sent.front().map(came) {
            Some(Came::Reply) => {
                self.taken += 1;
                if let Some(item) = self.sent.pop_front() {
                    return Oldest::Answered(item);
                }
            }
            Some(Came::Other) => {
                self.ending = false;
                self.take_in(self.sent.len());
                return Oldest::TakenIn;
            }
            Some(Came::Nothing) | None => {}
        }
        self.ending = false;
        Oldest::Waits
    }

    /// Items that were sent more than `span` ago must be run, since their replies do not come. Returns when to call
    /// this again.
    pub(in crate::engine) fn watch(&mut self, now: Instant, span: Duration) -> Option<Instant> {
        if let Some(watch) = self.watch.take_if(|watch| watch.at <= now) {
            let old = watch.old.saturating_sub(self.taken);
            self.take_in(usize::try_from(old).unwrap_or(usize::MAX));
        }
        if self.watch.is_none() && !self.sent.is_empty() {
            let (at, sent) = (clock::after(now, span), self.sent.len() as u64);
            let old = self.taken + sent;
            self.watch = Some(Watch { at, old });
        }
        self.watch.as_ref().map(|watch| watch.at)
    }

    /// The oldest sent items must be run, before all others.
    fn take_in(&mut self, count: usize) {
        let count = count.min(self.sent.len());
        self.taken += count as u64;
        for item in self.sent.drain(..count).rev() {
            self.items.push_front(item);
        }
    }

    /// All items.
    pub(in crate::engine) fn iter(&self) -> impl Iterator<Item = &T> {
        self.items.iter().chain(&self.sent)
    }

    /// Takes the remaining items. The queue accepts nothing after this.
    pub(in crate::engine) fn close(&mut self) -> VecDeque<T> {
        self.closed = true;
        self.take_in(self.sent.len());
        std::mem::take(&mut self.items)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SPAN: Duration = Duration::from_secs(1);

    #[test]
    fn a_closed_queue_takes_nothing_and_gives_back_what_it_had() {
        let mut queue = Queue::default();
        assert_eq!(queue.push(1, false), Ok(()));
        assert_eq!(queue.push(2, false), Ok(()));
        assert_eq!(queue.push_sent(3), Ok(true));
        assert_eq!(queue.pop(), Some(1));
        assert_eq!(queue.close(), [3, 2]);
        assert_eq!(queue.push(4, false), Err(4));
        assert_eq!(queue.push_sent(4), Err(4));
        assert_eq!(queue.pop(), None);
    }

    #[test]
    fn what_was_sent_is_taken_in_order_as_far_as_replies_came() {
        let mut queue = Queue::default();
        (1..=3).for_each(|item| assert!(queue.push_sent(item).is_ok()));
        let came = |last: i32| {
            move |item: &i32| {
                if *item <= last {
                    Came::Reply
                } else {
                    Came::Nothing
                }
            }
        };
        assert_eq!(queue.oldest(came(2)), Oldest::Answered(1));
        assert_eq!(queue.oldest(came(2)), Oldest::Answered(2));
        assert_eq!(queue.oldest(came(2)), Oldest::Waits);
        assert_eq!(queue.pop(), None, "it waits for its reply");
        assert_eq!(queue.oldest(came(3)), Oldest::Answered(3));
        assert_eq!(queue.oldest(came(3)), Oldest::Waits);
    }

    /// Thousands of items that came back, each ended under the one before, overflowed the stack.
    #[test]
    fn one_caller_at_a_time_ends_what_is_answered() {
        let mut queue = Queue::default();
        assert!(queue.begin_ending());
        assert_eq!(queue.push_sent(1), Ok(true));
        assert!(!queue.begin_ending());
        assert_eq!(queue.oldest(|_| Came::Reply), Oldest::Answered(1));
        assert!(!queue.begin_ending());
        assert_eq!(queue.oldest(|_| Came::Reply), Oldest::Waits);
        assert!(queue.begin_ending());
        assert_eq!(queue.push_sent(2), Ok(true));
        assert_eq!(queue.oldest(|_| Came::Other), Oldest::TakenIn);
        assert!(queue.begin_ending());
    }

    #[test]
    fn what_needs_more_than_its_reply_is_run_and_all_behind_it() {
        let mut queue = Queue::default();
        assert!(queue.push(9, false).is_ok());
        (1..=3).for_each(|item| assert!(queue.push_sent(item).is_ok()));
        assert_eq!(queue.oldest(|_| Came::Other), Oldest::TakenIn);
        let run: Vec<_> = std::iter::from_fn(|| queue.pop()).collect();
        assert_eq!(run, [1, 2, 3, 9]);
    }

    #[test]
    fn what_has_no_reply_is_run_after_one_span_and_before_two() {
        let mut queue = Queue::default();
        let start = Instant::now();
        assert_eq!(queue.watch(start, SPAN), None);
        assert_eq!(queue.push_sent(1), Ok(true), "nobody watches");
        assert_eq!(queue.watch(start, SPAN), Some(start + SPAN));
        assert_eq!(queue.push_sent(2), Ok(false));
        assert_eq!(queue.oldest(|_| Came::Reply), Oldest::Answered(1));
        assert_eq!(queue.push_sent(3), Ok(false));
        // 2 and 3 were sent after the watch had begun, of which 2 counts: 1 has gone.
        assert_eq!(queue.watch(start + SPAN, SPAN), Some(start + 2 * SPAN));
        assert_eq!(queue.pop(), None);
        assert_eq!(queue.watch(start + 2 * SPAN, SPAN), None);
        assert_eq!(
            (queue.pop(), queue.pop(), queue.pop()),
            (Some(2), Some(3), None)
        );
        assert_eq!(queue.push_sent(4), Ok(true), "nobody watches any more");
    }
}
