//! The commands of a lock and unlock that this library sends, and nothing else: the floor of what a client
//! of these commands can take.
//!
//! There is no guard, no lease, no queue, no time-out and no error: a reply is a line. Each task has its
//! commands as bytes from the beginning. As in this library, one task of the runtime writes what all callers
//! have left, and waits a turn before if a few wait for replies. A release for which nobody waits is written by
//! the task that leaves it, so that it is on its way when the program ends at the next line. So is each command
//! where the connection is that of another thread.

use std::{
    collections::VecDeque,
    future::{pending, poll_fn},
    io,
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll, Waker, ready},
    thread,
    time::Instant,
};

use ::tests::RedisServer;
use tokio::{
    io::{AsyncRead, ReadBuf},
    net::{
        TcpStream,
        tcp::{OwnedReadHalf, OwnedWriteHalf},
    },
    runtime::{Builder, Handle},
    task::JoinHandle,
};

use crate::pair::Pair;

/// As in this library: with so many calls under way it is worth while to wait for more.
const FEW: usize = 4;

#[derive(Default)]
struct Line {
    /// What is not written yet.
    out: Vec<u8>,
    /// The task of each reply to come.
    expected: VecDeque<usize>,
    tasks: Vec<Slot>,
    driver: Option<Waker>,
}

#[derive(Default)]
struct Slot {
    /// The replies that the task waits for.
    replies: usize,
    waker: Option<Waker>,
}

impl Line {
    /// As much as the socket takes without waiting.
    fn write_to(&mut self, commands: &OwnedWriteHalf) -> io::Result<()> {
        while !self.out.is_empty() {
            match commands.try_write(&self.out) {
                Ok(written) => drop(self.out.drain(..written)),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

type Shared = Arc<Mutex<Line>>;

fn lock(line: &Shared) -> MutexGuard<'_, Line> {
    line.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The commands of one task.
pub(crate) struct Bare {
    commands: Arc<OwnedWriteHalf>,
    line: Shared,
    task: usize,
    acquire: Vec<u8>,
    release: Vec<u8>,
    how: How,
}

/// How the commands of a pair are sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum How {
    /// By the task of the connection. Replies are waited for.
    Waiting,
    /// The release is written by the task that leaves it, which does not wait for the replies.
    Dropping,
    /// By the caller. The connection is that of a thread of its own, which reads the replies.
    OnThread,
}

impl Bare {
    /// Leaves a command to the writer, unless it is written here.
    fn send(&self, command: &[u8], replies: usize, waits: bool) {
        let mut line = lock(&self.line);
        line.out.extend_from_slice(command);
        // Replies for which nobody waits are for nobody.
        let task = if waits { self.task } else { usize::MAX };
        line.expected.extend(std::iter::repeat_n(task, replies));
        if waits {
            line.tasks[self.task].replies = replies;
        }
        if !waits || self.how == How::OnThread {
            line.write_to(&self.commands).expect("the server reads");
        } else if let Some(driver) = line.driver.take() {
            drop(line);
            driver.wake();
        }
    }

    /// Sends a command, and waits for its replies.
    pub(crate) async fn call(&self, command: &[u8], replies: usize) {
        self.send(command, replies, true);
        poll_fn(|cx| {
            let slot = &mut lock(&self.line).tasks[self.task];
            if slot.replies == 0 {
                return Poll::Ready(());
            }
            slot.waker = Some(cx.waker().clone());
            Poll::Pending
        })
        .await;
    }
}

impl Pair for Bare {
    async fn pair(&mut self) -> Instant {
        self.call(&self.acquire, 1).await;
        let held = Instant::now();
        match self.how {
            How::Waiting | How::OnThread => self.call(&self.release, 2).await,
            How::Dropping => self.send(&self.release, 2, false),
        }
        held
    }
}

/// Writes what callers leave, and reads replies.
struct Driver {
    replies: OwnedReadHalf,
    commands: Arc<OwnedWriteHalf>,
    line: Shared,
    waited: bool,
}

impl Driver {
    /// Ends with the connection.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let end = ready!(self.poll_both(cx));
        // Each caller has a part in the line. Without callers, the server may end first.
        assert_eq!(
            Arc::strong_count(&self.line),
            1,
            "the server stays: {end:?}"
        );
        Poll::Ready(())
    }

    fn poll_both(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        loop {
            let written = self.poll_write(cx)?;
            if self.poll_read(cx)?.is_pending() && written.is_pending() {
                return Poll::Pending;
            }
        }
    }

    /// Ready if it should be called again.
    fn poll_write(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut line = lock(&self.line);
        line.driver = Some(cx.waker().clone());
        if line.out.is_empty() {
            return Poll::Pending;
        }
        if line.expected.len() >= FEW && !std::mem::replace(&mut self.waited, true) {
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        self.waited = false;
        ready!(self.commands.as_ref().as_ref().poll_write_ready(cx))?;
        Poll::Ready(line.write_to(&self.commands))
    }

    fn poll_read(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut buffer = [0; 4096];
        let mut read = ReadBuf::new(&mut buffer);
        ready!(Pin::new(&mut self.replies).poll_read(cx, &mut read))?;
        if read.filled().is_empty() {
            return Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into()));
        }
        assert!(!read.filled().contains(&b'-'), "an error");
        let lines = read.filled().iter().filter(|byte| **byte == b'\n').count();
        let mut line = lock(&self.line);
        for _ in 0..lines {
            let task = line.expected.pop_front().expect("each reply has a call");
            if let Some(slot) = line.tasks.get_mut(task) {
                slot.replies -= 1;
                if slot.replies == 0
                    && let Some(waker) = slot.waker.take()
                {
                    waker.wake();
                }
            }
        }
        Poll::Ready(Ok(()))
    }
}

fn command(words: &[&[u8]]) -> Vec<u8> {
    let mut command = redis::Cmd::new();
    command.arg(words);
    command.get_packed_command()
}

/// One for each task, on one connection.
pub(crate) async fn pairs(server: &RedisServer, tasks: u64, how: How) -> Vec<Bare> {
    driven(server, tasks, how).await.0
}

/// The runtime of a thread that stays until the program ends.
fn thread() -> Handle {
    let runtime = Builder::new_current_thread().enable_all().build();
    let runtime = runtime.expect("a runtime");
    let handle = runtime.handle().clone();
    thread::spawn(move || runtime.block_on(pending::<()>()));
    handle
}

/// The same, with the task that writes and reads.
async fn driven(server: &RedisServer, tasks: u64, how: How) -> (Vec<Bare>, JoinHandle<()>) {
    let mut redis = server.connect().await.expect("the server answers");
    let home = match how {
        How::Waiting | How::Dropping => Handle::current(),
        How::OnThread => thread(),
    };
    let stream = home.spawn(TcpStream::connect(server.address())).await;
    let stream = stream.expect("it ends").expect("the server answers");
    stream.set_nodelay(true).expect("it is a TCP stream");
    let (replies, commands) = stream.into_split();
    let commands = Arc::new(commands);
    let line = Shared::default();
    let mut driver = Driver {
        replies,
        commands: Arc::clone(&commands),
        line: Arc::clone(&line),
        waited: false,
    };
    let driver = home.spawn(poll_fn(move |cx| driver.poll(cx)));
    let mut pairs = Vec::new();
    for task in 0..tasks {
        let key = format!("bench:bare:{how:?}:{task:03}");
        let owner = format!("0f8fad5b-d9cb-469f-a165-70867728950e:{task}");
        let (_, dump, _): (u8, Vec<u8>, u8) = redis::pipe()
            .cmd("HSET")
            .arg(&key)
            .arg(&owner)
            .arg(1)
            .cmd("DUMP")
            .arg(&key)
            .cmd("DEL")
            .arg(&key)
            .query_async(&mut redis)
            .await
            .expect("the server answers");
        let channel = format!("redisson_lock__channel:{{{key}}}");
        let (key, owner) = (key.as_bytes(), owner.as_bytes());
        let release = [
            command(&[b"HDEL", key, owner]),
            command(&[b"PUBLISH", channel.as_bytes(), b"0"]),
        ];
        lock(&line).tasks.push(Slot::default());
        pairs.push(Bare {
            commands: Arc::clone(&commands),
            line: Arc::clone(&line),
            task: pairs.len(),
            acquire: command(&[b"RESTORE", key, b"30000", &dump]),
            release: release.concat(),
            how,
        });
    }
    (pairs, driver)
}

#[cfg(test)]
mod tests {
    use ::tests::RedisServer;

    use super::{How, Pair, driven};

    /// It said that the server should have stayed.
    #[tokio::test]
    async fn a_server_that_stops_behind_the_last_pair_makes_no_panic() {
        for how in [How::Waiting, How::Dropping, How::OnThread] {
            let server = RedisServer::start();
            let (mut pairs, driver) = driven(&server, 2, how).await;
            for pair in &mut pairs {
                pair.pair().await;
            }
            drop(pairs);
            drop(server);
            driver.await.expect("it ends with the connection");
        }
    }

    #[tokio::test]
    async fn a_server_that_stops_under_a_caller_is_noticed() {
        let server = RedisServer::start();
        let (_pairs, driver) = driven(&server, 1, How::Waiting).await;
        drop(server);
        let panic = driver.await.unwrap_err().into_panic();
        let said = panic.downcast_ref::<String>().expect("a text");
        assert!(said.contains("the server stays"), "{said}");
    }
}
