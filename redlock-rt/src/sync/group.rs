//! Several holds that count as one while enough of them are held.
//!
//! [`Majority`] decides whether the group is held.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::StreamExt;
use futures::future::{join_all, select_all};
use futures::stream::FuturesUnordered;
use tokio::sync::Notify;
use tokio::sync::futures::Notified;

use super::majority::Majority;
use super::options::{again, check_lease};
use crate::clock;
use crate::engine::{
    self, CurrentHold, GuardState, Hold, HoldGuard, LostReason, ReentryScope, Terms, Unlocked,
};
use crate::error::Error;
use crate::name::HoldId;
use crate::shim::{Mutex, lock};

/// The guards of a group, by the index of their locks.
pub(super) type Parts = BTreeMap<usize, HoldGuard>;

#[derive(Debug)]
struct Members {
    majority: Majority,
    parts: Parts,
}

impl Members {
    fn look(&mut self, now: Instant) -> GuardState {
        let parts = self.parts.values();
        self.majority.judge(parts.map(|guard| guard.state_at(now)))
    }
}

/// See the module. Dropping it queues the releases of all parts.
///
/// # Lock order
///
/// The members' lock, then a hold's lease. No guard is dropped under it.
pub(super) struct Group {
    /// The name in errors.
    pub(super) name: Arc<str>,
    need: usize,
    members: Mutex<Members>,
    /// The current holds, by place, which bodies under the group may re-enter.
    posts: Vec<Arc<CurrentHold>>,
    /// Woken when a part was added, or all were removed.
    changed: Notify,
}

impl Group {
    /// `places`: the largest number of parts.
    pub(super) fn new(name: &Arc<str>, need: usize, places: usize, parts: Parts) -> Self {
        let majority = Majority::new(need);
        let posts: Vec<Arc<CurrentHold>> = (0..places).map(|_| Arc::default()).collect();
        for (place, guard) in &parts {
            posts[*place].set(&guard.hold);
        }
        Self {
            posts,
            name: Arc::clone(name),
            need,
            members: Mutex::new(Members { majority, parts }),
            changed: Notify::new(),
        }
    }

    pub(super) fn state(&self) -> GuardState {
        lock(&self.members).look(clock::now())
    }

    /// The holds at this moment, by place.
    pub(super) fn holds(&self) -> BTreeMap<usize, Arc<Hold>> {
        let members = lock(&self.members);
        let hold = |(place, guard): (&usize, &HoldGuard)| (*place, Arc::clone(&guard.hold));
        members.parts.iter().map(hold).collect()
    }

    /// The places whose parts are valid, and those whose parts are lost.
    pub(super) fn places(&self) -> (BTreeSet<usize>, BTreeSet<usize>) {
        let now = clock::now();
        let parts = &lock(&self.members).parts;
        let is_valid = |place: &usize| parts[place].state_at(now).is_valid();
        parts.keys().copied().partition(is_valid)
    }

    /// The identities of the holds, by place.
    pub(super) fn hold_ids(&self) -> Vec<HoldId> {
        let holds = self.holds().into_values();
        holds.map(|hold| hold.hold_id().clone()).collect()
    }

    /// How many guards share the holds of enough parts.
    pub(super) fn count(&self) -> u32 {
        let holds = self.holds();
        let mut counts: Vec<_> = holds.values().map(|hold| hold.count()).collect();
        counts.sort_unstable_by(|a, b| b.cmp(a));
        let last = self.need.checked_sub(1);
        last.and_then(|last| counts.get(last).copied()).unwrap_or(0)
    }

    /// Adds a part that replaces a lost one. `confirmed`: the places that were asked after this
    /// acquisition, and whose parts were held without interruption. Upholds invariant 2 of [`Majority`].
    pub(super) fn admit(
        &self,
        place: usize,
        guard: HoldGuard,
        confirmed: &BTreeSet<usize>,
    ) -> bool {
        let now = clock::now();
        let mut members = lock(&self.members);
        let Members { majority, parts } = &mut *members;
        let others = parts
            .iter()
            .filter(|(other, _)| confirmed.contains(other) && **other != place);
        if !majority.admits(others.map(|(_, guard)| guard.state_at(now))) {
            drop(members);
            return false;
        }
        self.posts[place].set(&guard.hold);
        let before = parts.insert(place, guard);
        drop(members);
        drop(before);
        self.changed.notify_waiters();
        true
    }

    /// Waits until the group is neither held nor suspect.
    pub(super) async fn over(&self) -> GuardState {
        // The runtime of the clients' tasks may have ended, and the guard was moved to another one.
        self.holds()
            .values()
            .for_each(|hold| hold.engine.ensure_tasks());
        loop {
            let state = self.step().await;
            if !state.is_valid() {
                return state;
            }
        }
    }

    /// Waits until something may have changed, but no longer than to the first deadline of a part,
    /// and returns the state; at once if the state is final.
    async fn step(&self) -> GuardState {
        // Registered before the state is read, so that no change is missed.
        let own = registered(self.changed.notified());
        let holds = self.holds();
        let changes = holds.values().map(|hold| registered(hold.changed()));
        let changes: Vec<_> = changes.chain([own]).collect();
        let deadline = {
            let now = clock::now();
            let deadline = |state: &GuardState| match *state {
                GuardState::Held { until } | GuardState::Suspect { until } => Some(until),
                GuardState::Lost(_) | GuardState::Released => None,
            };
            let mut members = lock(&self.members);
            let state = members.look(now);
            let Some(last) = deadline(&state) else {
                return state;
            };
            let parts = members.parts.values().map(|guard| guard.state_at(now));
            parts
                .filter_map(|part| deadline(&part))
                .fold(last, Instant::min)
        };
        let _ = clock::timeout_at(clock::to_tokio(deadline), select_all(changes)).await;
        self.state()
    }

    /// Waits until a part is lost at a place that is not in `known`. Returns at once if one is lost
    /// already, or if there is nothing to wait for.
    pub(super) async fn part_lost(&self, known: &BTreeSet<usize>) {
        while self.places().1.is_subset(known) && self.step().await.is_valid() {}
    }

    pub(super) async fn lost(&self) -> LostReason {
        match self.over().await {
            GuardState::Lost(reason) => reason,
            // The caller still has the guard, so only a shut-down can have released it.
            _ => LostReason::ShutDown,
        }
    }

    /// Extends the leases of all parts; done when enough are extended.
    pub(super) async fn extend(&self, lease: Duration) -> Result<(), Error> {
        const ACTION: &str = "extend lock";
        check_lease(ACTION, lease).map_err(|error| error.named(&self.name))?;
        self.not_lost(ACTION)?;
        let holds = self.holds();
        let extend = |hold: &Arc<Hold>| {
            let hold = Arc::clone(hold);
            async move { hold.lengthen(ACTION, lease, None).await }
        };
        let mut under_way: FuturesUnordered<_> = holds.values().map(extend).collect();
        let (mut done, mut failed) = (0, None);
        while let Some(outcome) = under_way.next().await {
            match outcome {
                Ok(()) => done += 1,
                Err(error) => failed = Some(failed.unwrap_or(error)),
            }
            // Calls without a reply continue in the background.
            if done >= self.need && self.need < holds.len() {
                break;
            }
        }
        match (self.state(), failed) {
            (GuardState::Lost(reason), _) => Err(self.lost_error(ACTION, reason)),
            (_, Some(error)) if done < self.need => Err(error),
            _ => Ok(()),
        }
    }

    /// Takes all holds once more, as a new group that shares them: all or none. Waits for replicas if
    /// their clients ask for them.
    ///
    /// # Cancel safety
    ///
    /// Nothing is left: the counts are reduced again in the background.
    pub(super) async fn reenter(&self) -> Result<Self, Error> {
        const ACTION: &str = "re-enter locks";
        self.not_lost(ACTION)?;
        let holds = {
            let members = lock(&self.members);
            let entry = |(place, guard): (&usize, &HoldGuard)| {
                Ok((*place, Arc::clone(&guard.hold), again(guard)?))
            };
            members
                .parts
                .iter()
                .map(entry)
                .collect::<Result<Vec<_>, Error>>()?
        };
        let now = clock::now();
        let patience = holds.iter().map(|(_, hold, _)| hold.engine.patience(now));
        let until = patience.max().unwrap_or(now);
        let enter = |(place, hold, terms): (usize, Arc<Hold>, Terms)| async move {
            let guard = hold.reenter(terms, None).await?;
            let guard = hold.engine.acknowledged_by_default(ACTION, guard).await?;
            Ok::<_, Error>((place, guard))
        };
        let (mut parts, mut failed) = (Parts::new(), None);
        for entered in join_all(holds.into_iter().map(enter)).await {
            match entered {
                Ok(part) => parts.extend([part]),
                Err(error) => failed = failed.or(Some(error)),
            }
        }
        if let Some(error) = failed {
            roll_back(parts, until).await;
            return Err(error);
        }
        let group = Self::new(&self.name, self.need, self.posts.len(), parts);
        group.not_lost(ACTION)?;
        Ok(group)
    }

    /// Asks the servers whether these parts still exist; returns the places where they do.
    pub(super) async fn confirm(&self, until: Instant) -> BTreeSet<usize> {
        let held = self.holds().into_iter().filter(|(_, hold)| hold.is_valid());
        let asked = held.map(|(place, hold)| async move {
            let confirmed = hold.lengthen("confirm lock", Duration::ZERO, Some(until));
            confirmed.await.is_ok().then_some(place)
        });
        join_all(asked).await.into_iter().flatten().collect()
    }

    /// The scope of a body under the group: all parts are open for re-entry.
    pub(super) fn scope(&self) -> ReentryScope {
        ReentryScope::of_all(&self.posts)
    }

    /// Runs `body` with all parts open for re-entry, and drops it as soon as the group is lost.
    pub(super) async fn run<T>(&self, body: impl Future<Output = T>) -> Result<T, Error> {
        const ACTION: &str = "run a body under lock";
        let lost_error = |reason| self.lost_error(ACTION, reason);
        let body = self.scope().run(body);
        engine::run_until_lost(self.state(), self.lost(), lost_error, body).await
    }

    /// Ends the group; returns its state and the parts to release.
    fn end(&self) -> (GuardState, Parts) {
        let mut members = lock(&self.members);
        let state = members.look(clock::now_in_drop());
        members.majority.end();
        let parts = std::mem::take(&mut members.parts);
        drop(members);
        self.changed.notify_waiters();
        (state, parts)
    }

    /// Ends the group; the releases continue in the background.
    pub(super) fn leave(&self) {
        drop(self.end());
    }

    /// Ends the group, and waits for the replies of enough parts; for a lost group, for all parts or for
    /// none.
    ///
    /// # Cancel safety
    ///
    /// The releases continue in the background.
    pub(super) async fn unlock(&self, waits_if_lost: bool) -> Result<Unlocked, Error> {
        let (state, parts) = self.end();
        if !state.is_valid() && !waits_if_lost {
            return Ok(Unlocked::AlreadyExpired);
        }
        let started = clock::now();
        let (count, need) = (parts.len(), self.need);
        let mut under_way: FuturesUnordered<_> =
            parts.into_values().map(HoldGuard::unlock).collect();
        let mut tally = ReleaseResults::default();
        while let Some(outcome) = under_way.next().await {
            tally.add(outcome);
            if tally.done() >= need && need < count {
                // The other parts have the same time again; then they continue in the background.
                let rest = (clock::now() - started).max(SHORTEST_GRACE);
                let all = async {
                    while let Some(outcome) = under_way.next().await {
                        tally.add(outcome);
                    }
                };
                let _ = clock::timeout(rest, all).await;
                break;
            }
        }
        match state.is_valid() {
            true => tally.outcome(need),
            false => Ok(Unlocked::AlreadyExpired),
        }
    }

    /// # Errors
    ///
    /// The group is lost already.
    pub(super) fn not_lost(&self, action: &'static str) -> Result<(), Error> {
        match self.state() {
            GuardState::Lost(reason) => Err(self.lost_error(action, reason)),
            _ => Ok(()),
        }
    }

    fn lost_error(&self, action: &'static str, reason: LostReason) -> Error {
        Error::lost(action, reason).named(&self.name)
    }
}

/// The shortest wait for parts that are not needed for the outcome.
pub(super) const SHORTEST_GRACE: Duration = Duration::from_millis(5);

/// The results of the releases of the parts.
#[derive(Debug, Default)]
struct ReleaseResults {
    released: usize,
    still_held: usize,
    /// The latest end among the parts that stay locked for their `min_hold`.
    kept: Option<Instant>,
    failed: Vec<Error>,
}

impl ReleaseResults {
    fn add(&mut self, outcome: Result<Unlocked, Error>) {
        match outcome {
            Ok(Unlocked::Released) => self.released += 1,
            Ok(Unlocked::Kept { until }) => {
                self.released += 1;
                self.kept = self.kept.max(Some(until));
            }
            Ok(Unlocked::StillHeld) => self.still_held += 1,
            Ok(Unlocked::AlreadyExpired) => {}
            Err(error) => self.failed.push(error),
        }
    }

    fn done(&self) -> usize {
        self.released + self.still_held
    }

    fn outcome(mut self, need: usize) -> Result<Unlocked, Error> {
        if self.done() + self.failed.len() < need {
            return Ok(Unlocked::AlreadyExpired);
        }
        if self.done() < need {
            return Err(self.failed.swap_remove(0));
        }
        Ok(match (self.still_held, self.kept) {
            (0, None) => Unlocked::Released,
            (0, Some(until)) => Unlocked::Kept { until },
            _ => Unlocked::StillHeld,
        })
    }
}

/// A future that sees every notification from now on.
fn registered(change: Notified<'_>) -> Pin<Box<Notified<'_>>> {
    let mut change = Box::pin(change);
    change.as_mut().enable();
    change
}

/// Releases the parts of a group that could not be completed, and waits for that while there is
/// time. After that it continues in the background.
pub(super) async fn roll_back(parts: Parts, until: Instant) {
    let releases = parts.into_values().map(HoldGuard::unlock);
    let releases = clock::timeout_at(clock::to_tokio(until), join_all(releases));
    for error in releases.await.into_iter().flatten().filter_map(Result::err) {
        tracing::debug!(%error, "a part is released in the background");
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.leave();
    }
}

impl fmt::Debug for Group {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Group")
            .field("name", &self.name)
            .field("ids", &self.hold_ids())
            .field("state", &self.state())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;

    #[test]
    fn what_the_releases_come_to() {
        let error = || Err(Error::new(ErrorKind::Unavailable, "release lock"));
        let tally = |outcomes: Vec<Result<Unlocked, Error>>, need| {
            let mut tally = ReleaseResults::default();
            outcomes.into_iter().for_each(|outcome| tally.add(outcome));
            tally.outcome(need).map_err(|error| error.kind())
        };
        let (done, still, gone) = (
            Ok(Unlocked::Released),
            Ok(Unlocked::StillHeld),
            Ok(Unlocked::AlreadyExpired),
        );
        let ok = |outcome: &Result<Unlocked, ErrorKind>| outcome.as_ref().map(|o| *o).unwrap();
        let of = |outcome: &Result<Unlocked, ErrorKind>| Ok(ok(outcome));
        assert_eq!(tally(vec![of(&done), of(&done)], 2), done);
        assert_eq!(tally(vec![of(&done), of(&still)], 2), still);
        assert_eq!(tally(vec![of(&done), of(&gone)], 2), gone);
        assert_eq!(tally(vec![of(&done), of(&gone), of(&done)], 2), done);
        assert_eq!(
            tally(vec![of(&done), error()], 2),
            Err(ErrorKind::Unavailable)
        );
        assert_eq!(tally(vec![of(&done), of(&done), error()], 2), done);
        assert_eq!(tally(vec![of(&gone), error()], 2), gone);
        let now = clock::now();
        let kept = |after| {
            let until = now + Duration::from_secs(after);
            Ok(Unlocked::Kept { until })
        };
        assert_eq!(
            tally(vec![of(&kept(2)), of(&kept(9)), of(&done)], 3),
            kept(9)
        );
        assert_eq!(tally(vec![of(&kept(2)), of(&still)], 2), still);
        assert_eq!(tally(vec![of(&kept(2)), of(&gone)], 2), gone);
    }
}
