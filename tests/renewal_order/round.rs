//! One random round: a client, up to eight locks, and what happens to them.

use std::{
    collections::BTreeMap,
    future::poll_fn,
    mem,
    pin::Pin,
    sync::{Arc, Mutex},
    task::{Context, Poll, Waker},
    time::Duration,
};

use redis::aio::MultiplexedConnection;
use redlock_rt::{Client, LockOptions, embedded::Engine};
use tests::{Random, Which, Wires, connection_over, within};
use tokio::{runtime::Builder, time::advance};

use crate::{
    held::{Guard, Way},
    sentinel::{Sentinel, Tally},
};

const MS: Duration = Duration::from_millis(1);
/// Of the real clock nothing passes; of the paused one a round needs less.
const DEADLINE: Duration = Duration::from_secs(600);
/// Looks between which something may happen.
const TURNS: usize = 120;
/// Looks without a read or write.
const QUIET: usize = 6;

/// Woken when no task has anything to do.
type Parked = Arc<Mutex<Option<Waker>>>;

/// What came of a call.
enum Done {
    Nothing,
    Locked(Guard),
    Reentered(Guard, Option<Guard>),
    Extended(Guard),
}

/// A call that is polled at every look.
struct Call {
    /// Of the guard that it uses.
    owner: Option<String>,
    future: Pin<Box<dyn Future<Output = Done>>>,
}

pub(crate) struct Round {
    random: Random,
    parked: Parked,
    wires: Wires,
    client: Client,
    control: MultiplexedConnection,
    sentinel: Sentinel,
    locks: usize,
    /// How often the locks are renewed.
    intervals: Vec<Duration>,
    /// What kinds of locks they are.
    ways: Vec<Way>,
    calls: Vec<Call>,
    guards: Vec<Guard>,
    /// How many guards an owner has, those in calls included.
    living: BTreeMap<String, usize>,
    /// Tasks leave locks to each other, which they do only with the same lease and renewal.
    hands_over: bool,
    refusing: bool,
}

impl Round {
    pub(crate) fn run(seed: u64) -> Tally {
        // The intervals of renewal vary at random; all is on this thread.
        fastrand::seed(seed);
        let parked = Parked::default();
        let waker = parked.clone();
        let runtime = Builder::new_current_thread()
            .enable_all()
            .start_paused(true)
            // One task between two polls of the test.
            .event_interval(1)
            .on_thread_park(move || {
                let waker = waker.lock().unwrap().take();
                waker.iter().for_each(Waker::wake_by_ref);
            })
            .build()
            .unwrap();
        runtime.block_on(async {
            let mut round = Self::begin(Random::new(seed), parked).await;
            within(DEADLINE, round.all()).await;
            round.sentinel.tally
        })
    }

    async fn begin(mut random: Random, parked: Parked) -> Self {
        let engine = Engine::new();
        let wires = Wires::to_engine(&engine);
        let hands_over = random.percent(50);
        let hand_over = hands_over.then_some(1_000 * MS);
        let client = wires
            .builder()
            .hand_over(hand_over)
            .response_timeout(200 * MS)
            .linger(5 * MS)
            .build()
            .unwrap();
        // The fewer, the more of them have waiters.
        let locks = 1 + random.below(if hands_over { 4 } else { 8 });
        let same = random.percent(50).then(|| interval(&mut random));
        let intervals = (0..locks).map(|_| same.unwrap_or_else(|| interval(&mut random)));
        let intervals = intervals.collect();
        Self {
            ways: (0..locks).map(|_| Way::any(&mut random)).collect(),
            intervals,
            sentinel: Sentinel::new(&wires),
            control: connection_over(engine.connect()).await.unwrap(),
            random,
            parked,
            wires,
            client,
            locks,
            calls: Vec::new(),
            guards: Vec::new(),
            living: BTreeMap::new(),
            hands_over,
            refusing: false,
        }
    }

    async fn all(&mut self) {
        for lock in 0..self.locks {
            self.lock(lock);
        }
        self.settle().await;
        // Some begin with everything connected and loaded, and some do not.
        if self.random.percent(70) {
            self.pass().await;
            self.settle().await;
        }
        for _ in 0..TURNS {
            self.turn().await;
            self.step().await;
        }
        self.finish().await;
    }

    /// Everything ends, and time goes on.
    async fn finish(&mut self) {
        self.wires.accept();
        while !self.guards.is_empty() {
            self.end_one();
            let steps = self.random.below(8);
            self.steps(steps).await;
        }
        while !self.calls.is_empty() {
            self.cancel_one();
        }
        while !self.guards.is_empty() {
            self.end_one();
        }
        assert!(self.living.is_empty(), "{:?}", self.living);
        for _ in 0..3 {
            self.settle().await;
            self.pass().await;
        }
        self.settle().await;
        let stats = self.client.stats();
        assert_eq!((stats.held, stats.renewals), (0, 0), "{stats:?}");
    }

    async fn turn(&mut self) {
        match self.random.below(100) {
            0..10 => {
                let lock = self.random.below(self.locks);
                self.lock(lock);
            }
            10..16 => self.end_one(),
            16..22 => self.reenter(),
            22..26 => self.extend(),
            26..30 => self.cancel_one(),
            30..46 => self.ambush().await,
            46..50 => self.flush_scripts(),
            50..53 => self.cut(),
            53 => self.refuse(),
            54 | 55 => self.delete(),
            56 => self.spoil(),
            _ => {}
        }
    }

    /// A renewal falls due, and a guard ends soon after.
    async fn ambush(&mut self) {
        self.pass().await;
        if self.random.percent(20) {
            self.flush_scripts();
        }
        let steps = self.random.below(16);
        self.steps(steps).await;
        match self.random.below(10) {
            0..6 => self.end_one(),
            6 => self.cancel_one(),
            7 => self.cut(),
            8 => self.spoil(),
            _ => {}
        }
    }

    /// About as much time as it takes until some renewal is due.
    async fn pass(&mut self) {
        let interval = self.intervals[self.random.below(self.locks)];
        let early = match self.random.below(4) {
            0 => interval / 2,
            1 => interval / 10,
            2 => MS.min(interval / 2),
            _ => Duration::ZERO,
        };
        self.poll_calls();
        self.sentinel.hands_over();
        advance(interval - early).await;
        self.sentinel.look(false);
    }

    async fn steps(&mut self, count: usize) {
        for _ in 0..count {
            self.step().await;
        }
    }

    /// Lets one task run; or all of them until none has anything to do, after so many looks at
    /// which no connection was used that this is likely.
    async fn step(&mut self) {
        self.poll_calls();
        self.sentinel.hands_over();
        let idle = self.sentinel.quiet() >= QUIET;
        let mut polled = false;
        poll_fn(|cx| {
            if mem::replace(&mut polled, true) {
                return Poll::Ready(());
            }
            match idle {
                true => *self.parked.lock().unwrap() = Some(cx.waker().clone()),
                false => cx.waker().wake_by_ref(),
            }
            Poll::Pending
        })
        .await;
        self.sentinel.look(idle);
    }

    /// Until nothing is left to be done without time.
    async fn settle(&mut self) {
        let mut idle = 0;
        // What happened may be for a call, which goes on when it is next polled.
        while idle < 2 {
            self.step().await;
            idle = if self.sentinel.quiet() > QUIET {
                idle + 1
            } else {
                0
            };
        }
    }

    fn poll_calls(&mut self) {
        let mut index = 0;
        while index < self.calls.len() {
            let call = &mut self.calls[index];
            let mut cx = Context::from_waker(Waker::noop());
            let Poll::Ready(done) = call.future.as_mut().poll(&mut cx) else {
                index += 1;
                continue;
            };
            drop(self.calls.swap_remove(index));
            match done {
                Done::Nothing => {}
                Done::Locked(guard) => self.keep(guard),
                Done::Extended(guard) => self.guards.push(guard),
                Done::Reentered(outer, inner) => {
                    self.guards.push(outer);
                    inner.into_iter().for_each(|guard| self.keep(guard));
                }
            }
        }
    }

    fn keep(&mut self, guard: Guard) {
        let owner = guard.owner();
        self.sentinel.begins(&owner);
        *self.living.entry(owner).or_default() += 1;
        self.guards.push(guard);
    }

    fn call(&mut self, owner: Option<String>, future: impl Future<Output = Done> + 'static) {
        let future = Box::pin(future);
        self.calls.push(Call { owner, future });
        self.poll_calls();
    }

    /// A guard of this owner begins to end.
    fn ends(&mut self, owner: &str) {
        let living = self.living.get_mut(owner).unwrap();
        *living -= 1;
        if *living == 0 {
            self.living.remove(owner);
            self.sentinel.ends(owner);
        }
    }

    fn lock(&mut self, index: usize) {
        if self.calls.len() + self.guards.len() >= 2 * self.locks {
            return;
        }
        let every = self.intervals[index];
        let leases = 2 + u32::try_from(self.random.below(4)).unwrap();
        // Where tasks leave locks to each other, they still wait when a guard was renewed.
        let wait = if self.hands_over { every * 4 } else { 20 * MS };
        let options = LockOptions::new().lease(every * leases).wait(wait);
        let options = match self.random.below(4) {
            _ if self.hands_over => options.lease(every * 3).renew(every),
            0 => options.lease(every * 3).renew(true),
            _ => options.renew(every),
        };
        let name = format!("order:{index}");
        let lock = self.ways[index].lock(&self.client, &name, options);
        self.call(None, async move {
            match lock.await {
                Some(guard) => Done::Locked(guard),
                None => Done::Nothing,
            }
        });
    }

    fn any_guard(&mut self) -> Option<Guard> {
        let count = self.guards.len();
        (count > 0).then(|| self.guards.swap_remove(self.random.below(count)))
    }

    fn end_one(&mut self) {
        let Some(guard) = self.any_guard() else {
            return;
        };
        self.ends(&guard.owner());
        match self.random.below(3) {
            0 => drop(guard),
            _ => self.call(None, async move {
                guard.unlock().await;
                Done::Nothing
            }),
        }
    }

    fn reenter(&mut self) {
        let Some(guard) = self.any_guard() else {
            return;
        };
        let owner = guard.owner();
        self.call(Some(owner), async move {
            let inner = guard.reenter().await;
            Done::Reentered(guard, inner)
        });
    }

    fn extend(&mut self) {
        let Some(guard) = self.any_guard() else {
            return;
        };
        let owner = guard.owner();
        let lease = MS * u32::try_from(1 + self.random.below(5_000)).unwrap();
        self.call(Some(owner), async move {
            guard.extend(lease).await;
            Done::Extended(guard)
        });
    }

    /// Drops a call; a guard that it uses ends with it.
    fn cancel_one(&mut self) {
        let count = self.calls.len();
        if count == 0 {
            return;
        }
        let call = self.calls.swap_remove(self.random.below(count));
        if let Some(owner) = &call.owner {
            self.ends(owner);
        }
        drop(call);
    }

    fn flush_scripts(&mut self) {
        let mut command = redis::cmd("SCRIPT");
        command.arg("FLUSH");
        self.control(command);
    }

    fn delete(&mut self) {
        let mut command = redis::cmd("DEL");
        command.arg(format!("order:{}", self.random.below(self.locks)));
        self.control(command);
    }

    /// Whatever batch has this lock fails as a whole.
    fn spoil(&mut self) {
        let mut command = redis::cmd("SET");
        command.arg(format!("order:{}", self.random.below(self.locks)));
        command.arg("spoilt").arg("PX").arg(500);
        self.control(command);
    }

    fn control(&mut self, command: redis::Cmd) {
        let mut control = self.control.clone();
        self.call(None, async move {
            let _: redis::RedisResult<redis::Value> = command.query_async(&mut control).await;
            Done::Nothing
        });
    }

    fn cut(&mut self) {
        let which = match self.random.below(2) {
            0 => Which::All,
            _ => Which::Connection(1 + self.random.bits() % self.wires.opened().max(1)),
        };
        self.sentinel.tally.cut += u64::from(self.wires.cut(which) > 0);
    }

    /// No new connections for a while, or again.
    fn refuse(&mut self) {
        self.refusing = !self.refusing;
        if self.refusing {
            self.wires.refuse();
            self.cut();
        } else {
            self.wires.accept();
        }
    }
}

fn interval(random: &mut Random) -> Duration {
    let longest = *random.pick(&[&5, &50, &500, &5_000]);
    Duration::from_millis(2 + random.bits() % longest)
}
