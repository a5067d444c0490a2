//! What is written down.

/// Milliseconds on the clock that all share.
pub type Ms = u64;

/// What several clients did with what they share.
#[derive(Clone, Debug, Default)]
pub struct History {
    /// What the run was like.
    pub terms: Terms,
    /// By what Redis knows each process: the part of its owners before the number.
    pub clients: Vec<(String, u32)>,
    /// All acquisitions, granted or not.
    pub acquisitions: Vec<Acquisition>,
    /// What was done with latches.
    pub latches: Vec<LatchCall>,
    /// What fair queues looked like, whenever one changed.
    pub sights: Vec<Sight>,
    /// When whom a fault struck.
    pub strikes: Vec<Strike>,
    /// What the server forgot although it should not have.
    pub wiped: Vec<Wiped>,
    /// When the run was over.
    pub end: Ms,
}

/// What a run was like, as far as the rules ask.
#[derive(Clone, Copy, Debug, Default)]
pub struct Terms {
    /// The longest way of a message, one way.
    pub latency: Ms,
    /// How long the waiters of a silent client count as alive.
    pub waiter_timeout: Ms,
    /// The bound of a call that waits for nobody.
    pub response: Ms,
    /// The bound of connecting.
    pub connect: Ms,
    /// How many in a hundred any clock may be fast or slow.
    pub skew_percent: Ms,
}

/// Who may hold it at the same time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// One.
    Exclusive,
    /// All that share, and nobody else.
    Shared,
    /// So many of so many.
    Permits {
        /// How many this one takes.
        taken: u32,
        /// How many there are.
        limit: u32,
    },
}

/// One call for a lock or for permits, and the hold that came of it.
#[derive(Clone, Debug)]
pub struct Acquisition {
    /// The process that called.
    pub process: u32,
    /// What was asked for.
    pub key: String,
    /// How.
    pub mode: Mode,
    /// Whether waiters are told of a release, rather than look now and then.
    pub announced: bool,
    /// When it was called.
    pub called: Ms,
    /// For how long it was to wait at most.
    pub bound: Option<Ms>,
    /// When and how it ended; `None` where its process ended before, or the run.
    pub returned: Option<(Ms, Outcome)>,
    /// What was given out.
    pub grant: Option<Grant>,
}

/// How an acquisition ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It was given out.
    Granted,
    /// Somebody else had it, and the call was not to wait.
    Refused,
    /// The wait was over.
    TimedOut,
    /// Another error, in words.
    Failed(String),
    /// The caller dropped it.
    Cancelled,
}

/// What was given out.
#[derive(Clone, Debug)]
pub struct Grant {
    /// Who holds it, as Redis knows it.
    pub owner: String,
    /// When the caller had it.
    pub at: Ms,
    /// The last moment at which the guard was seen to say that it is held.
    pub believed: Ms,
    /// The fencing token.
    pub token: Option<u64>,
    /// How long it lives without renewal; `None`: for ever.
    pub lease: Option<Ms>,
    /// When its end began, and how.
    pub ended: Option<(Ms, End)>,
}

/// How a hold ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// It was released and the answer awaited, or its guard dropped.
    Released,
    /// Nobody released it: its lease ends it, if it has one.
    Left,
}

/// One call on a latch.
#[derive(Clone, Debug)]
pub struct LatchCall {
    /// The process that called.
    pub process: u32,
    /// The latch.
    pub key: String,
    /// When it was called.
    pub called: Ms,
    /// What was done.
    pub act: LatchAct,
    /// When it returned without an error, and the number that it returned: what is left of the
    /// count, or for a look, what it saw.
    pub returned: Option<(Ms, u64)>,
}

/// What is done with a latch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LatchAct {
    /// Gave it this count.
    Set(u64),
    /// Counted down by one.
    CountDown,
    /// Waited until it opened.
    Wait,
    /// Looked at its count.
    Look,
}

/// A fair queue as it stood in Redis.
#[derive(Clone, Debug)]
pub struct Sight {
    /// When.
    pub at: Ms,
    /// Whose.
    pub key: String,
    /// The owners that are queued, first to last.
    pub queue: Vec<String>,
    /// Who holds the lock.
    pub holder: Option<String>,
}

/// A time in which a fault, or what follows from it, may have changed what is promised otherwise.
#[derive(Clone, Debug)]
pub struct Strike {
    /// When it began.
    pub from: Ms,
    /// When its consequences were over.
    pub until: Ms,
    /// The process that it struck; `None`: all of them.
    pub process: Option<u32>,
    /// Whether the process stood still meanwhile, timers and all.
    pub stands: bool,
}

/// Redis forgot something.
#[derive(Clone, Debug)]
pub struct Wiped {
    /// When.
    pub at: Ms,
    /// Until when somebody may have been asked who still knew it: a server that was replaced, and
    /// to which connections still led. The same as `at` where there was none.
    pub until: Ms,
    /// What; `None`: everything.
    pub key: Option<String>,
}

impl History {
    /// Whether no fault struck this process in that time.
    pub fn is_calm(&self, process: u32, from: Ms, until: Ms) -> bool {
        !self.strikes.iter().any(|strike| {
            strike.process.is_none_or(|struck| struck == process)
                && strike.from <= until
                && from <= strike.until
        })
    }

    /// Whether this process stood still in a part of that time.
    pub fn stood_still(&self, process: u32, from: Ms, until: Ms) -> bool {
        self.strikes.iter().any(|strike| {
            let stood = strike.stands && strike.process == Some(process);
            stood && strike.from <= until && from <= strike.until
        })
    }

    /// Whether no fault struck anybody in that time.
    pub fn is_all_calm(&self, from: Ms, until: Ms) -> bool {
        let mut strikes = self.strikes.iter();
        !strikes.any(|strike| strike.from <= until && from <= strike.until)
    }

    /// When Redis forgot this key.
    pub fn wiped(&self, key: &str) -> impl Iterator<Item = &Wiped> {
        let of_key = move |wiped: &&Wiped| wiped.key.as_deref().is_none_or(|of| of == key);
        self.wiped.iter().filter(of_key)
    }

    /// The keys that were asked for, each once.
    pub(super) fn keys(&self) -> Vec<&str> {
        let mut keys: Vec<&str> = self.acquisitions.iter().map(|one| &*one.key).collect();
        keys.sort_unstable();
        keys.dedup();
        keys
    }

    /// The acquisitions of a key.
    pub(super) fn of_key(&self, key: &str) -> Vec<&Acquisition> {
        let all = self.acquisitions.iter();
        all.filter(|one| one.key == key).collect()
    }
}
