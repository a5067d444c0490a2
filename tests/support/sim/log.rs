//! What is written down while a simulation runs: the history, and the time line.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use tokio::time::Instant;

use crate::history::{
    Acquisition, Again, End, Grant, History, LatchCall, Mode, Ms, Outcome, Part, TimedCall,
};
use crate::lock;

/// One host's clock beside that of the simulation.
#[derive(Clone)]
pub(super) struct Clock(Arc<Mutex<Anchor>>);

struct Anchor {
    /// A moment on the host's clock, and the simulation's time then.
    host: Option<Instant>,
    time: Ms,
    /// How far the host may run from there.
    window: Ms,
}

impl Clock {
    pub(super) fn new() -> Self {
        Self(Arc::new(Mutex::new(Anchor {
            host: None,
            time: 0,
            window: 0,
        })))
    }

    fn lock(&self) -> MutexGuard<'_, Anchor> {
        lock(&self.0)
    }

    /// From now on the host runs for so long; to be called inside its runtime.
    pub(super) fn begin(&self, time: Ms, window: Ms) {
        let host = Some(Instant::now());
        *self.lock() = Anchor { host, time, window };
    }

    /// The simulation's time, as the host sees it.
    pub(super) fn now(&self) -> Ms {
        let anchor = self.lock();
        let passed = anchor.host.map_or(Duration::ZERO, |host| {
            // In a destructor outside of the runtime there is no clock to ask.
            match tokio::runtime::Handle::try_current() {
                Ok(_) => Instant::now().saturating_duration_since(host),
                Err(_) => Duration::ZERO,
            }
        });
        let passed = u64::try_from(passed.as_millis()).unwrap_or(0);
        anchor.time + passed.min(anchor.window)
    }
}

/// What all write to.
#[derive(Clone)]
pub(super) struct Log(Arc<Mutex<Written>>);

#[derive(Default)]
pub(super) struct Written {
    pub(super) history: History,
    pub(super) lines: Vec<(Ms, String)>,
    /// A client was shut down before Redis had answered all that it had to say.
    pub(super) undelivered: bool,
    /// On which host each process ran.
    pub(super) hosts: Vec<(u32, usize)>,
    /// Processes that are no more: what their remains do, nobody sees.
    ended: BTreeSet<u32>,
}

impl Log {
    pub(super) fn new() -> Self {
        Self(Arc::default())
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Written> {
        lock(&self.0)
    }

    pub(super) fn line(&self, at: Ms, text: impl Into<String>) {
        self.lock().lines.push((at, text.into()));
    }

    /// A process has crashed: nobody hears of it any more, and what it held is left.
    pub(super) fn crashed(&self, process: u32, at: Ms) {
        let mut written = self.lock();
        written.ended.insert(process);
        written.history.crashed.push((process, at));
        let calls = written.history.latches.iter_mut();
        for call in calls.filter(|call| call.process == process) {
            call.over.get_or_insert(at);
        }
        for one in &mut written.history.acquisitions {
            if one.process == process && one.returned.is_none() {
                one.returned = Some((at, Outcome::Died));
            }
            let Some(grant) = one.grant.as_mut().filter(|_| one.process == process) else {
                continue;
            };
            // A release that nobody saw the end of may not have been heard.
            grant.ended = Some((grant.ended.map_or(at, |(at, _)| at), End::Left));
        }
    }

    /// Begins to write down a call.
    pub(super) fn call(&self, clock: &Clock, who: String, of: Acquisition) -> Entry {
        let mut written = self.lock();
        let place = written.history.acquisitions.len();
        let process = of.process;
        let line = format!(
            "{who} asks for {} ({:?}, wait {:?})",
            of.key, of.mode, of.bound
        );
        written.lines.push((of.called, line));
        written.history.acquisitions.push(of);
        Entry {
            log: self.clone(),
            clock: clock.clone(),
            place,
            process,
            who,
            over: false,
        }
    }

    /// Begins to write down what is done with a latch.
    pub(super) fn latch(&self, clock: &Clock, call: LatchCall) -> LatchEntry {
        let mut written = self.lock();
        let place = written.history.latches.len();
        written.history.latches.push(call);
        LatchEntry {
            log: self.clone(),
            clock: clock.clone(),
            place,
        }
    }

    /// Begins to write down a call that waits for nobody.
    pub(super) fn timed(&self, call: TimedCall) -> usize {
        let mut written = self.lock();
        written.history.calls.push(call);
        written.history.calls.len() - 1
    }

    /// Such a call has returned.
    pub(super) fn has_returned(&self, call: usize, process: u32, now: Ms) {
        let mut written = self.lock();
        if !written.ended.contains(&process) {
            written.history.calls[call].returned = Some(now);
        }
    }
}

/// One acquisition that is under way, or its hold. Dropped in the middle, it was cancelled.
pub(super) struct Entry {
    log: Log,
    clock: Clock,
    place: usize,
    pub(super) process: u32,
    who: String,
    over: bool,
}

impl Entry {
    fn write(&self, line: &str, change: impl FnOnce(&mut Acquisition, Ms)) {
        let now = self.clock.now();
        let mut written = self.log.lock();
        if written.ended.contains(&self.process) {
            return;
        }
        let key = written.history.acquisitions[self.place].key.clone();
        if !line.is_empty() {
            written
                .lines
                .push((now, format!("{} {line} {key}", self.who)));
        }
        change(&mut written.history.acquisitions[self.place], now);
    }

    /// The same, where it was given out, of what was.
    fn write_grant(&self, line: &str, change: impl FnOnce(&mut Grant, Ms)) {
        self.write(line, |one, now| {
            if let Some(grant) = &mut one.grant {
                change(grant, now);
            }
        });
    }

    /// It was given out.
    pub(super) fn granted(
        &self,
        owner: &str,
        token: Option<u64>,
        (lease, renewed): (Option<Ms>, bool),
        valid: bool,
    ) {
        self.write(&format!("has (as {owner}, token {token:?})"), |one, now| {
            one.returned = Some((now, Outcome::Granted));
            one.grant = valid.then(|| Grant {
                owner: owner.to_owned(),
                at: now,
                believed: now,
                token,
                lease,
                lengthened: 0,
                renewed,
                lost: None,
                again: Vec::new(),
                ended: None,
            });
        });
    }

    pub(super) fn who(&self) -> &str {
        &self.who
    }

    /// Its place in the history.
    pub(super) fn place(&self) -> usize {
        self.place
    }

    /// Whether it was given out.
    pub(super) fn is_granted(&self) -> bool {
        let written = self.log.lock();
        written.history.acquisitions[self.place].grant.is_some()
    }

    /// It was not given out.
    pub(super) fn refused(mut self, outcome: Outcome) {
        self.over = true;
        self.write(&format!("does not get ({outcome:?})"), |one, now| {
            one.returned = Some((now, outcome));
        });
    }

    /// The guard says that it is held, and on several servers, as whom.
    pub(super) fn believes(&self, parts: &[String]) {
        self.write_grant("", |grant, now| grant.believed = now);
        if !parts.is_empty() {
            self.has_parts(parts);
        }
    }

    fn has_parts(&self, parts: &[String]) {
        let now = self.clock.now();
        let mut written = self.log.lock();
        if written.ended.contains(&self.process) {
            return;
        }
        let known = written.history.parts.iter();
        let mine: Vec<String> = known
            .filter(|part| part.acquisition == self.place)
            .map(|part| part.owner.clone())
            .collect();
        for owner in parts.iter().filter(|owner| !mine.contains(owner)) {
            let part = Part {
                acquisition: self.place,
                owner: owner.clone(),
                from: now,
            };
            written.history.parts.push(part);
        }
    }

    /// The guard says that it is lost.
    pub(super) fn loses(&self) {
        self.write_grant("", |grant, now| {
            grant.lost.get_or_insert(now);
        });
    }

    /// A conversion to this mode begins: the end of this hold, and a try for the next.
    pub(super) fn converts(&self, mode: Mode) -> Self {
        self.ends("converts");
        let now = self.clock.now();
        let before = self.log.lock().history.acquisitions[self.place].clone();
        let of = Acquisition {
            mode,
            called: now,
            bound: Some(0),
            ack: None,
            returned: None,
            grant: None,
            ..before
        };
        self.log.call(&self.clock, self.who.clone(), of)
    }

    /// The hold did not end after all.
    pub(super) fn goes_on(&self) {
        self.write_grant("goes on with", |grant, _| grant.ended = None);
    }

    /// It is about to be taken once more.
    pub(super) fn again(&self) -> AgainEntry<'_> {
        let mut place = 0;
        self.write_grant("", |grant, called| {
            place = grant.again.len();
            grant.again.push(Again {
                called,
                at: None,
                ended: None,
            });
        });
        AgainEntry { of: self, place }
    }

    /// Something happened meanwhile.
    pub(super) fn note(&self, what: &str) {
        self.write(what, |_, _| {});
    }

    /// The lease is another.
    pub(super) fn lengthened(&self, lease: Ms) {
        self.write_grant(&format!("asks for {lease} ms of"), |grant, _| {
            grant.lengthened = grant.lengthened.max(lease);
        });
    }

    /// The end of the hold begins.
    pub(super) fn ends(&self, how: &str) {
        self.write_grant(how, |grant, now| grant.ended = Some((now, End::Released)));
    }

    /// All is over.
    pub(super) fn over(mut self, how: &str) {
        self.over = true;
        self.note(how);
    }
}

/// A call on a latch. Dropped, it is over.
pub(super) struct LatchEntry {
    log: Log,
    clock: Clock,
    place: usize,
}

impl LatchEntry {
    /// It has returned; `number`: what it returned, unless it failed.
    pub(super) fn returned(self, number: Option<u64>) {
        let now = self.clock.now();
        let mut written = self.log.lock();
        let call = &mut written.history.latches[self.place];
        // Of a process that has crashed nobody hears.
        if call.over.is_some() {
            return;
        }
        call.over = Some(now);
        call.returned = number.map(|number| (now, number));
        let line = format!("{:?} of {} returned {number:?}", call.act, call.key);
        written.lines.push((now, line));
    }
}

impl Drop for LatchEntry {
    fn drop(&mut self) {
        let now = self.clock.now();
        let mut written = self.log.lock();
        written.history.latches[self.place].over.get_or_insert(now);
    }
}

/// A hold that is taken once more. Dropped, that has ended.
pub(super) struct AgainEntry<'a> {
    of: &'a Entry,
    place: usize,
}

impl AgainEntry<'_> {
    fn write(&self, change: impl FnOnce(&mut Again, Ms)) {
        self.of.write_grant("", |grant, now| {
            if let Some(again) = grant.again.get_mut(self.place) {
                change(again, now);
            }
        });
    }

    /// The second guard is there.
    pub(super) fn had(&mut self) {
        self.write(|again, now| again.at = Some(now));
    }

    /// Its end begins.
    pub(super) fn ends(&mut self) {
        self.write(|again, now| {
            again.ended.get_or_insert(now);
        });
    }
}

impl Drop for AgainEntry<'_> {
    fn drop(&mut self) {
        self.ends();
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        if self.over {
            return;
        }
        self.write("is dropped with", |one, now| {
            if one.returned.is_none() {
                one.returned = Some((now, Outcome::Cancelled));
            }
            if let Some(grant) = one.grant.as_mut().filter(|grant| grant.ended.is_none()) {
                grant.ended = Some((now, End::Released));
            }
        });
    }
}
