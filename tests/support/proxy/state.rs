//! The state that the test's handle and the connections share: the log, the faults, the connections.
//!
//! Every decision about a frame is made under one lock. So when a call that sets a fault returns, the
//! fault applies to all frames that are not decided yet.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};

use bytes::Bytes;
use tokio::sync::watch;

use super::{
    CALLS,
    frame::{Frame, Matcher, Which},
    gate::GateState,
};
use crate::lock;

/// The direction of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// From the client to the server.
    Request,
    /// The server's answer; rules see the frame of the request.
    Reply,
    /// Pushed by the server to a subscriber.
    Message,
}

#[derive(Clone, Debug)]
pub(super) enum Action {
    Hold(Arc<GateState>),
    Delay(Duration),
    Swallow,
    Cut,
    /// Answer this in place of the server, which never sees the request.
    Answer(Bytes),
}

#[derive(Debug)]
struct Rule {
    id: u64,
    phase: Phase,
    matcher: Matcher,
    action: Action,
    /// `None` = for ever.
    left: Option<usize>,
    /// A frame has to meet it yet.
    is_due: bool,
}

/// The decision about a frame.
#[derive(Debug)]
pub(super) enum Decision {
    Pass,
    /// Ask again when the faults have changed.
    Wait(watch::Receiver<u64>),
    /// Do this, then ask again if it was a hold or a delay.
    Apply(u64, Action),
}

/// The progress of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Progress {
    Arrived,
    Forwarded,
    /// The whole answer was passed to the client.
    Answered,
}

#[derive(Debug)]
struct Link {
    /// The commands it has sent.
    sent: BTreeSet<String>,
    cut: watch::Sender<bool>,
    /// Kept after its end, for the log.
    closed: bool,
}

#[derive(Debug, Default)]
struct Inner {
    log: Vec<(u64, Frame, Progress)>,
    next_frame: u64,
    rules: Vec<Rule>,
    next_rule: u64,
    links: BTreeMap<u64, Link>,
    next_link: u64,
    silent: Option<Which>,
    /// Of the faults that are over, those that no frame has met, though one had to.
    unmet: Vec<Matcher>,
    is_excused: bool,
}

#[derive(Debug, Default)]
pub(super) struct State {
    inner: Mutex<Inner>,
    /// Counts changes of the log.
    pub(super) logged: watch::Sender<u64>,
    /// Counts changes of the faults.
    faults: watch::Sender<u64>,
}

impl State {
    pub(super) fn open_link(&self) -> (u64, watch::Receiver<bool>) {
        let mut inner = self.lock();
        inner.next_link += 1;
        let (id, cut) = (inner.next_link, watch::Sender::new(false));
        let receiver = cut.subscribe();
        inner.links.insert(
            id,
            Link {
                sent: BTreeSet::new(),
                cut,
                closed: false,
            },
        );
        (id, receiver)
    }

    pub(super) fn close_link(&self, id: u64) {
        if let Some(link) = self.lock().links.get_mut(&id) {
            link.closed = true;
        }
        self.logged.send_modify(|count| *count += 1);
    }

    /// Notes an incoming request, and returns its number.
    pub(super) fn arrived(&self, frame: &Frame) -> u64 {
        let mut inner = self.lock();
        inner.next_frame += 1;
        let number = inner.next_frame;
        inner.log.push((number, frame.clone(), Progress::Arrived));
        if let Some(link) = inner.links.get_mut(&frame.connection) {
            link.sent.insert(frame.command());
        }
        drop(inner);
        self.logged.send_modify(|count| *count += 1);
        number
    }

    pub(super) fn progress(&self, number: u64, progress: Progress) {
        let mut inner = self.lock();
        // Missing if a mark has cleared the log.
        let found = inner
            .log
            .binary_search_by_key(&number, |(number, ..)| *number);
        if let Ok(index) = found {
            let so_far = &mut inner.log[index].2;
            *so_far = progress.max(*so_far);
        }
        drop(inner);
        self.logged.send_modify(|count| *count += 1);
    }

    /// Decides about a frame to which the rules in `applied` were applied already.
    pub(super) fn decide(&self, phase: Phase, frame: &Frame, applied: &[u64]) -> Decision {
        let mut inner = self.lock();
        let inner = &mut *inner;
        let Some(link) = inner.links.get(&frame.connection) else {
            return Decision::Apply(0, Action::Cut);
        };
        if !link.is_open() {
            return Decision::Apply(0, Action::Cut);
        }
        if inner
            .silent
            .is_some_and(|which| link.is(which, frame.connection))
        {
            // Subscribed under the lock: the change cannot be missed.
            return Decision::Wait(self.faults.subscribe());
        }
        for rule in &mut inner.rules {
            let applies = rule.phase == phase
                && rule.left != Some(0)
                && !applied.contains(&rule.id)
                && link.is(rule.matcher.which(), frame.connection)
                && rule.matcher.matches(frame);
            if !applies || matches!(&rule.action, Action::Hold(gate) if gate.is_open()) {
                continue;
            }
            rule.is_due = false;
            if let Some(left) = &mut rule.left {
                *left -= 1;
            }
            return Decision::Apply(rule.id, rule.action.clone());
        }
        Decision::Pass
    }

    /// `left`: for so many frames, `None` for all. `is_due`: one has to meet it.
    pub(super) fn add_rule(
        &self,
        phase: Phase,
        matcher: Matcher,
        action: Action,
        left: Option<usize>,
        is_due: bool,
    ) {
        let mut inner = self.lock();
        inner.next_rule += 1;
        let id = inner.next_rule;
        inner.rules.push(Rule {
            id,
            phase,
            matcher,
            action,
            left,
            is_due,
        });
    }

    pub(super) fn clear_rules(&self) {
        let mut inner = self.lock();
        let inner = &mut *inner;
        for rule in inner.rules.drain(..) {
            if rule.is_due {
                inner.unmet.push(rule.matcher);
            }
            if let Action::Hold(gate) = rule.action {
                gate.open();
            }
        }
    }

    /// No frame has to meet any fault.
    pub(super) fn excuse(&self) {
        self.lock().is_excused = true;
    }

    /// Of the faults that a frame has to meet, those that none has met.
    pub(super) fn unmet(&self) -> Vec<Matcher> {
        let mut inner = self.lock();
        let over = std::mem::take(&mut inner.unmet);
        let rules = inner.rules.iter().filter(|rule| rule.is_due);
        let unmet = over
            .into_iter()
            .chain(rules.map(|rule| rule.matcher.clone()));
        unmet.filter(|_| !inner.is_excused).collect()
    }

    pub(super) fn set_silent(&self, which: Option<Which>) {
        self.lock().silent = which;
        self.faults.send_modify(|count| *count += 1);
    }

    /// Cuts these connections, and returns how many there were.
    pub(super) fn cut(&self, which: Which) -> usize {
        let inner = self.lock();
        let mut count = 0;
        for (id, link) in &inner.links {
            if link.is_open() && link.is(which, *id) {
                link.cut.send_replace(true);
                count += 1;
            }
        }
        count
    }

    /// These connections, as far as they are open.
    pub(super) fn links(&self, which: Which) -> Vec<u64> {
        let inner = self.lock();
        let meant = inner
            .links
            .iter()
            .filter(|(id, link)| link.is_open() && link.is(which, **id));
        meant.map(|(id, _)| *id).collect()
    }

    pub(super) fn clear_log(&self) {
        self.lock().log.clear();
    }

    pub(super) fn frames(&self) -> Vec<Frame> {
        self.lock()
            .log
            .iter()
            .map(|(_, frame, _)| frame.clone())
            .collect()
    }

    /// The number of matching frames in the log with at least this progress.
    pub(super) fn count(&self, matcher: &Matcher, least: Progress) -> usize {
        let inner = self.lock();
        let meant = |frame: &Frame| {
            let link = inner.links.get(&frame.connection);
            link.is_some_and(|link| link.is(matcher.which(), frame.connection))
        };
        let matching = inner.log.iter().filter(|(_, frame, progress)| {
            *progress >= least && meant(frame) && matcher.matches(frame)
        });
        matching.count()
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        // A panicking matcher of a test leaves the state whole.
        lock(&self.inner)
    }
}

impl Link {
    fn is_open(&self) -> bool {
        !self.closed && !*self.cut.borrow()
    }

    fn is(&self, which: Which, id: u64) -> bool {
        let sent = |commands: &[&str]| commands.iter().any(|command| self.sent.contains(*command));
        match which {
            Which::All => true,
            Which::Subscribers => sent(&["SUBSCRIBE", "PSUBSCRIBE", "SSUBSCRIBE"]),
            Which::Scripts => sent(&CALLS),
            Which::Connection(number) => number == id,
        }
    }
}
