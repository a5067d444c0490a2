//! The driver of one connection. A task polls it, and so does a thread that cannot wait for that task.
//!
//! After a guard is dropped at the end of `main`, its runtime ends before the task is polled again.
//! So the dropping thread polls the same future once. This writes the pending calls to the socket,
//! as far as the socket accepts them without waiting.
//!
//! * It is polled inside the runtime of its task, wherever the guard is dropped: the stream of a connector
//!   may need that runtime.
//! * A process that ends resets its connection if replies are unread, and a server that cannot send replies
//!   stops reading. So of several releases only the first is sure to be read.
//! * A single command from another runtime (`dedicated_thread`) is written by its caller in the same way:
//!   otherwise the task would be woken twice for a call. While four or more calls are in progress, the task
//!   first lets ready tasks run, so that their commands go out in one write.

use std::cell::Cell;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, MutexGuard, TryLockError};
use std::task::{Context, Poll, Waker};

use tokio::task::coop::unconstrained;

use super::multiplexer::{Ended, Multiplexer, Pending, WakeUp};
use crate::connection::spawner::{Home, Process};
use crate::shim::lock_std;

/// With this many calls in progress, the task lets other tasks run before it writes or reads.
const MANY: usize = 4;

/// The future of one connection.
pub(in crate::connection) struct Driver {
    /// The runtime of its task. A connector's stream may need this runtime.
    home: Home,
    /// The process that owns the connection.
    process: Process,
    /// Its commands.
    multiplexer: Arc<Multiplexer>,
    /// Held while the future is polled, which never blocks.
    state: Mutex<DriverState>,
}

thread_local! {
    /// Whether this thread is polling a driver, and so holds its mutex.
    static POLLING: Cell<bool> = const { Cell::new(false) };
}

struct DriverState {
    /// `None` once the connection or its task has ended.
    future: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
    /// The waker of the task: polled from outside, the future still wakes its task.
    waker: Option<Waker>,
}

/// Resets the flag when dropped, also by a panic.
struct Polling;

impl Polling {
    fn begin() -> Self {
        POLLING.set(true);
        Self
    }
}

impl Drop for Polling {
    fn drop(&mut self) {
        POLLING.set(false);
    }
}

impl Driver {
    /// Both the driver and the task that is to be spawned for it.
    pub(in crate::connection) fn new(
        home: Home,
        multiplexer: &Arc<Multiplexer>,
        future: impl Future<Output = ()> + Send + 'static,
    ) -> (Arc<Self>, Task) {
        let driver = Arc::new(Self {
            home,
            process: Process::default(),
            multiplexer: Arc::clone(multiplexer),
            state: Mutex::new(DriverState {
                future: Some(Box::pin(future)),
                waker: None,
            }),
        });
        let task = Task {
            driver: Arc::clone(&driver),
            let_others_run: false,
        };
        (driver, task)
    }

    /// As [`Multiplexer::send`]. A single command from outside of the task's runtime is written here.
    /// Otherwise the task's thread would be woken twice, to write the command and to read its reply.
    pub(in crate::connection) fn send<const N: usize>(
        &self,
        caller: WakeUp<'_>,
        encode: impl FnOnce(&mut Vec<u8>) -> [usize; N],
    ) -> Result<Pending, Ended> {
        let (sent, idle) = self.multiplexer.append(caller, encode)?;
        if let Some(task) = idle
            && !self.writes_here()
        {
            task.wake();
        }
        Ok(sent)
    }

    /// Writes the commands of few callers of other runtimes. Returns `false` if the task must be woken.
    fn writes_here(&self) -> bool {
        if self.multiplexer.in_progress() >= MANY || self.home.is_here() || POLLING.get() {
            return false;
        }
        if self.is_inherited() {
            return true;
        }
        // If the task is being polled, it may have already looked for commands.
        let state = match self.state.try_lock() {
            Ok(state) => state,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return false,
        };
        self.poll_outside(state);
        true
    }

    /// Writes pending calls to the connection, without waiting for the socket.
    pub(in crate::connection) fn push(&self) {
        // A connector's stream dropped a guard while it was polled. The task of that connection, which is
        // being polled or has been woken, will write the call soon.
        if POLLING.get() || self.is_inherited() {
            return;
        }
        self.poll_outside(lock_std(&self.state));
    }

    /// Whether the connection belongs to the process that forked this one. Then nothing is written or read
    /// here. Its mutex is not taken, since a thread that does not exist here may hold it.
    pub(in crate::connection) fn is_inherited(&self) -> bool {
        let inherited = self.process.is_another();
        if inherited {
            self.multiplexer.end(Ended::Closed);
        }
        inherited
    }

    /// Whether the task is polled as reliably as a timer of this thread's runtime fires. With several
    /// workers the task may be queued, out of reach of other workers, behind a task that blocks its worker.
    pub(in crate::connection) fn is_as_sure_as_a_timer(&self) -> bool {
        self.home.has_one_thread() && self.home.is_here()
    }

    /// Polls in the task, with its waker.
    fn poll(&self, waker: &Waker) -> Poll<()> {
        let mut state = lock_std(&self.state);
        match &mut state.waker {
            Some(known) => known.clone_from(waker),
            none => *none = Some(waker.clone()),
        }
        let polled = state.poll();
        DriverState::end_if(state, polled.is_ready());
        polled
    }

    /// Polls on another thread. The task handles the end of the connection. A panic of a connector's stream
    /// ends the connection, as in the task, and not the caller.
    fn poll_outside(&self, mut state: MutexGuard<'_, DriverState>) {
        let _inside = self.home.enter();
        let polled = catch_unwind(AssertUnwindSafe(|| state.poll()));
        if polled.is_err()
            && let Some(task) = &state.waker
        {
            task.wake_by_ref();
        }
        DriverState::end_if(state, !matches!(polled, Ok(Poll::Pending)));
    }
}

impl DriverState {
    fn end_if(mut state: MutexGuard<'_, Self>, ended: bool) {
        let future = state.future.take_if(|_| ended);
        drop(state);
        // The socket is closed with no mutex held.
        drop(future);
    }

    fn poll(&mut self) -> Poll<()> {
        let Some(future) = &mut self.future else {
            // The connection has ended, and its task was woken then.
            return Poll::Ready(());
        };
        // Before the task's first poll there is no waker to keep; that poll is still to come.
        let waker = self.waker.as_ref().unwrap_or(Waker::noop());
        // The budget belongs to the task that drops the guard: if it is used up, nothing would be written.
        let future = pin!(unconstrained(future.as_mut()));
        let _polling = Polling::begin();
        let polled = future.poll(&mut Context::from_waker(waker));
        if polled.is_ready() {
            waker.wake_by_ref();
        }
        polled
    }
}

/// Polls the driver while the connection lives. Dropping this, also by an ending runtime, closes
/// the connection.
pub(in crate::connection) struct Task {
    driver: Arc<Driver>,
    let_others_run: bool,
}

impl Future for Task {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        // The first caller of several wakes this task, which would run next and write one command. One turn
        // later the commands of all callers are there, for one write.
        let many = self.driver.multiplexer.in_progress() >= MANY;
        self.let_others_run = many && !self.let_others_run;
        if self.let_others_run {
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        self.driver.poll(cx.waker())
    }
}

impl Drop for Task {
    fn drop(&mut self) {
        let future = lock_std(&self.driver.state).future.take();
        if self.driver.process.is_another() {
            // Closing the socket would also close it for the other process, which shares the epoll.
            std::mem::forget(future);
            return;
        }
        // The socket is closed with no mutex held.
        drop(future);
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;
    use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, DuplexStream, ReadBuf};
    use tokio::runtime::Runtime;

    use super::super::encode;
    use super::super::framed::Framed;
    use super::super::multiplexer::{Ended, Pending, WakeUp, last};
    use super::*;
    use crate::wire::Value;
    use std::future::poll_fn;
    use std::io;
    use std::sync::atomic::{AtomicUsize, Ordering};

    fn home() -> Home {
        crate::connection::Spawner::default().site().unwrap()
    }

    /// The release of a guard that was dropped right after its client had connected was not written: the
    /// task of the connection had not been polled yet.
    #[tokio::test]
    async fn a_call_before_the_first_poll_of_the_task_is_written() {
        let polls = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&polls);
        let (driver, task) = Driver::new(
            home(),
            &Arc::default(),
            poll_fn(move |_| {
                count.fetch_add(1, Ordering::Relaxed);
                Poll::Pending
            }),
        );
        driver.push();
        assert_eq!(polls.load(Ordering::Relaxed), 1);
        drop(task);
        driver.push();
        assert_eq!(polls.load(Ordering::Relaxed), 1, "it is over");
    }

    /// A driver that counts its polls, and its task.
    fn counting() -> (Arc<Driver>, tokio_test::task::Spawn<Task>, Arc<AtomicUsize>) {
        let polls = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&polls);
        let polled = poll_fn(move |_| {
            count.fetch_add(1, Ordering::Relaxed);
            Poll::Pending
        });
        let (driver, task) = Driver::new(home(), &Arc::default(), polled);
        (driver, tokio_test::task::spawn(task), polls)
    }

    /// A connection of a thread that is never woken.
    struct Elsewhere {
        runtime: Runtime,
        driver: Arc<Driver>,
        task: tokio_test::task::Spawn<Task>,
        server: DuplexStream,
    }

    impl Elsewhere {
        fn new() -> Self {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .build()
                .expect("a runtime");
            let (ours, server) = tokio::io::duplex(1024);
            let (multiplexer, driving) = Multiplexer::new(Framed::new(ours));
            let home = {
                let _inside = runtime.enter();
                home()
            };
            let (driver, task) = Driver::new(home, &multiplexer, driving);
            let mut task = tokio_test::task::spawn(task);
            assert!(task.poll().is_pending(), "it waits for commands");
            Self {
                runtime,
                driver,
                task,
                server,
            }
        }

        fn send(&self) -> Pending {
            let encode = |out: &mut Vec<u8>| [encode::command(out, &[b"PING"])];
            self.driver.send(WakeUp::default(), encode).unwrap()
        }

        /// How many commands the server has received since the last look.
        fn received(&mut self) -> usize {
            let mut bytes = [0; 1024];
            let read = self.server.read(&mut bytes).now_or_never();
            read.map_or(0, Result::unwrap) / b"*1\r\n$4\r\nPING\r\n".len()
        }
    }

    /// The thread was woken twice for each call: to write the command, and to read the reply.
    #[test]
    fn a_lone_call_of_another_thread_is_written_by_its_caller() {
        let mut there = Elsewhere::new();
        for _ in 0..3 {
            let sent = there.send();
            assert_eq!((there.received(), there.task.is_woken()), (1, false));
            there
                .server
                .write_all(b"+PONG\r\n")
                .now_or_never()
                .unwrap()
                .unwrap();
            assert!(there.task.is_woken(), "by the reply");
            assert!(there.task.poll().is_pending());
            let answer = last(sent.now_or_never().unwrap());
            assert_eq!(answer.unwrap(), Value::Text("PONG".into()));
        }
    }

    #[test]
    fn a_call_in_the_runtime_of_the_task_is_left_to_it() {
        let mut there = Elsewhere::new();
        let inside = there.runtime.handle().clone();
        let _sent = {
            let _inside = inside.enter();
            there.send()
        };
        assert_eq!((there.received(), there.task.is_woken()), (0, true));
        assert!(there.task.poll().is_pending());
        assert_eq!(there.received(), 1);
    }

    /// They share a write.
    #[test]
    fn many_calls_of_another_thread_are_left_to_the_task() {
        let mut there = Elsewhere::new();
        let mut sent: Vec<_> = (1..MANY).map(|_| there.send()).collect();
        assert_eq!((there.received(), there.task.is_woken()), (MANY - 1, false));
        sent.extend([there.send(), there.send()]);
        assert_eq!((there.received(), there.task.is_woken()), (0, true));
        assert!(there.task.poll().is_pending(), "others run first");
        assert!(there.task.poll().is_pending());
        assert_eq!(there.received(), 2);
    }

    /// The task may be past its look at the commands.
    #[test]
    fn a_call_while_the_task_is_polled_wakes_it() {
        let mut there = Elsewhere::new();
        let polled = lock_std(&there.driver.state);
        let _sent = there.send();
        drop(polled);
        assert_eq!((there.received(), there.task.is_woken()), (0, true));
        assert!(there.task.poll().is_pending());
        assert_eq!(there.received(), 1);
    }

    /// The task writes the bytes that the stream does not take at once.
    #[test]
    fn a_call_that_does_not_fit_into_the_socket_is_written_later() {
        let mut there = Elsewhere::new();
        let long = [b'x'; 2000];
        let encode = |out: &mut Vec<u8>| [encode::command(out, &[&long[..]])];
        let _sent = there.driver.send(WakeUp::default(), encode).unwrap();
        let mut bytes = [0; 4096];
        let mut read = || {
            there
                .server
                .read(&mut bytes)
                .now_or_never()
                .unwrap()
                .unwrap()
        };
        assert_eq!(read(), 1024);
        assert!(there.task.is_woken(), "there is room again");
        assert!(there.task.poll().is_pending());
        assert_eq!(read(), b"*1\r\n$2000\r\n".len() + 2000 + 2 - 1024);
    }

    /// A stream that takes nothing, by a panic.
    struct Panics;

    impl AsyncRead for Panics {
        fn poll_read(
            self: Pin<&mut Self>,
            _: &mut Context<'_>,
            _: &mut ReadBuf<'_>,
        ) -> Poll<io::Result<()>> {
            Poll::Pending
        }
    }

    impl AsyncWrite for Panics {
        fn poll_write(
            self: Pin<&mut Self>,
            _: &mut Context<'_>,
            _: &[u8],
        ) -> Poll<io::Result<usize>> {
            panic!("as a connector's stream may")
        }

        fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }

        fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }
    }

    /// The caller panicked, and later ones waited for their time-outs.
    #[test]
    fn a_stream_that_panics_ends_its_connection_and_no_caller() {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .build()
            .expect("a runtime");
        let (multiplexer, driving) = Multiplexer::new(Framed::new(Panics));
        let home = {
            let _inside = runtime.enter();
            home()
        };
        let (driver, task) = Driver::new(home, &multiplexer, driving);
        let mut task = tokio_test::task::spawn(task);
        assert!(task.poll().is_pending());
        let encode = |out: &mut Vec<u8>| [encode::command(out, &[b"PING"])];
        let sent = driver.send(WakeUp::default(), encode).unwrap();
        assert!(sent.now_or_never().expect("the end is known")[0].is_err());
        assert!(driver.send(WakeUp::default(), encode).is_err());
        assert!(task.is_woken());
        assert!(task.poll().is_ready());
    }

    #[test]
    fn a_call_on_a_connection_that_ended_is_told() {
        let there = Elsewhere::new();
        drop(there.server);
        let encode = |out: &mut Vec<u8>| [encode::command(out, &[b"PING"])];
        let sent = there.driver.send(WakeUp::default(), encode).unwrap();
        assert!(sent.now_or_never().expect("the end was found")[0].is_err());
        assert!(there.task.is_woken());
        assert!(there.driver.send(WakeUp::default(), encode).is_err());
    }

    fn command(driver: &Driver) -> Pending {
        driver
            .multiplexer
            .send(WakeUp::default(), |out| [out.len()])
            .unwrap()
    }

    #[tokio::test]
    async fn a_single_call_is_written_at_once() {
        let (driver, mut task, polls) = counting();
        let _sent = command(&driver);
        for polled in 1..4 {
            assert!(task.poll().is_pending());
            assert_eq!(polls.load(Ordering::Relaxed), polled);
        }
    }

    /// Their callers run before the next poll, so that their commands are in one write.
    #[tokio::test]
    async fn with_many_calls_the_task_lets_others_run_first() {
        let (driver, mut task, polls) = counting();
        let commands: Vec<_> = (0..MANY).map(|_| command(&driver)).collect();
        for polled in 1..4 {
            assert!(task.poll().is_pending());
            assert_eq!(polls.load(Ordering::Relaxed), polled - 1);
            assert!(task.is_woken(), "it has not written yet");
            assert!(task.poll().is_pending());
            assert_eq!(polls.load(Ordering::Relaxed), polled);
        }
        drop(commands);
        driver.multiplexer.end(Ended::Closed);
        assert!(task.poll().is_pending());
        assert_eq!(polls.load(Ordering::Relaxed), 4);
    }

    #[tokio::test]
    async fn a_connection_that_ended_while_it_was_pushed_ends_its_task() {
        let (driver, task) = Driver::new(home(), &Arc::default(), std::future::ready(()));
        driver.push();
        task.await;
    }
}
