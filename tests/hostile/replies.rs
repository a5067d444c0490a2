//! What the library makes of hostile replies.
//!
//! The server behind them is right: each command takes effect, whatever is said about it. So what a
//! caller must leave behind nowhere is there until the library undoes it.

use std::{
    cell::RefCell,
    time::{Duration, UNIX_EPOCH},
};

use redlock_rt::{
    Client, ClientBuilder, Error, ErrorKind, Fire, GuardState, LockOptions, Shutdown, Unlocked,
    embedded::Engine,
};
use tests::{Random, in_use};
use tokio::{
    net::TcpListener,
    runtime::{Builder, Runtime},
    time::{Instant, timeout},
};

use crate::{
    attack::{Attack, How, NONSENSE},
    calls::{CALLS, Call, WAIT},
    coordination::HELD,
    seeds::{REPLIES, REPLIES_OVER_TCP, each},
    server::Hostile,
    session::answered,
};

const RESPONSE: Duration = Duration::from_millis(500);
/// What a caller may take beyond its wait: connecting, and two replies.
const PATIENCE: Duration = Duration::from_secs(5);
/// The lease of a lock.
const LEASE: Duration = Duration::from_secs(30);

thread_local! {
    /// To start Lua for each case would be most of the time.
    static ENGINE: RefCell<Option<Engine>> = const { RefCell::new(None) };
}

/// An engine without keys.
fn engine() -> Engine {
    let engine = ENGINE.with_borrow_mut(|engine| engine.get_or_insert_with(Engine::new).clone());
    assert_eq!(said(&engine, "FLUSHALL"), "+OK\r\n");
    engine
}

/// The reply to an inline command.
fn said(engine: &Engine, command: &str) -> String {
    answered(&mut engine.connect(), &format!("{command}\r\n"))
}

/// A runtime whose clock goes on when there is nothing else to do.
fn simulated() -> Runtime {
    let mut builder = Builder::new_current_thread();
    builder.enable_all().start_paused(true).build().unwrap()
}

fn quick(builder: ClientBuilder) -> Client {
    let builder = builder.response_timeout(RESPONSE).connect_timeout(RESPONSE);
    builder.lease(LEASE).linger(Duration::ZERO).build().unwrap()
}

/// Whether the first reply to the call is one that cannot be read.
fn is_unreadable(call: Call, attack: &Attack) -> bool {
    attack.nonsense && call.asks() && matches!(attack.how, How::Instead(_) | How::Before(_))
}

/// A lock, once the server behaves.
async fn peace(client: &Client) -> Result<Unlocked, Error> {
    let waiting = LockOptions::new().wait(4 * PATIENCE);
    let guard = client.rlock("lock:peace").lock_with(waiting).await?;
    guard.unlock().await
}

/// How replies come.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    /// What is written at once is read at once.
    Whole,
    /// A reply that nobody asked for may arrive when the next command was sent, and be taken for its
    /// reply. Where that cannot be, the caller gets `Protocol`, and a new connection is made.
    InPieces,
}

/// One history: a call while the server attacks, and peace.
async fn history(random: &mut Random, server: &Hostile, client: &Client, way: Way) {
    let bystander = client.rlock("lock:bystander").lock().await.unwrap();
    let call = CALLS[random.below(CALLS.len())];
    let attack = Attack::drawn(random);
    let (skip, times) = (random.below(4), 1 + random.below(3));
    if random.percent(10) {
        said(&server.engine, "SCRIPT FLUSH");
    }
    let prepared = call.prepared(client).await.unwrap();
    server.attack(&attack, skip, times);
    let began = Instant::now();
    let outcome = timeout(WAIT + PATIENCE, prepared).await;
    let context = || format!("{call:?} {skip} {times} {attack:?}: {outcome:?}");
    assert!(outcome.is_ok(), "it takes for ever: {}", context());
    assert!(began.elapsed() <= WAIT + PATIENCE, "{}", context());
    if skip == 0 && is_unreadable(call, &attack) {
        let kind = outcome.as_ref().unwrap().as_ref().map_err(Error::kind);
        assert_eq!(kind, Err(ErrorKind::Protocol), "{}", context());
    }
    server.behave();

    let mut ended = peace(client).await;
    let out_of_step = |ended: &Result<_, Error>| {
        let kind = ended.as_ref().map_err(Error::kind);
        kind.is_err_and(|kind| kind == ErrorKind::Protocol)
    };
    if way == Way::InPieces && !attack.nonsense && out_of_step(&ended) {
        ended = peace(client).await;
    }
    match ended {
        Ok(unlocked) => assert_eq!(unlocked, Unlocked::Released, "{}", context()),
        Err(error) => panic!("{error:?} after {}", context()),
    }
    if attack.nonsense {
        assert!(bystander.is_valid(), "{}", context());
        let unlocked = bystander.unlock().await;
        assert_eq!(unlocked.unwrap(), Unlocked::Released, "{}", context());
    } else {
        // It may have been told that the lock was lost, or that it is not.
        drop(bystander);
    }
    let shut_down = client.shutdown(Shutdown::Drain(4 * LEASE)).await;
    assert!(
        shut_down.is_ok() || !attack.nonsense,
        "{shut_down:?} {}",
        context()
    );
    let left = in_use(client);
    assert!(
        left.is_empty() || !attack.nonsense,
        "{left:?} {}",
        context()
    );
    if attack.nonsense {
        let keys = said(&server.engine, "KEYS *lock:*");
        let token = "$33\r\nredisson_lock_token:{lock:fenced}";
        let left = keys.replace(token, "").contains("lock:");
        assert!(!left, "{keys} is left by {}", context());
        let held = said(&server.engine, HELD);
        assert_eq!(held, ":0\r\n", "{}", context());
        if call == Call::Acquire {
            assert_eq!(
                said(&server.engine, "GET plain"),
                "$1\r\n3\r\n",
                "{}",
                context()
            );
        }
        if call == Call::CountDown {
            assert_eq!(
                said(&server.engine, "GET latch"),
                "$1\r\n1\r\n",
                "{}",
                context()
            );
        }
    }
}

fn case(seed: u64) {
    let runtime = simulated();
    runtime.block_on(async {
        let server = Hostile::new(&engine());
        let client = quick(server.client());
        history(&mut Random::new(seed), &server, &client, Way::Whole).await;
    });
}

#[test]
fn nothing_that_a_server_sends_breaks_a_client() {
    each(&REPLIES, case);
}

/// The same over TCP, where bytes come in pieces and time is that of the machine.
#[test]
fn nothing_that_a_server_sends_over_tcp_breaks_a_client() {
    each(&REPLIES_OVER_TCP, |seed| {
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let server = Hostile::new(&engine());
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let url = format!("redis://{}", listener.local_addr().unwrap());
            let serving = server.clone();
            tokio::spawn(async move {
                while let Ok((stream, _)) = listener.accept().await {
                    tokio::spawn(serving.clone().serve(stream));
                }
            });
            let client = quick(Client::builder().url(&url));
            history(&mut Random::new(seed), &server, &client, Way::InPieces).await;
        });
    });
}

/// Each call with each reply that makes no sense: the caller gets `Protocol`, the connection is
/// given up, and a lock that has nothing to do with it is in doubt until Redis has confirmed it.
#[test]
fn a_reply_that_makes_no_sense_is_a_protocol_error_and_doubt() {
    for call in CALLS.into_iter().filter(|call| call.asks()) {
        for bytes in NONSENSE {
            simulated().block_on(async {
                let attack = Attack {
                    how: How::Instead(bytes.to_vec()),
                    nonsense: true,
                };
                told_apart(call, &attack).await;
            });
        }
    }
}

/// The same of replies that are well-formed, and that no script gives.
#[test]
fn a_reply_of_the_wrong_type_is_a_protocol_error_and_doubt() {
    const WRONG: [&[u8]; 6] = [
        b"*3\r\n$3\r\nfoo\r\n*0\r\n*-1\r\n",
        b"*1\r\n*1\r\n:1\r\n",
        b"$3\r\nfoo\r\n",
        b"*2\r\n:-7\r\n$-1\r\n",
        b"+QUEUED\r\n",
        b"*4\r\n:1\r\n:2\r\n:3\r\n:4\r\n",
    ];
    for call in CALLS.into_iter().filter(|call| call.asks()) {
        // What a script of the caller returns may be anything, and Redis says by a text that the
        // token of a write is old, and how a generation of a barrier ended.
        let is_right = |bytes: &&[u8]| match call {
            Call::Set => true,
            Call::Broken => !bytes.starts_with(b"*"),
            _ => false,
        };
        for bytes in WRONG.into_iter().filter(|bytes| !is_right(bytes)) {
            simulated().block_on(async {
                let attack = Attack {
                    how: How::Instead(bytes.to_vec()),
                    nonsense: true,
                };
                told_apart(call, &attack).await;
            });
        }
    }
}

async fn told_apart(call: Call, attack: &Attack) {
    let server = Hostile::new(&engine());
    let client = quick(server.client());
    let bystander = client.rlock("lock:bystander").lock().await.unwrap();
    let prepared = call.prepared(&client).await.unwrap();
    // The renewals have a connection too, and the next one is not due soon.
    tokio::time::sleep(LEASE + Duration::from_secs(3)).await;
    let before = server.connections();
    server.attack(attack, 0, 1);
    server.mute_others(true);
    let outcome = prepared.await;
    let context = format!("{call:?} {attack:?}: {outcome:?}");
    assert_eq!(
        outcome.map_err(|error| error.kind()),
        Err(ErrorKind::Protocol),
        "{context}"
    );
    assert_eq!(server.attacked(), 1, "{context}");
    // It is asked at once whether the lock is still there, and nobody answers.
    tokio::time::sleep(2 * RESPONSE).await;
    let state = bystander.state();
    assert!(
        matches!(state, GuardState::Suspect { .. }),
        "{state:?} {context}"
    );
    server.behave();
    let again = Instant::now() + PATIENCE;
    while !matches!(bystander.state(), GuardState::Held { .. }) {
        assert!(Instant::now() < again, "{:?} {context}", bystander.state());
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert_eq!(
        bystander.unlock().await.unwrap(),
        Unlocked::Released,
        "{context}"
    );
    assert!(server.connections() > before, "{context}");
    client.shutdown(Shutdown::Drain(LEASE)).await.unwrap();
}

/// An attack by which the server says this once in place of the next reply.
fn says(server: &Hostile, reply: &[u8]) {
    let attack = Attack {
        how: How::Instead(reply.to_vec()),
        nonsense: true,
    };
    server.attack(&attack, 0, 1);
}

#[test]
fn a_request_without_a_limit_of_attempts_panicked_when_it_was_told_that_they_are_over() {
    const FAILED: &[u8] = b"$6\r\nfailed\r\n";
    simulated().block_on(async {
        let server = Hostile::new(&engine());
        let client = quick(server.client());
        let run = async |key: &str| {
            let body = async { Ok::<_, Error>(b"answer".to_vec()) };
            client.idempotent(key).run(body).await
        };
        // From here on the server knows the script, so the next reply is the one to the call.
        run("first").await.unwrap();
        says(&server, FAILED);
        let error = run("second").await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Protocol, "{error}");
        let text = error.to_string();
        assert!(text.contains("idempotent:second"), "{text}");

        let job = |name: &str| client.once(name, UNIX_EPOCH + WAIT);
        says(&server, FAILED);
        let error = job("any").start().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Protocol, "{error}");
        says(&server, FAILED);
        let limited = job("three").attempts(3).start().await.unwrap();
        assert!(matches!(limited, Fire::Failed), "{limited:?}");
        assert_eq!(server.attacked(), 3);
    });
}

/// Those inside leave in the next generation, whose number is greater by one.
#[test]
fn a_barrier_that_was_told_the_greatest_generation_panicked_when_it_was_left() {
    const GREATEST: &[u8] = b"*2\r\n$20\r\n18446744073709551615\r\n:1\r\n";
    simulated().block_on(async {
        let server = Hostile::new(&engine());
        let client = quick(server.client());
        let barrier = client.double_barrier("double", 1);
        // The server knows the script then.
        let inside = barrier.enter().await.unwrap();
        inside.leave().await.unwrap();
        says(&server, GREATEST);
        let error = barrier.enter().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Protocol, "{error}");
        assert!(error.to_string().contains("\"double\""), "{error}");
        assert_eq!(server.attacked(), 1);
        server.behave();
        // The party that the server has counted leaves, and the next one passes.
        let inside = barrier.enter_with(PATIENCE).await.unwrap();
        inside.leave().await.unwrap();
        client.shutdown(Shutdown::Drain(LEASE)).await.unwrap();
        assert_eq!(said(&server.engine, HELD), ":0\r\n");
    });
}
