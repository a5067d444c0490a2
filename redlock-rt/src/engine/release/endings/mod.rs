//! The differences between the kinds of final calls.

mod once;
mod release;
mod update;
mod withdrawal;

use std::sync::Arc;
use std::task::Waker;
use std::time::{Duration, Instant};

pub(super) use self::once::OnceRequest;
pub(super) use self::release::Release;
pub(super) use self::update::Update;
pub(in crate::engine) use self::withdrawal::OrphanedAttempt;
use crate::clock;
use crate::connection::{Delivery, Fault, To};
use crate::engine::ClientEngine;
use crate::engine::announcement::News;
use crate::engine::hold::Hold;
use crate::name::LockName;
use crate::wire::{HoldReply, Reply};

/// How much longer than the local deadline Redis may keep a key.
const MARGIN: Duration = Duration::from_secs(1);

/// The progress of a call at the server.
pub(super) struct Sending {
    pub(super) delivery: Delivery,
    /// The known state of the announcement.
    pub(super) news: News,
    /// The time that the waiting caller has just read from the clock; for the first try, if that needs no
    /// turn.
    pub(super) now: Option<Instant>,
}

impl Sending {
    pub(super) fn new() -> Self {
        Self {
            delivery: Delivery::of_upkeep(),
            news: News::Unknown,
            now: None,
        }
    }

    /// Separates a reply from the result of its announcement.
    fn hear(&mut self, reply: Reply) -> Reply {
        let (reply, news) = News::split(reply, &self.delivery);
        self.news = news;
        reply
    }

    pub(super) fn read(&mut self, answer: Result<Reply, Fault>) -> Result<HoldReply, Fault> {
        let answer = answer.map(|reply| self.hear(reply));
        self.delivery.read(answer, HoldReply::try_from)
    }
}

/// When nothing of the hold is in Redis any more.
#[derive(Debug, Clone, Copy)]
pub(super) struct Lapse {
    /// When the lease is over by the local clock, with a margin.
    pub(super) at: Instant,
    /// The lease that a late command gives or renews.
    lease: Duration,
}

impl Lapse {
    /// `deadline`: the local one. The key outlives it by the margin and by the clock difference.
    pub(super) fn after(deadline: Instant, lease: Duration) -> Self {
        let at = clock::after(deadline, MARGIN);
        Self { at, lease }
    }

    /// The same, including sent commands. A sent command may run as long as the server may read it: a server
    /// that stopped for an hour runs it afterwards, and the lease begins then. So no lease is over before the
    /// connection has certainly ended. This is bounded: without a connection nothing more is sent. `None`: it
    /// is not known yet.
    fn of_all(self, to: To<'_>) -> Option<Instant> {
        let To { nodes, slot, lane } = to;
        let quiet = nodes.known(slot)?.connection(lane).quiet_since()?;
        let late = clock::after(clock::after(quiet, self.lease), MARGIN);
        Some(self.at.max(late))
    }
}

/// The reply to a final call; `None`: the caller's time came first.
type Stepped = Option<Result<HoldReply, Fault>>;

/// A final call, as its runner sees it.
pub(super) trait Ending {
    /// Whether something stays in Redis without the call.
    fn is_due(&self) -> bool {
        true
    }

    /// The time after which nothing is sent any more; `None`: there is none, or it is not known yet.
    fn give_up(&self, by: &Sending, lapse: Lapse) -> Option<Instant>;

    /// Whether the end of the lease also ends the call.
    fn ends_with_lease(&self) -> bool {
        false
    }

    /// The lease is over. The call to the server may still be needed.
    fn lapsed(&self) {}

    /// The result for this reply, or without one.
    fn judged(&self, reply: HoldReply, _delivery: &Delivery) -> HoldReply {
        reply
    }

    /// The call is over.
    fn over(&self, news: &News, delivery: &Delivery, answered: bool);
}

/// A final call of any kind.
pub(super) enum AnyEnding {
    Release(Release),
    Update(Update),
    Withdrawal(Box<OrphanedAttempt>),
    Once(Box<OnceRequest>),
}

impl AnyEnding {
    pub(super) fn get(&self) -> &dyn Ending {
        match self {
            Self::Release(ending) => ending,
            Self::Update(ending) => ending,
            Self::Withdrawal(ending) => &**ending,
            Self::Once(ending) => &**ending,
        }
    }

    /// The hold that sends its commands one at a time.
    pub(super) fn hold(&self) -> Option<&Arc<Hold>> {
        match self {
            Self::Release(Release { hold, .. }) | Self::Update(Update { hold, .. }) => Some(hold),
            Self::Withdrawal(_) | Self::Once(_) => None,
        }
    }

    pub(super) fn engine(&self) -> &Arc<ClientEngine> {
        match self {
            Self::Release(Release { hold, .. }) | Self::Update(Update { hold, .. }) => &hold.engine,
            Self::Withdrawal(orphan) => &orphan.request.engine,
            Self::Once(once) => &once.engine,
        }
    }

    /// The name, and whether something stays in Redis without the call that no lease ends.
    fn place(&self) -> (&LockName, bool) {
        let recipe = match self {
            Self::Release(Release { hold, .. }) | Self::Update(Update { hold, .. }) => &hold.recipe,
            Self::Withdrawal(orphan) => &orphan.request.recipe,
            Self::Once(once) => return (&once.name, true),
        };
        (recipe.name(), recipe.profile().is_lasting())
    }

    pub(super) fn name(&self) -> &LockName {
        self.place().0
    }

    /// Whether something stays in Redis without the call that no lease ends.
    pub(super) fn is_lasting(&self) -> bool {
        self.place().1
    }

    /// Whether [`begin`](Self::begin) sends anything. The end of the hold may supersede a reduced count, and
    /// the outcome of the acquisition an orphaned attempt.
    pub(super) fn begins(&self) -> bool {
        match self {
            Self::Release(release) => !release.forgets,
            Self::Once(_) => true,
            Self::Update(_) | Self::Withdrawal(_) => false,
        }
    }

    /// Sends the command, or reads its reply, if there is nothing to wait for. Returns whether the result
    /// wakes the waker.
    pub(super) fn begin(&mut self, delivery: &mut Delivery, waker: &Waker) -> bool {
        match self {
            Self::Release(ending) => ending.begin(delivery, waker),
            Self::Once(ending) => ending.begin(delivery, waker),
            Self::Update(_) | Self::Withdrawal(_) => false,
        }
    }

    /// Sends the command, and waits for the reply until `until`.
    pub(super) async fn step(&mut self, by: &mut Sending, until: Option<Instant>) -> Stepped {
        match self {
            Self::Release(ending) => ending.step(by, until).await,
            Self::Update(ending) => ending.step(by, until).await,
            Self::Withdrawal(ending) => ending.step(by, until).await,
            Self::Once(ending) => ending.step(by, until).await,
        }
    }
}
