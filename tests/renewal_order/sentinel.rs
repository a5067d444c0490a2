//! Watches the sent frames, and knows the holds whose guards have ended.

use std::{collections::BTreeSet, ops::AddAssign};

use tests::{Frame, Wires, script_text};

/// Counts of events, to check that the test covers them.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Tally {
    /// Owners named by renewals.
    pub(crate) renewals: u64,
    /// Last guards that ended.
    pub(crate) ends: u64,
    /// Guards that ended while nothing was on its way to the connection.
    pub(crate) exact: u64,
    /// Guards whose renewal was written, and not yet answered.
    pub(crate) answering: u64,
    /// Renewals that were already on their way when the guard ended.
    pub(crate) overtaken: u64,
    /// The number of times that the script of renewals was loaded.
    pub(crate) unknown: u64,
    pub(crate) cut: u64,
    /// Owners that went on with another guard.
    pub(crate) handed: u64,
    /// Owners that have the lock without having asked since a release named them.
    pub(crate) grants: u64,
    /// Owners named by renewals, of those.
    pub(crate) followers: u64,
}

impl AddAssign for Tally {
    fn add_assign(&mut self, other: Self) {
        self.renewals += other.renewals;
        self.ends += other.ends;
        self.exact += other.exact;
        self.answering += other.answering;
        self.overtaken += other.overtaken;
        self.unknown += other.unknown;
        self.cut += other.cut;
        self.handed += other.handed;
        self.grants += other.grants;
        self.followers += other.followers;
    }
}

/// The rule, and the state that it needs.
///
/// A renewal counts as sent when it was handed to its connection, whose driver writes it when it
/// is polled next. So what is written in the driver's first poll after a guard ended may have been
/// handed over before that end, and is let pass: unless nothing was on its way, because since the
/// driver's last poll, or since no task had anything to do, only drivers were polled. Whatever is
/// written later was handed over later.
pub(crate) struct Sentinel {
    wires: Wires,
    scripts: Scripts,
    /// The number of checked frames.
    seen: usize,
    /// The number of connections so far, and of those that are open.
    connections: (u64, usize),
    /// Whether nothing had anything to do since that changed. Renewals use the connection for commands
    /// where there is no other, so what was handed over before may be on its way to another driver.
    settled: bool,
    /// The number of checks since a connection was last read or written.
    quiet: usize,
    /// The connection of renewals, while no other was opened or has ended since its last one.
    renewals: Option<u64>,
    /// Nothing is on its way to the driver.
    clean: bool,
    /// The owners that ever had a guard.
    begun: BTreeSet<String>,
    /// The owners that have ended.
    ended: BTreeSet<String>,
    /// The owners that a release named, and that have not asked since.
    named: BTreeSet<String>,
    /// Those of these that have the lock.
    followers: BTreeSet<String>,
    /// Ended owners whose renewal may still be on its way to the driver.
    under_way: BTreeSet<String>,
    /// The owners named by the last renewal, until its driver had something else to do.
    unanswered: BTreeSet<String>,
    pub(crate) tally: Tally,
}

struct Script {
    text: String,
    sha: String,
}

struct Scripts {
    renewal: Script,
    fair_release: Script,
    fair_acquire: Script,
}

impl Sentinel {
    pub(crate) fn new(wires: &Wires) -> Self {
        let scripts = Scripts {
            renewal: Script::new("renew"),
            fair_release: Script::new("fair_release"),
            fair_acquire: Script::new("fair_acquire"),
        };
        Self {
            wires: wires.clone(),
            scripts,
            seen: 0,
            connections: (0, 0),
            settled: false,
            quiet: 0,
            renewals: None,
            clean: false,
            begun: BTreeSet::new(),
            ended: BTreeSet::new(),
            named: BTreeSet::new(),
            followers: BTreeSet::new(),
            under_way: BTreeSet::new(),
            unanswered: BTreeSet::new(),
            tally: Tally::default(),
        }
    }

    /// The number of checks since a connection was last read or written.
    pub(crate) fn quiet(&self) -> usize {
        self.quiet
    }

    /// The end of the owner's last guard begins now.
    pub(crate) fn ends(&mut self, owner: &str) {
        self.tally.ends += 1;
        self.tally.exact += u64::from(self.clean);
        self.tally.answering += u64::from(self.unanswered.contains(owner));
        assert!(self.ended.insert(owner.to_owned()), "{owner} ended twice");
        if !self.clean {
            self.under_way.insert(owner.to_owned());
        }
    }

    /// There is a guard of the owner: it is another owner, or the hold was handed over by one.
    pub(crate) fn begins(&mut self, owner: &str) {
        self.tally.handed += u64::from(self.ended.remove(owner));
        self.under_way.remove(owner);
        if !self.begun.insert(owner.to_owned()) {
            return;
        }
        if self.named.contains(owner) {
            self.tally.grants += 1;
            self.followers.insert(owner.to_owned());
        }
    }

    /// A task is about to run. What was polled since the last look was polled by dropped guards,
    /// which write their releases themselves.
    pub(crate) fn hands_over(&mut self) {
        self.wires.take_polled();
    }

    /// Looks at what was sent since the last look. Since then one task ran; or, where it is
    /// `idle`, all until none had anything to do.
    pub(crate) fn look(&mut self, idle: bool) {
        let polled = self.wires.take_polled();
        self.quiet = if polled.is_empty() { self.quiet + 1 } else { 0 };
        let connections = (self.wires.opened(), self.wires.open());
        if self.connections != connections {
            self.connections = connections;
            self.renewals = None;
            self.settled = false;
        }
        let sent = self.tally.renewals;
        if self.wires.count() > self.seen {
            for frame in self.wires.frames(self.seen) {
                self.seen += 1;
                self.judge(&frame);
            }
        }
        let driver = self.renewals.is_some_and(|number| polled.contains(&number));
        self.settled |= idle;
        if idle || driver {
            self.clean = true;
            self.under_way.clear();
        } else {
            // Not a driver: it may have been the watchdog.
            self.clean &= !polled.is_empty();
        }
        if driver && self.tally.renewals == sent {
            self.unanswered.clear();
        }
    }

    fn judge(&mut self, frame: &Frame) {
        let Scripts {
            renewal,
            fair_release,
            fair_acquire,
        } = &self.scripts;
        if frame.command() == "SCRIPT" {
            self.tally.unknown += u64::from(frame.text(2) == renewal.text);
        }
        if renewal.is_called(frame) {
            self.judge_renewal(frame);
        } else if fair_release.is_called(frame) {
            let waiters = (5..).step_by(2).map(|at| Script::argument(frame, at));
            let named: Vec<_> = waiters.take_while(|name| !name.is_empty()).collect();
            if !named.is_empty() {
                self.follows(&Script::argument(frame, 4), frame);
            }
            self.named.extend(named);
        } else if fair_acquire.is_called(frame) {
            self.named.remove(&Script::argument(frame, 5));
        }
    }

    /// What makes another owner the holder ends this one. One whose lease was over at once had no guard.
    fn follows(&self, before: &str, frame: &Frame) {
        let has_guard = self.begun.contains(before) && !self.ended.contains(before);
        assert!(!has_guard, "{before} has a guard: {frame:?}");
    }

    fn judge_renewal(&mut self, frame: &Frame) {
        self.renewals = self.settled.then_some(frame.connection);
        self.unanswered = Script::owners(frame);
        for owner in &self.unanswered {
            self.tally.renewals += 1;
            self.tally.followers += u64::from(self.followers.contains(owner));
            assert!(
                self.begun.contains(owner),
                "{owner} never had a guard: {frame:?}"
            );
            if !self.ended.contains(owner) {
                continue;
            }
            let overtaken = self.under_way.contains(owner);
            assert!(
                overtaken,
                "{owner} had ended before this was sent: {frame:?}"
            );
            self.tally.overtaken += 1;
        }
    }
}

impl Script {
    fn new(name: &str) -> Self {
        let text = script_text(name);
        let sha = sha1_smol::Sha1::from(text.as_str()).digest().to_string();
        Self { text, sha }
    }

    fn is_called(&self, frame: &Frame) -> bool {
        match &*frame.command() {
            "EVALSHA" => frame.text(1) == self.sha,
            "EVAL" => frame.text(1) == self.text,
            _ => false,
        }
    }

    /// An argument behind the keys; empty if there is none.
    fn argument(frame: &Frame, index: usize) -> String {
        frame.text(3 + Self::keys(frame) + index)
    }

    fn keys(frame: &Frame) -> usize {
        frame.text(2).parse().unwrap()
    }

    /// The owners among the arguments: a lease, an owner, a prefix, ids of permits and the longest lease for
    /// each key.
    fn owners(frame: &Frame) -> BTreeSet<String> {
        let keys = Self::keys(frame);
        let owners = (0..keys).map(|key| Self::argument(frame, 5 * key + 1));
        let owners: BTreeSet<String> = owners.collect();
        assert_eq!(frame.args.len(), 3 + 6 * keys, "{frame:?}");
        assert!(owners.iter().all(|owner| owner.contains(':')), "{frame:?}");
        owners
    }
}
