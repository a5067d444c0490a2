//! The local queues of all names that are waited for or held here.

#[cfg(all(test, redlock_loom))]
mod loom;

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fmt;
use std::future::poll_fn;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::Instant;

use super::hold::Hold;
use super::hub::{Hub, Listener, Subscription, Topic};
use super::line::{Exit, LineState, Refusal, Turn};
use super::news::News;
use super::waiters::{Health, Ticket};
use crate::clock;
use crate::name::LockName;
use crate::shim::{Mutex, lock};
use crate::wire::Recipe;

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Key {
    kind: &'static str,
    name: LockName,
    /// Of a waiter that has a place of its own in Redis; it is alone in its line.
    seat: Option<u64>,
}

impl Key {
    fn of(recipe: &dyn Recipe, seat: Option<u64>) -> Self {
        Self {
            kind: recipe.kind(),
            name: recipe.name().clone(),
            seat,
        }
    }
}

/// The registry. A line exists while somebody waits for its name or holds it.
///
/// # Lock order
///
/// The map's lock is taken when the last reference to a line is dropped, so no reference is dropped
/// under it.
#[derive(Debug, Default)]
pub(crate) struct Lines {
    map: Mutex<HashMap<Key, Weak<Line>>>,
    closed: AtomicBool,
    waiting: AtomicUsize,
}

/// The local queue of one name; see [`LineState`]. Forgotten with the last reference.
pub(crate) struct Line {
    lines: Arc<Lines>,
    key: Key,
    state: Mutex<LineState>,
    /// The hold of this client, where the kind has one holder at a time.
    holder: Mutex<Weak<Hold>>,
    /// The holds of this client, where the kind has several and another kind excludes them.
    sharers: Mutex<Sharers>,
    /// To the channel, while anybody waits.
    subscription: Subscription,
}

/// Holds, most of which have not ended.
#[derive(Debug, Default)]
struct Sharers {
    holds: Vec<Weak<Hold>>,
    /// With so many what has ended is forgotten.
    sweep_at: usize,
}

impl Sharers {
    /// Swept whenever they have doubled, each costs the same however many there are.
    fn add(&mut self, hold: &Arc<Hold>) {
        if self.holds.len() >= self.sweep_at {
            self.holds.retain(|hold| hold.strong_count() > 0);
            self.sweep_at = 2 * self.holds.len().max(8);
        }
        self.holds.push(Arc::downgrade(hold));
    }
}

impl Lines {
    /// The line of a name, made where there is none.
    pub(crate) fn line(self: &Arc<Self>, recipe: &dyn Recipe) -> Arc<Line> {
        self.line_of(Key::of(recipe, None))
    }

    /// The line of one waiter that has a place of its own in Redis.
    pub(crate) fn seat(self: &Arc<Self>, recipe: &dyn Recipe, number: u64) -> Arc<Line> {
        self.line_of(Key::of(recipe, Some(number)))
    }

    fn line_of(self: &Arc<Self>, key: Key) -> Arc<Line> {
        let mut map = lock(&self.map);
        let known = map.entry(key.clone()).or_default();
        let line = known.upgrade().unwrap_or_else(|| {
            let line = Arc::new(Line {
                lines: Arc::clone(self),
                key,
                state: Mutex::new(LineState::default()),
                holder: Mutex::new(Weak::new()),
                sharers: Mutex::default(),
                subscription: Subscription::default(),
            });
            *known = Arc::downgrade(&line);
            line
        });
        drop(map);
        // A line that was made while the lines were being closed is closed too.
        if self.closed.load(Ordering::Acquire) {
            line.close();
        }
        line
    }

    /// Whether this client itself holds the lock validly.
    pub(crate) fn is_held_here(&self, recipe: &dyn Recipe) -> bool {
        let key = Key::of(recipe, None);
        let line = lock(&self.map).get(&key).and_then(Weak::upgrade);
        line.is_some_and(|line| line.is_held())
    }

    /// The holds of this client in a lock of this kind.
    pub(super) fn holders(&self, kind: &'static str, name: &LockName) -> Vec<Arc<Hold>> {
        let (name, seat) = (name.clone(), None);
        let key = Key { kind, name, seat };
        let line = lock(&self.map).get(&key).and_then(Weak::upgrade);
        line.map_or_else(Vec::new, |line| line.holders())
    }

    /// Whether this client neither holds the lock nor waits for it.
    pub(crate) fn is_idle(&self, recipe: &dyn Recipe) -> bool {
        let key = Key::of(recipe, None);
        let line = lock(&self.map).get(&key).and_then(Weak::upgrade);
        line.is_none_or(|line| !line.is_held() && lock(&line.state).len() == 0)
    }

    /// Tells everybody who waits, and who will, that nothing is given out any more.
    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::Release);
        self.all().iter().for_each(|line| line.close());
    }

    /// Has the head of every queue look again.
    pub(super) fn notify_all(&self) {
        self.all().iter().for_each(|line| line.notify());
    }

    fn all(&self) -> Vec<Arc<Line>> {
        let map = lock(&self.map);
        map.values().filter_map(Weak::upgrade).collect()
    }

    /// The number of waiting tasks.
    pub(crate) fn waiting(&self) -> usize {
        // `Engine::task_ended` asks after the end of a task is marked, a waiter looks whether the
        // task runs after it is counted: one of the two must see the other.
        self.waiting.load(Ordering::SeqCst)
    }

    /// The number of names that are waited for or held here. Who has a seat has a line besides.
    pub(crate) fn len(&self) -> usize {
        let map = lock(&self.map);
        map.keys().filter(|key| key.seat.is_none()).count()
    }
}

impl Line {
    /// Joins the queue, and listens to the channel, if there is one, where that takes no command.
    /// Behind a hold of this client there is nothing to try before that ends; the head looks at
    /// `retry_at` all the same, since the end may go unannounced.
    pub(crate) fn enter(
        self: &Arc<Self>,
        hub: &Arc<Hub>,
        channel: Option<&str>,
        retry_at: Instant,
    ) -> Place {
        let mut state = lock(&self.state);
        let ticket = state.enter();
        let first = state.len() == 1;
        drop(state);
        self.lines.waiting.fetch_add(1, Ordering::SeqCst);
        if let Some(channel) = channel {
            let topic = Topic::Channel(channel);
            self.subscription.start_if_confirmed(hub, topic, self);
        }
        // Looked at only now that it has joined and listens: the end of a hold that is valid still
        // gives it a permit, by the announcement or by `released`.
        if first && !self.look_again() {
            lock(&self.state).set_retry(Some(retry_at));
        }
        Place {
            line: Arc::clone(self),
            ticket,
            trying: false,
            wants_much: false,
            served: None,
        }
    }

    /// Listens to the channel; the head is told when that is confirmed.
    pub(crate) fn listen(self: &Arc<Self>, hub: &Arc<Hub>, channel: &str) {
        self.subscription.start(hub, Topic::Channel(channel), self);
    }

    /// Has the head try, unless this client holds the lock: a guard stops being valid before its
    /// release is sent, so that release is still to come. Answers whether it has.
    fn look_again(&self) -> bool {
        let free = !self.is_held();
        if free {
            self.notify();
        }
        free
    }

    /// Something happened that makes a try worth while.
    pub(crate) fn notify(&self) {
        let waker = lock(&self.state).notify();
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    fn close(&self) {
        let wakers = lock(&self.state).close();
        wakers.into_iter().for_each(std::task::Waker::wake);
    }

    /// Answers the hold that was there before.
    pub(super) fn set_holder(&self, hold: &Arc<Hold>) -> Option<Arc<Hold>> {
        let new = Arc::downgrade(hold);
        let before = std::mem::replace(&mut *lock(&self.holder), new);
        before.upgrade()
    }

    /// Keeps one of several holds in mind.
    pub(super) fn add_sharer(&self, hold: &Arc<Hold>) {
        lock(&self.sharers).add(hold);
    }

    fn holders(&self) -> Vec<Arc<Hold>> {
        let one = lock(&self.holder).upgrade();
        let several = lock(&self.sharers);
        let several = several.holds.iter().filter_map(Weak::upgrade);
        one.into_iter().chain(several).collect()
    }

    fn is_held(&self) -> bool {
        let holder = lock(&self.holder).upgrade();
        holder.is_some_and(|hold| hold.is_valid())
    }

    /// A hold of this client ended.
    pub(super) fn released(&self, hold: &Hold, news: &News) {
        let mut holder = lock(&self.holder);
        if std::ptr::eq(holder.as_ptr(), hold) {
            *holder = Weak::new();
        }
        drop(holder);
        // Where the announcement is heard, it wakes us as it does all other processes: who
        // released has no start over them. Where it is missed, the hub wakes us later. Other lines
        // may listen to the channel where this one does not.
        let told = hold.engine.ended(&*hold.recipe, news);
        if !(told && self.subscription.is_begun()) {
            self.notify();
        }
    }

    pub(super) fn set_health(&self, health: Health) {
        lock(&self.state).set_health(health);
    }

    pub(super) fn health(&self) -> Health {
        lock(&self.state).health()
    }

    pub(super) fn set_refusal(&self, refusal: Refusal) {
        lock(&self.state).set_refusal(refusal);
    }

    pub(super) fn refusal(&self) -> Refusal {
        lock(&self.state).refusal()
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        let mut map = lock(&self.lines.map);
        // Another line of this name may have been made since the last reference went.
        if let Entry::Occupied(entry) = map.entry(self.key.clone())
            && std::ptr::eq(entry.get().as_ptr(), self)
        {
            entry.remove();
        }
    }
}

impl Listener for Line {
    /// The head tries whatever is known here: a hold of this client may have been forced away before.
    fn confirmed(&self) {
        self.notify();
    }

    fn joined(&self) {
        self.look_again();
    }

    fn heard(&self, _channel: &str) {
        self.notify();
    }
}

impl fmt::Debug for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Line")
            .field("state", &*lock(&self.state))
            .finish_non_exhaustive()
    }
}

/// A place in the queue, left when dropped.
pub(crate) struct Place {
    pub(crate) line: Arc<Line>,
    ticket: Ticket,
    trying: bool,
    /// Who stands behind may have what this one was refused.
    pub(super) wants_much: bool,
    /// Whether the lock that it leaves with is shared, and there is more of it.
    served: Option<(bool, bool)>,
}

/// Why a waiting caller was called.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Called {
    Turn(Turn),
    /// The wait is over.
    TimedOut,
}

impl Place {
    /// Waits to be called.
    pub(crate) async fn called(&mut self, deadline: Option<Instant>) -> Called {
        let line = &*self.line;
        let ticket = self.ticket;
        let mut waited = false;
        loop {
            let turn = poll_fn(|cx| {
                let turn = lock(&line.state).poll(ticket, cx.waker());
                waited |= turn.is_pending();
                turn
            });
            let retry_at = lock(&line.state).retry_at(ticket);
            let Some(until) = retry_at.into_iter().chain(deadline).min() else {
                let turn = turn.await;
                self.trying |= turn == Turn::Try;
                return Called::Turn(turn);
            };
            let until = clock::to_tokio(until);
            let called = clock::timeout_at(until, turn).await;
            let now = clock::now();
            if let Ok(turn) = called {
                self.trying |= turn == Turn::Try;
                // Called by one who left with its wait over, as ours is: a try would be cut short
                // before it is answered. The permit passes on.
                if waited && turn == Turn::Try && deadline.is_some_and(|deadline| now >= deadline) {
                    return Called::TimedOut;
                }
                return Called::Turn(turn);
            }
            if deadline.is_some_and(|deadline| now >= deadline) {
                return Called::TimedOut;
            }
            if retry_at.is_some_and(|at| now >= at) {
                let mut state = lock(&line.state);
                state.set_retry(None);
                // To itself: only the head has a moment to retry at.
                drop(state.notify());
            }
        }
    }

    /// The try is over without success; look again at `retry_at` if nothing is announced before
    /// (`None`: only then).
    pub(crate) fn tried(&mut self, retry_at: Option<Instant>, health: Health) {
        self.trying = false;
        let mut state = lock(&self.line.state);
        state.set_retry(retry_at);
        state.set_health(health);
    }

    /// Leaves the queue with the lock, which others may have as well if it is `shared`, at once if there
    /// is `more` of it; those behind look again at `retry_at` at the latest.
    pub(crate) fn served(mut self, shared: bool, more: bool, retry_at: Instant) {
        self.served = Some((shared, more));
        let mut state = lock(&self.line.state);
        state.set_retry(Some(retry_at));
        state.set_refusal(Refusal::Held);
        state.set_health(Health::Answering);
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let exit = match self.served {
            Some((shared, more)) => Exit::Served { shared, more },
            None => Exit::GaveUp {
                trying: self.trying || self.wants_much,
            },
        };
        let mut state = lock(&self.line.state);
        let next = state.leave(self.ticket, exit);
        let alone = state.len() == 0;
        drop(state);
        self.line.lines.waiting.fetch_sub(1, Ordering::AcqRel);
        if alone {
            // Somebody may have come since; then it stays.
            let line = &self.line;
            line.subscription.end_if(|| lock(&line.state).len() == 0);
        }
        if let Some(waker) = next {
            waker.wake();
        }
    }
}

impl fmt::Debug for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Place")
            .field("ticket", &self.ticket)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::RLockWire;

    #[test]
    fn a_line_is_one_while_it_is_used_and_forgotten_after() {
        let wire = RLockWire::new(LockName::new(None, "n").unwrap());
        let lines = Arc::new(Lines::default());
        let line = lines.line(&wire);
        assert!(Arc::ptr_eq(&line, &lines.line(&wire)));
        assert_eq!(lines.len(), 1);
        drop(line);
        assert_eq!(lines.len(), 0);
    }

    #[test]
    fn a_line_whose_last_reference_goes_while_another_comes_leaves_no_trace() {
        let lines = Arc::new(Lines::default());
        let threads: Vec<_> = (0..4)
            .map(|_| {
                let lines = Arc::clone(&lines);
                std::thread::spawn(move || {
                    let wire = RLockWire::new(LockName::new(None, "n").unwrap());
                    for _ in 0..50_000 {
                        let line = lines.line(&wire);
                        // In use: whoever asks gets the same.
                        assert!(Arc::ptr_eq(&line, &lines.line(&wire)));
                    }
                })
            })
            .collect();
        threads
            .into_iter()
            .for_each(|thread| thread.join().unwrap());
        assert_eq!(lines.len(), 0);
    }
}
