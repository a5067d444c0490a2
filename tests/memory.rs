//! The memory that locks take of the client, by an allocator that counts. A count has no noise, but
//! for the buffers of the connection and a timer's wheel, which grow to a usual size.
//!
//! The server is another process, so that its memory is not counted. That of the embedded engine, and
//! of its Lua, is.

use std::{alloc::System, sync::Mutex};

use redlock_rt::embedded::{Engine, Session};
use redlock_rt::{Client, FairLock, Kind, Lock, Ticket};
use stats_alloc::{INSTRUMENTED_SYSTEM, StatsAlloc};
use tests::{DEADLINE, RedisServer, eventually, lock};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// The allocations of a lock and unlock: the waiters of the name, their queue and the task's place in it, the
/// hold, and the text of each of the two calls.
const OF_A_PAIR: usize = 11;
/// The bytes of a held lock, with the numbers of the feature `metrics`: 792, and up to 5 more where they are taken so
/// slowly that their renewals have more moments.
const OF_A_HOLD: usize = 800;
/// The bytes of a task that waits, with the task and these numbers.
const OF_A_WAITER: usize = 1180;
/// The same for a fair lock, where a task has a seat, and a place in Redis.
const OF_A_FAIR_WAITER: usize = 1385;

/// The tests of one process run beside each other, and the allocator counts for all.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

fn run<F: Future>(test: impl FnOnce() -> F) -> F::Output {
    let _alone = lock(&ONE_AT_A_TIME);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let runtime = runtime.expect("a runtime can be made");
    runtime.block_on(test())
}

fn allocations() -> usize {
    let stats = ALLOCATOR.stats();
    stats.allocations + stats.reallocations
}

fn bytes() -> usize {
    let stats = ALLOCATOR.stats();
    stats.bytes_allocated - stats.bytes_deallocated
}

/// What each of so many takes; `take` adds so many.
async fn each<T>(mut take: impl AsyncFnMut(usize) -> T) -> usize {
    const FEW: usize = 100;
    const MANY: usize = 5000;
    let few = take(FEW).await;
    let before = bytes();
    let many = take(MANY - FEW).await;
    let taken = bytes() - before;
    drop((few, many));
    taken.div_ceil(MANY - FEW)
}

#[test]
fn a_pair_takes_few_allocations() {
    run(async || {
        const PAIRS: usize = 1000;
        let server = RedisServer::start();
        let client = Client::connect(&server.url()).await.unwrap();
        let lock = client.rlock("pair");
        let pairs = async |times| {
            for _ in 0..times {
                lock.lock().await.unwrap().unlock().await.unwrap();
            }
        };
        pairs(PAIRS).await;
        let before = allocations();
        pairs(PAIRS).await;
        let taken = allocations() - before;
        let of_a_pair = taken as f64 / PAIRS as f64;
        assert_eq!(of_a_pair.round() as usize, OF_A_PAIR, "{of_a_pair}");
    });
}

/// A text from elsewhere, sixteen bytes a dot.
#[test]
fn a_ticket_of_dots_took_sixteen_times_its_length() {
    run(async || {
        let text = format!("ticket1.{}", ".".repeat(1 << 20));
        let before = ALLOCATOR.stats().bytes_allocated;
        text.parse::<Ticket>().unwrap_err();
        let taken = ALLOCATOR.stats().bytes_allocated - before;
        assert!(taken < text.len(), "{taken} bytes");
    });
}

#[test]
fn a_held_lock_takes_little_memory() {
    run(async || {
        let server = RedisServer::start();
        let client = Client::connect(&server.url()).await.unwrap();
        let mut taken = 0;
        let hold = async |count| {
            let mut guards = Vec::with_capacity(count);
            for _ in 0..count {
                taken += 1;
                let lock = client.rlock(format!("holds:{taken:05}"));
                guards.push(lock.lock().await.unwrap());
            }
            guards
        };
        let each = each(hold).await;
        assert!(each <= OF_A_HOLD, "{each} bytes");
    });
}

/// What each of many tasks of a client takes that wait for a lock which another client has; `queued` says
/// whether so many are where they wait, if that is in Redis.
async fn each_waiter<K: Kind>(
    lock: impl Fn(&Client) -> Lock<K>,
    queued: impl AsyncFn(Lock<K>, usize) -> bool,
) -> usize {
    let server = RedisServer::start();
    // Thousands of calls of one thread take a loaded machine seconds.
    let client = async || {
        let builder = Client::builder().url(&server.url());
        let connecting = builder.response_timeout(DEADLINE).connect();
        connecting.await.expect("it answers")
    };
    let [client, other] = [client().await, client().await];
    let _held = lock(&other).lock().await.expect("it is free");
    let wait = async |count| {
        let all = client.stats().waiting + count;
        let tasks: Vec<_> = (0..count)
            .map(|_| {
                let lock = lock(&client);
                tokio::spawn(async move { lock.lock().await.map(drop) })
            })
            .collect();
        let wait = async || {
            let stats = client.stats();
            stats.waiting == all
                && (1..=2).contains(&stats.subscriptions)
                && queued(lock(&client), all).await
        };
        eventually(DEADLINE, wait).await;
        tasks
    };
    each(wait).await
}

#[test]
fn a_task_that_waits_takes_little_memory() {
    run(async || {
        let each = each_waiter(|client| client.rlock("waits"), async |_, _| true).await;

        assert!(each <= OF_A_WAITER, "{each} bytes");
    });
}

/// A connection to the engine, with a place for replies.
struct Asking {
    session: Session,
    reply: Vec<u8>,
}

impl Asking {
    fn of(engine: &Engine) -> Self {
        let (session, reply) = (engine.connect(), vec![0; 64 * 1024]);
        Self { session, reply }
    }

    /// The bytes that were allocated for one request, also if they are free again.
    async fn takes(&mut self, command: &[&[u8]]) -> usize {
        let mut request = redis::Cmd::new();
        for word in command {
            request.arg(*word);
        }
        let request = request.get_packed_command();
        let before = ALLOCATOR.stats().bytes_allocated;
        self.session.write_all(&request).await.expect("it is open");
        let read = self.session.read(&mut self.reply).await;
        let len = read.expect("it is open");
        let taken = ALLOCATOR.stats().bytes_allocated - before;
        let reply = self.reply[..len].escape_ascii();
        assert_ne!(self.reply[0], b'-', "{reply}");
        taken
    }
}

/// Whoever calls it, by its text or by its digest.
#[test]
fn a_script_of_the_embedded_engine_is_compiled_once() {
    run(async || {
        let engine = Engine::new();
        let [mut one, mut other] = [(); 2].map(|()| Asking::of(&engine));
        let script = "KEYS[1] = nil ".repeat(1000);
        let digest = sha1_smol::Sha1::from(&script).digest().to_string();
        let (script, digest) = (script.as_bytes(), digest.as_bytes());
        // The first script starts Lua.
        one.takes(&[b"EVAL", b"return 1", b"0"]).await;
        let compiled = one.takes(&[b"EVAL", script, b"0"]).await;
        assert!(compiled > 3 * script.len(), "{compiled} bytes");
        for caller in [&mut one, &mut other] {
            // Makes room for requests of this length.
            caller.takes(&[b"PING", &script.repeat(2)]).await;
            for again in [
                &[&b"EVAL"[..], script, b"0"],
                &[b"EVALSHA", digest, b"0"],
                &[b"SCRIPT", b"LOAD", script],
            ] {
                let taken = caller.takes(again).await;
                assert!(taken < compiled / 10, "{taken} of {compiled} bytes");
            }
        }
    });
}

/// Bytes that are no text were copied twice on their way to Lua.
#[test]
fn words_are_copied_once_into_lua_and_replies_once_out_of_it() {
    run(async || {
        const LEN: usize = 24 * 1024;
        const CALLS: usize = 20;
        let mut asking = Asking::of(&Engine::new());
        for (script, copies) in [
            ("return #ARGV[1]", 1),
            // The stored one is the second.
            ("redis.call('SET', KEYS[1], ARGV[1])", 2),
            ("return #redis.call('GET', KEYS[1])", 1),
            // The second is to be sent.
            ("return redis.call('GET', KEYS[1])", 2),
        ] {
            for filling in [b'x', 0xff] {
                let mut taken = [0, 0];
                for call in 0..2 * CALLS {
                    // Of equal texts Lua has one.
                    let mut word = call.to_string().into_bytes();
                    word.resize(LEN, filling);
                    asking.takes(&[b"SET", b"k", &word]).await;
                    let argument = if script.contains("ARGV") {
                        &word
                    } else {
                        &b""[..]
                    };
                    let call_of_it = [b"EVAL", script.as_bytes(), b"1", b"k", argument];
                    // Buffers grow in the first half.
                    taken[call / CALLS] += asking.takes(&call_of_it).await;
                }
                let each = taken[1] as f64 / (CALLS * LEN) as f64;
                assert_eq!(each.round() as usize, copies, "{script}: {each}");
            }
        }
    });
}

#[test]
fn a_task_that_waits_for_a_fair_lock_takes_little_memory() {
    run(async || {
        let queued = async |lock: FairLock, all| {
            // With the first answer come those to the tasks that queued last, which read them before the
            // second.
            let [one, two] = [lock.queue_len().await, lock.queue_len().await];
            [one.unwrap(), two.unwrap()] == [all as u64; 2]
        };
        let each = each_waiter(|client| client.fair_lock("waits"), queued).await;

        assert!(each <= OF_A_FAIR_WAITER, "{each} bytes");
    });
}
