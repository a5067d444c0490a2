//! Drops calls at every point, and checks the state afterwards.

use std::{
    collections::VecDeque,
    pin::{Pin, pin},
    sync::Arc,
    task::{Context, Poll, Wake, Waker},
    time::Duration,
};

use redis::{RedisResult, aio::MultiplexedConnection};
use redlock_rt::{
    Client, ClientBuilder, Error, FairLock, FencedLock, Kind, Lock, LockGuard, LockOptions, RLock,
    RLockGuard, ReadWriteLock, Unlocked, embedded::Engine,
};
use tests::{
    Place, Proxied, Proxy, Wires, ask, connection_over, eventually, in_use, stepping_runtime,
    within,
};
use tokio::{
    runtime::Builder,
    sync::Notify,
    task::yield_now,
    time::{advance, timeout},
};

use crate::{DEADLINE, NEXT, faults::Backend};

/// On the engine: after this many passes without a byte, nothing moves until the next event.
const QUIET_PASSES: usize = 14;
/// The same as a time on Redis, where a call is polled when it is woken.
const QUIET: Duration = Duration::from_millis(5);
/// On the engine: the step of the clock when nothing moves and no event is left.
const TICK: Duration = Duration::from_millis(20);
/// More than the number of points of any call.
const MOST: usize = 2_000;
/// Up to this point a call is dropped in both ways, then alternately.
const BOTH: usize = 40;
/// The longest pause before connecting.
const LONGEST_PAUSE: Duration = Duration::from_secs(1);
pub(crate) const NAME: &str = "cancelled";
/// Of the notes for holders whose lock was stolen.
const THEFT: &str = "redlock_stolen:{cancelled}:";
/// Of the tokens of the fenced lock.
const COUNTER: &str = "redisson_lock_token:{cancelled}";

/// When a call is dropped.
#[derive(Clone, Copy, Debug)]
pub(crate) struct At {
    /// After this many polls.
    polls: usize,
    /// Only after the events for which it waits, as far as they happen without further polls.
    late: bool,
}

/// An event during a call.
pub(crate) enum Event {
    /// When nothing moves.
    Quiet(Box<dyn FnOnce()>),
    /// Time passes, when nothing moves.
    Tick,
    /// When this condition holds.
    When(Box<dyn Fn() -> bool>, Box<dyn FnOnce()>),
}

/// The lock of a case, which the next caller acquires.
#[derive(Clone, Copy, Debug)]
enum About {
    RLock,
    ReadWrite,
    Fair,
    Fenced,
}

/// Servers, the client whose calls are dropped, and another one.
///
/// On the engine and on a single server, every read and write of the client takes two polls and moves
/// a few bytes, so a call is dropped at each step of its network traffic.
pub(crate) struct Stage {
    pub(crate) backend: Arc<Backend>,
    pub(crate) wires: Wires,
    pub(crate) client: Client,
    pub(crate) other: Client,
    /// One connection to each server.
    control: Vec<MultiplexedConnection>,
    pub(crate) events: VecDeque<Event>,
    /// The lock of the case.
    about: About,
}

impl Stage {
    async fn set(backend: Backend) -> Self {
        let mut control = Vec::new();
        let (wires, other) = match &backend {
            Backend::Engine(engine) => {
                control.push(connection_over(engine.connect()).await.unwrap());
                let other = Client::builder().embedded(engine);
                (Wires::to_engine(engine), other)
            }
            Backend::Redis(servers) => {
                for at in 0..servers.count() {
                    control.push(servers.server(at).connect().await.unwrap());
                }
                let wires = Wires::to_address(servers.proxy(0).address());
                (wires, servers.undisturbed())
            }
        };
        let wires = wires.slow();
        Self {
            client: settings(builder(&backend, &wires)),
            wires,
            backend: Arc::new(backend),
            other: settings(other),
            control,
            events: VecDeque::new(),
            about: About::RLock,
        }
    }

    /// Replaces the client: the next call connects first.
    pub(crate) fn cool(&mut self) {
        self.client = settings(builder(&self.backend, &self.wires));
    }

    /// Replaces the client by one whose tasks do not hand a lock over to each other.
    pub(crate) fn without_hand_over(&mut self) {
        self.client = settings(builder(&self.backend, &self.wires).hand_over(None));
    }

    pub(crate) fn lock(&self) -> RLock {
        self.client.rlock(NAME)
    }

    /// The read-write lock, the lock of the case from now on.
    pub(crate) fn rw(&mut self) -> ReadWriteLock {
        self.about = About::ReadWrite;
        self.client.read_write_lock(NAME)
    }

    pub(crate) fn rw_of_the_other(&self) -> ReadWriteLock {
        self.other.read_write_lock(NAME)
    }

    /// The fair lock, the lock of the case from now on.
    pub(crate) fn fair(&mut self) -> FairLock {
        self.about = About::Fair;
        self.client.fair_lock(NAME)
    }

    pub(crate) fn fair_of_the_other(&self) -> FairLock {
        self.other.fair_lock(NAME)
    }

    pub(crate) fn fenced(&mut self) -> FencedLock {
        self.about = About::Fenced;
        self.client.fenced_lock(NAME)
    }

    pub(crate) async fn held(&self) -> RLockGuard {
        self.lock().lock().await.unwrap()
    }

    /// Adds an event for the time when nothing moves.
    pub(crate) fn then(&mut self, event: impl FnOnce() + 'static) {
        self.events.push_back(Event::Quiet(Box::new(event)));
    }

    pub(crate) fn then_time_passes(&mut self, ticks: usize) {
        self.events.extend((0..ticks).map(|_| Event::Tick));
    }

    /// Waits for the end of the pause after the last cut of the subscribing connection.
    pub(crate) async fn may_subscribe(&self) {
        if let Backend::Engine(_) = &*self.backend {
            advance(LONGEST_PAUSE).await;
        }
    }

    /// Another client has the lock, and releases it when nothing moves.
    pub(crate) async fn held_elsewhere(&mut self) {
        let guard = self.other.rlock(NAME).lock().await.unwrap();
        self.then(move || drop(guard));
    }

    /// Polls `call` and drops it at `at`; returns its output if it completes before.
    pub(crate) async fn drop_at<F: Future>(&mut self, at: At, call: F) -> Option<F::Output> {
        let call = pin!(call);
        match &*self.backend {
            Backend::Engine(_) => self.drop_stepwise(at, call).await,
            Backend::Redis(_) => self.drop_woken(at, call).await,
        }
    }

    async fn drop_stepwise<F: Future>(
        &mut self,
        at: At,
        mut call: Pin<&mut F>,
    ) -> Option<F::Output> {
        let (mut moved, mut still) = (self.wires.moved(), 0);
        for _ in 0..at.polls {
            if let Poll::Ready(output) = futures::poll!(&mut call) {
                return Some(output);
            }
            yield_now().await;
            let now = self.wires.moved();
            still = if now == moved { still + 1 } else { 0 };
            moved = now;
            let due = match self.events.front() {
                Some(Event::When(due, _)) => due(),
                _ => still == QUIET_PASSES,
            };
            if due {
                still = 0;
                match self.events.pop_front() {
                    Some(Event::Quiet(event) | Event::When(_, event)) => event(),
                    Some(Event::Tick) | None => advance(TICK).await,
                }
            }
        }
        let late = if at.late { QUIET_PASSES } else { 0 };
        for _ in 0..late {
            yield_now().await;
        }
        None
    }

    async fn drop_woken<F: Future>(&mut self, at: At, mut call: Pin<&mut F>) -> Option<F::Output> {
        let woken = Arc::new(Woken::default());
        let waker = Waker::from(woken.clone());
        for poll in 1..=at.polls {
            let polled = call.as_mut().poll(&mut Context::from_waker(&waker));
            if let Poll::Ready(output) = polled {
                return Some(output);
            }
            if poll == at.polls && !at.late {
                break;
            }
            while timeout(QUIET, woken.0.notified()).await.is_err() {
                if matches!(self.events.front(), Some(Event::When(due, _)) if !due()) {
                    continue;
                }
                match self.events.pop_front() {
                    Some(Event::Quiet(event) | Event::When(_, event)) => event(),
                    Some(Event::Tick) => {}
                    // The call waits for something that no event causes.
                    None if poll == at.polls => break,
                    None => {}
                }
            }
        }
        None
    }

    /// Runs the remaining events.
    pub(crate) fn finish_events(&mut self) {
        for event in self.events.drain(..) {
            match event {
                Event::Quiet(event) | Event::When(_, event) => event(),
                Event::Tick => {}
            }
        }
        self.backend.proxies().for_each(Proxy::clear);
        self.wires.lose_nothing();
    }

    /// The call does not affect the other guard of the hold: that guard is valid, holds the lock once,
    /// and releases it.
    pub(crate) async fn assert_held_once(&self, guard: RLockGuard, at: At) {
        assert!(guard.is_valid(), "{at:?}: {:?}", guard.state());
        let other = self.other.rlock(NAME);
        eventually(self.next(), async || match other.hold_count().await {
            Ok(1) => Ok(()),
            other => Err(format!("{at:?}: {other:?}")),
        })
        .await;
        assert_eq!(guard.unlock().await.unwrap(), Unlocked::Released, "{at:?}");
    }

    /// How soon the next caller gets the lock.
    pub(crate) fn next(&self) -> Duration {
        match &*self.backend {
            Backend::Engine(_) => NEXT,
            // The machine may be busy with other tests. A poll comes far later.
            Backend::Redis(_) => NEXT * 10,
        }
    }

    /// The next caller gets the lock at once, and neither the call nor its subscription leaves anything.
    async fn assert_nothing_left(&mut self, at: At) {
        self.finish_events();
        let next = LockOptions::new().wait(self.next());
        let unlocked = match self.about {
            About::RLock => pass(&self.other.rlock(NAME), next).await,
            About::ReadWrite => pass(&self.rw_of_the_other().write_lock(), next).await,
            About::Fair => pass(&self.fair_of_the_other(), next).await,
            About::Fenced => pass(&self.other.fenced_lock(NAME), next).await,
        };
        match unlocked {
            Ok(unlocked) => assert_eq!(unlocked, Unlocked::Released),
            Err(error) => panic!("{at:?}: {error}, {:?}", self.client.stats()),
        }
        eventually(DEADLINE, async || {
            let mut left = in_use(&self.client);
            // The servers are asked once the client is at rest.
            let asked = if left.is_empty() {
                &self.control[..]
            } else {
                &[]
            };
            for control in asked {
                let mut control = control.clone();
                let here = left_at(&mut control).await;
                // It stays by design, and other cases run on the same servers.
                let counter = here.iter().find(|name| *name == COUNTER);
                if let (About::Fenced, Some(counter)) = (self.about, counter) {
                    let _: u8 = ask(&control, &["DEL", counter]).await;
                }
                // A reason stays for as long as the holder may look.
                for note in here.iter().filter(|name| name.starts_with(THEFT)) {
                    assert!(ask::<i64>(&control, &["PTTL", note]).await > 0, "{note}");
                    let _: u8 = ask(&control, &["DEL", note]).await;
                }
                left.extend(here);
            }
            match left.is_empty() {
                true => Ok(()),
                false => Err(format!("{at:?}: {left:?}")),
            }
        })
        .await;
    }
}

#[derive(Default)]
struct Woken(Notify);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.notify_one();
    }
}

/// The client whose calls are dropped.
fn builder(backend: &Backend, wires: &Wires) -> ClientBuilder {
    match backend {
        // Several addresses, or TLS, cannot come through the wires.
        Backend::Redis(servers) if servers.place() != Place::Single => servers.client(),
        _ => wires.builder(),
    }
}

/// What is left at a server: keys, channels, patterns. One request, since it is asked at every point.
async fn left_at(redis: &mut MultiplexedConnection) -> Vec<String> {
    let mut request = redis::pipe();
    request.cmd("KEYS").arg("*");
    for what in ["CHANNELS", "SHARDCHANNELS", "NUMPAT"] {
        request.cmd("PUBSUB").arg(what);
    }
    let replies = request.ignore_errors().query_async(redis).await;
    let (mut left, channels, sharded, patterns): (Vec<String>, Vec<_>, RedisResult<Vec<_>>, usize) =
        replies.unwrap();
    left.extend(channels);
    // Unknown to the engine, and before Redis 7.0.
    left.extend(sharded.unwrap_or_default());
    // Where sentinels talk to each other.
    left.retain(|name| !name.starts_with("__sentinel__"));
    left.extend((patterns > 0).then(|| format!("{patterns} patterns")));
    left
}

async fn pass<K: Kind>(lock: &Lock<K>, options: LockOptions) -> Result<Unlocked, Error> {
    lock.lock_with(options).await?.unlock().await
}

fn settings(builder: ClientBuilder) -> Client {
    // Polling must not hide a missed announcement.
    let builder = builder
        .poll_interval(DEADLINE)
        .linger(Duration::from_millis(5));
    builder.build().unwrap()
}

/// Releases the guard of the call, and returns whether there was one.
pub(crate) async fn unlocked<K: Kind>(outcome: Option<Result<LockGuard<K>, Error>>) -> bool {
    let Some(guard) = outcome else {
        return false;
    };
    assert_eq!(guard.unwrap().unlock().await.unwrap(), Unlocked::Released);
    true
}

/// Whether the call that releases has completed; then it did what was expected.
pub(crate) fn ended(outcome: Option<Result<Unlocked, Error>>, expected: Unlocked) -> bool {
    outcome.is_some_and(|outcome| {
        assert_eq!(outcome.unwrap(), expected);
        true
    })
}

/// Runs `case` for every point at which its call can be dropped, until the case reports that the call
/// has completed.
async fn at_every_point(
    mut stage: Stage,
    least: usize,
    case: impl AsyncFn(&mut Stage, At) -> bool,
) {
    let mut polls = 1;
    loop {
        let ways = match polls {
            ..BOTH => vec![false, true],
            _ => vec![polls % 2 == 0],
        };
        let mut completed = true;
        for late in ways {
            let at = At { polls, late };
            completed &= within(DEADLINE, case(&mut stage, at)).await;
            stage.assert_nothing_left(at).await;
        }
        if completed {
            break;
        }
        polls += 1;
        assert!(polls < MOST, "it does not complete");
    }
    assert!(polls >= least, "only {polls} points");
}

pub(crate) fn on_the_engine(least: usize, case: impl AsyncFn(&mut Stage, At) -> bool) {
    stepping_runtime(true).block_on(async {
        let stage = Stage::set(Backend::Engine(Engine::new())).await;
        at_every_point(stage, least, case).await;
    });
}

/// Every call waits at least for a reply.
const WAITS_ONCE: usize = 2;

pub(crate) fn on_redis(place: Place, case: impl AsyncFn(&mut Stage, At) -> bool) {
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let servers = Box::new(Proxied::at(place).await);
        let stage = Stage::set(Backend::Redis(servers)).await;
        at_every_point(stage, WAITS_ONCE, case).await;
    });
}
