//! A task that tries something for all waiting callers, one at a time.
//!
//! A task tries, not a caller. So a cancelled caller does not restart the try (its wait may be shorter than a try
//! takes), and a caller that is not polled does not block all others.

use std::pin::pin;
use std::sync::{Arc, MutexGuard};
use std::time::{Duration, Instant};

use tokio::sync::Notify;
use tokio::task::AbortHandle;

use super::fault::Fault;
use super::spawner::Spawner;
use crate::clock;

/// The number of tasks that may end without a try, with their runtimes, before a caller gets an
/// error.
const MOST_ORPHANS: usize = 3;

/// The subject of the tries.
pub(super) trait Tried: Sized + Send + Sync + 'static {
    /// The state under its mutex.
    type State;

    fn state(&self) -> MutexGuard<'_, Self::State>;
    fn task(state: &mut Self::State) -> &mut OneTask;
    /// Notified when a task has ended.
    fn ended(&self) -> &Notify;
    fn spawner(&self) -> &Spawner;
    /// The name of the servers in errors.
    fn place(&self) -> &Arc<str>;
    /// How long a task may take.
    fn longest(&self) -> Duration;
    /// One try.
    fn run(turn: Turn<Self>) -> impl Future<Output = ()> + Send;
}

/// The task, and the results of earlier tasks.
#[derive(Default)]
pub(super) struct OneTask {
    running: Option<Running>,
    /// The number of tasks so far, including the current one; identifies them.
    tasks: u64,
    /// The number of ended tries. A caller that waited for a whole try takes its outcome.
    tries: u64,
    last_fault: Option<Fault>,
    pub(super) closed: bool,
}

struct Running {
    number: u64,
    /// When it is given up: its runtime may not be driven.
    until: Instant,
    /// `None` until the task is spawned.
    handle: Option<AbortHandle>,
}

impl OneTask {
    /// A try has ended, and its result is available.
    pub(super) fn tried(&mut self, fault: Option<Fault>) {
        self.tries += 1;
        self.last_fault = fault;
    }

    /// Starts no more tasks. Returns the task to abort.
    pub(super) fn close(&mut self) -> Option<AbortHandle> {
        self.closed = true;
        self.running.take()?.handle
    }

    fn is_run_by(&self, number: u64) -> bool {
        let running = self.running.as_ref();
        running.is_some_and(|running| running.number == number)
    }

    /// The task of this number has ended, or is given up.
    fn end(&mut self, number: u64) -> Option<AbortHandle> {
        self.running.take_if(|task| task.number == number)?.handle
    }

    /// The number of the running task, when it is given up, and whether it must be spawned. `longest`: how long a
    /// new one may take.
    fn begin(&mut self, longest: Duration) -> (u64, Instant, bool) {
        let now = clock::now();
        let stuck = self.running.take_if(|task| task.until <= now);
        if let Some(handle) = stuck.and_then(|task| task.handle) {
            handle.abort();
        }
        let is_new = self.running.is_none();
        self.tasks += u64::from(is_new);
        let running = self.running.get_or_insert_with(|| Running {
            number: self.tasks,
            until: clock::after(now, longest),
            handle: None,
        });
        (running.number, running.until, is_new)
    }
}

/// Starts a task, unless one runs.
pub(super) fn start<T: Tried>(of: &Arc<T>) {
    let mut state = of.state();
    let task = T::task(&mut state);
    if task.closed {
        return;
    }
    let (number, _, is_new) = task.begin(of.longest());
    drop(state);
    if is_new {
        spawn(of, number);
    }
}

/// Waits for one task after the other until `look` finds something. `none`: the error after a try that succeeded,
/// but found nothing; `None`: there is another try.
pub(super) async fn wait<T: Tried, F>(
    of: &Arc<T>,
    mut look: impl FnMut(&mut T::State) -> Option<F>,
    none: impl Fn() -> Option<Fault>,
) -> Result<F, Fault> {
    if of.spawner().process.is_another() {
        return Err(Fault::forked());
    }
    let before = T::task(&mut of.state()).tries;
    let (mut tasks, mut number, mut limit) = (0, 0, clock::now());
    loop {
        let mut ended = pin!(of.ended().notified());
        // Registered before the state is read, so that no end is missed.
        ended.as_mut().enable();
        let mut is_new = false;
        {
            let mut state = of.state();
            if let Some(found) = look(&mut state) {
                return Ok(found);
            }
            let task = T::task(&mut state);
            if task.closed {
                return Err(Fault::closed());
            }
            // A whole try was made while this caller waited. Without this check, n callers would
            // wait for n tries.
            if task.tries > before
                && let Some(fault) = task.last_fault.clone().or_else(&none)
            {
                return Err(fault.at(of.place()));
            }
            // An earlier task that was given up may end during this one.
            if !task.is_run_by(number) {
                if tasks == MOST_ORPHANS {
                    break;
                }
                (number, limit, is_new) = task.begin(of.longest());
                tasks += 1;
            }
        }
        if is_new {
            spawn(of, number);
        }
        // The runtime of the task may be stuck while this one runs.
        let ended = clock::timeout_at(clock::to_tokio(limit), ended).await;
        if ended.is_err()
            && let Some(stuck) = T::task(&mut of.state()).end(number)
        {
            stuck.abort();
        }
    }
    // A caller calls again without a pause, and a runtime ends only between two turns of a task. A runtime that
    // ends has no timers.
    tokio::task::yield_now().await;
    let why = "the task that connects has ended with its runtime";
    Err(Fault::not_connected(std::io::ErrorKind::Other, why).at(of.place()))
}

fn spawn<T: Tried>(of: &Arc<T>, number: u64) {
    let turn = Turn {
        of: Arc::clone(of),
        number,
    };
    // Without a runtime the turn is dropped, which ends it.
    let Some(home) = of.spawner().site() else {
        return;
    };
    let task = home.spawn(T::run(turn));
    let mut state = of.state();
    match &mut T::task(&mut state).running {
        Some(running) if running.number == number => running.handle = Some(task),
        // It has ended, or was closed meanwhile.
        _ => task.abort(),
    }
}

/// A task. It ends when this is dropped, also by an ending runtime.
pub(super) struct Turn<T: Tried> {
    pub(super) of: Arc<T>,
    number: u64,
}

impl<T: Tried> Turn<T> {
    /// Whether the try counts: it was neither closed nor given up meanwhile.
    pub(super) fn counts(&self, state: &mut T::State) -> bool {
        T::task(state).is_run_by(self.number)
    }
}

impl<T: Tried> Drop for Turn<T> {
    fn drop(&mut self) {
        T::task(&mut self.of.state()).end(self.number);
        self.of.ended().notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Mutex, PoisonError};

    use futures::future::join_all;

    use super::*;

    /// Counts; finds nothing while it fails.
    struct Counter {
        state: Mutex<Counted>,
        ended: Notify,
        spawner: Spawner,
        place: Arc<str>,
    }

    #[derive(Default)]
    struct Counted {
        task: OneTask,
        begun: u32,
        fails: bool,
        hangs: bool,
        found: Option<u32>,
    }

    impl Tried for Counter {
        type State = Counted;

        fn state(&self) -> MutexGuard<'_, Counted> {
            self.state.lock().unwrap_or_else(PoisonError::into_inner)
        }

        fn task(state: &mut Counted) -> &mut OneTask {
            &mut state.task
        }

        fn ended(&self) -> &Notify {
            &self.ended
        }

        fn spawner(&self) -> &Spawner {
            &self.spawner
        }

        fn place(&self) -> &Arc<str> {
            &self.place
        }

        fn longest(&self) -> Duration {
            Duration::from_secs(9)
        }

        async fn run(turn: Turn<Self>) {
            let hangs = {
                let mut state = turn.of.state();
                state.begun += 1;
                state.hangs
            };
            if hangs {
                std::future::pending::<()>().await;
            }
            clock::sleep(Duration::from_secs(1)).await;
            let mut state = turn.of.state();
            if turn.counts(&mut state) {
                state.found = (!state.fails).then_some(state.begun);
                let fault = state.fails.then(|| Fault::timed_out("it failed"));
                state.task.tried(fault);
            }
        }
    }

    fn counter() -> Arc<Counter> {
        Arc::new(Counter {
            state: Mutex::default(),
            ended: Notify::new(),
            spawner: Spawner::default(),
            place: "here".into(),
        })
    }

    async fn found(counter: &Arc<Counter>) -> Result<u32, Fault> {
        wait(counter, |state| state.found, || None).await
    }

    #[tokio::test(start_paused = true)]
    async fn all_who_wait_share_one_try_and_its_outcome() {
        let counter = counter();
        counter.state().fails = true;
        for outcome in join_all((0..20).map(|_| found(&counter))).await {
            assert!(outcome.is_err());
        }
        assert_eq!(counter.state().begun, 1);
        counter.state().fails = false;
        for outcome in join_all((0..20).map(|_| found(&counter))).await {
            assert_eq!(outcome.unwrap(), 2);
        }
        assert_eq!(found(&counter).await.unwrap(), 2);
        assert_eq!(counter.state().begun, 2);
    }

    #[tokio::test(start_paused = true)]
    async fn who_comes_during_a_try_that_fails_waits_for_it_only() {
        let counter = counter();
        counter.state().fails = true;
        start(&counter);
        start(&counter);
        clock::sleep(Duration::from_millis(500)).await;
        let began = clock::now();
        assert!(found(&counter).await.is_err());
        assert_eq!(clock::now() - began, Duration::from_millis(500));
        assert_eq!(counter.state().begun, 1);
    }

    #[tokio::test(start_paused = true)]
    async fn a_task_that_hangs_is_given_up() {
        let counter = counter();
        counter.state().hangs = true;
        let waiting = found(&counter);
        let later = async {
            clock::sleep(Duration::from_secs(5)).await;
            counter.state().hangs = false;
        };
        assert_eq!(tokio::join!(waiting, later).0.unwrap(), 2);
        // A task that is given up three times is reported.
        let hanging = self::counter();
        hanging.state().hangs = true;
        let fault = found(&hanging).await.unwrap_err();
        let told = format!("{fault:?}");
        assert!(told.contains("ended with its runtime"), "{told}");
        assert_eq!(hanging.state().begun, 3);
    }

    /// Only waiting callers gave it up: the layout of a cluster was never asked for again.
    #[tokio::test(start_paused = true)]
    async fn a_task_that_hung_kept_all_others_from_starting() {
        let counter = counter();
        counter.state().hangs = true;
        start(&counter);
        clock::sleep(Duration::from_secs(10)).await;
        counter.state().hangs = false;
        start(&counter);
        clock::sleep(Duration::from_secs(2)).await;
        assert_eq!(counter.state().found, Some(2));
    }

    /// Calls are repeated without a pause after such an error. Many of them in one task never ended,
    /// and neither did the runtime, which waits for the task to pause.
    #[test]
    fn callers_in_a_runtime_that_ended_kept_it_from_ending() {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = runtime.enable_all().build().expect("a runtime");
        let handle = runtime.handle().clone();
        drop(runtime);
        let _entered = handle.enter();
        let counter = counter();
        let mut repeated = pin!(async {
            for _ in 0..10 {
                assert!(found(&counter).await.is_err());
            }
        });
        let mut nobody = std::task::Context::from_waker(std::task::Waker::noop());
        for _ in 0..10 {
            assert!(repeated.as_mut().poll(&mut nobody).is_pending());
        }
        assert!(repeated.as_mut().poll(&mut nobody).is_ready());
    }

    #[tokio::test(start_paused = true)]
    async fn nothing_begins_after_the_close() {
        let counter = counter();
        let waiting = found(&counter);
        let close = async {
            clock::sleep(Duration::from_millis(500)).await;
            let task = counter.state().task.close();
            task.unwrap().abort();
        };
        assert!(tokio::join!(waiting, close).0.is_err());
        start(&counter);
        assert!(found(&counter).await.is_err());
        clock::sleep(Duration::from_secs(9)).await;
        let state = counter.state();
        assert_eq!((state.begun, state.found), (1, None));
    }
}
