//! The engine through its sessions, as a client sees it.

use super::limits::SCRIPT_TIME;
use super::{Engine, Session};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// Sends a line and returns all that can be read without waiting.
async fn ask(session: &mut Session, line: &str) -> String {
    session
        .write_all(format!("{line}\r\n").as_bytes())
        .await
        .unwrap();
    read_now(session)
}

fn read_now(session: &mut Session) -> String {
    let mut text = String::new();
    let mut chunk = [0; 4096];
    loop {
        let mut read = tokio_test::task::spawn(session.read(&mut chunk));
        match read.poll() {
            Poll::Ready(Ok(n)) if n > 0 => {
                drop(read);
                text.push_str(&String::from_utf8_lossy(&chunk[..n]));
            }
            _ => return text,
        }
    }
}

async fn id(session: &mut Session) -> String {
    ask(session, "CLIENT ID")
        .await
        .trim_matches([':', '\r', '\n'])
        .to_owned()
}

#[tokio::test]
async fn a_lock_script_runs() {
    let engine = Engine::new();
    let mut session = engine.connect();
    let script = "if redis.call('exists', KEYS[1]) == 0 then redis.call('hset', KEYS[1], ARGV[2], 1) \
                  redis.call('pexpire', KEYS[1], ARGV[1]) return nil end \
                  return redis.call('pttl', KEYS[1])";
    let loaded = ask(&mut session, &format!("SCRIPT LOAD \"{script}\"")).await;
    let digest = loaded.lines().nth(1).unwrap().to_owned();
    let call = format!("EVALSHA {digest} 1 lock 30000 owner:1");
    assert_eq!(ask(&mut session, &call).await, "$-1\r\n");
    let left = ask(&mut session, &call).await;
    let left: u64 = left.trim_matches([':', '\r', '\n']).parse().unwrap();
    assert!((29_000..=30_000).contains(&left), "{left}");
    assert_eq!(ask(&mut session, "HGET lock owner:1").await, "$1\r\n1\r\n");
}

/// Compiling runs a little Lua, whose time was counted for the last script.
#[tokio::test]
async fn a_script_was_refused_because_another_had_run_long_before() {
    let engine = Engine::new();
    let mut session = engine.connect();
    // Reads the clock.
    ask(&mut session, "EVAL \"return redis.call('KEYS', '*')\" 0").await;
    std::thread::sleep(SCRIPT_TIME + Duration::from_millis(10));
    for number in 0..500 {
        let reply = ask(&mut session, &format!("SCRIPT LOAD \"return {number}\"")).await;
        assert!(reply.starts_with('$'), "script {number}: {reply}");
    }
}

/// Numbers, texts that are not UTF-8, and lists, with and without copying item by item.
#[tokio::test]
async fn scripts_return_what_they_were_given() {
    let engine = Engine::new();
    let mut session = engine.connect();
    for (script, reply) in [
        ("return ARGV", "*2\r\n$1\r\na\r\n$1\r\n\u{fffd}\r\n"),
        ("return {ARGV[2]}", "*1\r\n$1\r\n\u{fffd}\r\n"),
        ("return {}", "*0\r\n"),
        ("return {1, true, 'x'}", "*3\r\n:1\r\n:1\r\n$1\r\nx\r\n"),
        ("return {1, nil, 3}", "*1\r\n:1\r\n"),
        ("return {false, 2}", "*2\r\n$-1\r\n:2\r\n"),
        ("return {1, 2, 3, 4}", "*4\r\n:1\r\n:2\r\n:3\r\n:4\r\n"),
        ("return {{1}, {ok = 'x'}}", "*2\r\n*1\r\n:1\r\n+x\r\n"),
        ("return {1, err = 'ERR x'}", "-ERR x\r\n"),
        ("return nil, 1, 2, 3", "$-1\r\n"),
        ("return false", "$-1\r\n"),
        (
            "return {redis.call('SET', 'k', ARGV[2]), redis.call('GET', 'k'), redis.call('GET', 'no')}",
            "*3\r\n+OK\r\n$1\r\n\u{fffd}\r\n$-1\r\n",
        ),
        (
            "redis.call('RPUSH', 'l', 1, 0.1, -0.5, 1e17, ARGV[2]) return redis.call('LRANGE', 'l', 0, -1)",
            "*5\r\n$1\r\n1\r\n$19\r\n0.10000000000000001\r\n$4\r\n-0.5\r\n$5\r\n1e+17\r\n$1\r\n\u{fffd}\r\n",
        ),
    ] {
        let call = format!("EVAL \"{script}\" 0 a \"\\xff\"");
        assert_eq!(ask(&mut session, &call).await, reply, "{script}");
    }
}

#[tokio::test]
async fn a_restart_keeps_the_keys_and_nothing_else() {
    let engine = Engine::new();
    let (mut first, mut second) = (engine.connect(), engine.connect());
    let loaded = ask(&mut first, "SCRIPT LOAD \"return 1\"").await;
    let digest = loaded.lines().nth(1).unwrap().to_owned();
    ask(&mut first, "SET key value").await;
    ask(&mut second, "SUBSCRIBE channel").await;
    let run_id = |info: String| {
        info.lines()
            .find(|line| line.starts_with("run_id:"))
            .map(str::to_owned)
    };
    let before = run_id(ask(&mut first, "INFO server").await);

    engine.restart();

    assert!(first.write_all(b"PING\r\n").await.is_err());
    assert_eq!(second.read(&mut [0; 16]).await.unwrap(), 0);
    let mut third = engine.connect();
    assert_eq!(id(&mut third).await, "1");
    assert_eq!(ask(&mut third, "GET key").await, "$5\r\nvalue\r\n");
    assert_eq!(ask(&mut third, "PUBLISH channel m").await, ":0\r\n");
    let refused = ask(&mut third, &format!("EVALSHA {digest} 0")).await;
    assert!(refused.starts_with("-NOSCRIPT"), "{refused}");
    assert_ne!(run_id(ask(&mut third, "INFO server").await), before);
}

/// The new session had the client number of the old one.
#[tokio::test]
async fn the_end_of_a_session_from_before_a_restart_ended_a_new_one() {
    let engine = Engine::new();
    let old = engine.connect();
    engine.restart();
    let mut new = engine.connect();
    drop(old);
    assert_eq!(ask(&mut new, "PING").await, "+PONG\r\n");
}

#[tokio::test]
async fn a_simulated_engine_has_the_time_and_the_choices_that_it_is_given() {
    let time = Arc::new(Mutex::new(Duration::from_secs(100)));
    let given = Arc::clone(&time);
    let of_seed = |seed| {
        let given = Arc::clone(&given);
        Engine::simulated(seed, move || *given.lock().unwrap())
    };
    let mut session = of_seed(7).connect();
    assert_eq!(
        ask(&mut session, "TIME").await,
        "*2\r\n$3\r\n100\r\n$1\r\n0\r\n"
    );
    ask(&mut session, "SET key value PX 5000").await;
    *time.lock().unwrap() += Duration::from_millis(5001);
    assert_eq!(ask(&mut session, "EXISTS key").await, ":0\r\n");

    let info = ask(&mut session, "INFO server").await;
    assert_eq!(ask(&mut of_seed(7).connect(), "INFO server").await, info);
    assert_ne!(ask(&mut of_seed(8).connect(), "INFO server").await, info);
}

#[tokio::test]
async fn script_errors_say_where() {
    let engine = Engine::new();
    let mut session = engine.connect();
    for (script, reply) in [
        (
            "return redis.call('foo')",
            "-ERR Unknown Redis command called from script (the embedded engine has no 'foo') script: ",
        ),
        ("error('x')", "-ERR user_script:1: x script: "),
        (
            "x=1",
            "-ERR user_script:1: Attempt to modify a readonly table script: ",
        ),
        (
            "return x",
            "-ERR user_script:1: Script attempted to access nonexistent global variable 'x' script: ",
        ),
        (
            "return redis.pcall('foo')",
            "-ERR Unknown Redis command called from script (the embedded engine has no 'foo')\r\n",
        ),
        (
            "local ok, e = pcall(redis.call, 'foo') return type(e)",
            "$6\r\nstring\r\n",
        ),
        (
            "return 1 +",
            "-ERR Error compiling script (new function): user_script:1: unexpected symbol near '<eof>'\r\n",
        ),
        ("error({})", "-ERR unknown error script: "),
    ] {
        let got = ask(&mut session, &format!("EVAL \"{script}\" 0")).await;
        assert!(got.starts_with(reply), "{script}: {got}");
        let located = got.ends_with(", on @user_script:1.\r\n");
        assert_eq!(located, reply.ends_with("script: "), "{script}: {got}");
    }
}

#[tokio::test]
async fn messages_reach_subscribers_and_wake_their_readers() {
    let engine = Engine::new();
    let (mut one, mut two) = (engine.connect(), engine.connect());
    let confirmed = ask(&mut one, "SUBSCRIBE news").await;
    assert_eq!(confirmed, "*3\r\n$9\r\nsubscribe\r\n$4\r\nnews\r\n:1\r\n");
    let mut chunk = [0; 64];
    let mut read = tokio_test::task::spawn(one.read(&mut chunk));
    assert!(read.poll().is_pending());
    assert_eq!(ask(&mut two, "PUBLISH news hi").await, ":1\r\n");
    assert!(read.is_woken());
    assert!(read.poll().is_ready());
    drop(read);
    drop(one);
    assert_eq!(ask(&mut two, "PUBLISH news hi").await, ":0\r\n");
    assert_eq!(ask(&mut two, "PUBSUB CHANNELS").await, "*0\r\n");
}

#[tokio::test]
async fn a_killed_session_ends() {
    let engine = Engine::new();
    let (mut victim, mut other) = (engine.connect(), engine.connect());
    let victim_id = id(&mut victim).await;
    ask(&mut victim, "SUBSCRIBE news").await;
    assert_eq!(
        ask(&mut other, &format!("CLIENT KILL ID {victim_id}")).await,
        ":1\r\n"
    );
    assert_eq!(victim.read(&mut [0; 8]).await.unwrap(), 0);
    let refused = victim.write_all(b"SET k v\r\n").await.unwrap_err();
    assert_eq!(refused.kind(), std::io::ErrorKind::BrokenPipe);
    assert_eq!(ask(&mut other, "EXISTS k").await, ":0\r\n");
    assert_eq!(ask(&mut other, "PUBLISH news hi").await, ":0\r\n");
}

#[tokio::test(start_paused = true)]
async fn keys_expire_on_a_paused_clock() {
    let engine = Engine::new();
    let mut session = engine.connect();
    ask(&mut session, "SET k v PX 1000").await;
    tokio::time::advance(Duration::from_millis(999)).await;
    assert_eq!(ask(&mut session, "PTTL k").await, ":1\r\n");
    // A key was gone a millisecond earlier than in Redis.
    tokio::time::advance(Duration::from_millis(1)).await;
    assert_eq!(ask(&mut session, "PTTL k").await, ":0\r\n");
    assert_eq!(ask(&mut session, "EXISTS k").await, ":1\r\n");
    tokio::time::advance(Duration::from_millis(1)).await;
    assert_eq!(ask(&mut session, "DBSIZE").await, ":0\r\n");
    assert_eq!(ask(&mut session, "GET k").await, "$-1\r\n");
}

#[test]
fn an_engine_outlives_a_runtime() {
    let engine = Engine::new();
    for paused in [true, false, true] {
        let mut builder = tokio::runtime::Builder::new_current_thread();
        builder
            .enable_all()
            .start_paused(paused)
            .build()
            .unwrap()
            .block_on(async {
                let mut session = engine.connect();
                ask(&mut session, "SET k v PX 50").await;
                if paused {
                    tokio::time::advance(Duration::from_secs(3600)).await;
                    assert_eq!(ask(&mut session, "EXISTS k").await, ":0\r\n");
                } else {
                    assert_eq!(ask(&mut session, "EXISTS k").await, ":1\r\n");
                }
            });
    }
}

#[tokio::test]
async fn a_password_is_asked_for() {
    let engine = Engine::with_password("secret");
    let mut session = engine.connect();
    assert_eq!(
        ask(&mut session, "GET k").await,
        "-NOAUTH Authentication required.\r\n"
    );
    assert!(
        ask(&mut session, "AUTH wrong")
            .await
            .starts_with("-WRONGPASS")
    );
    assert_eq!(ask(&mut session, "AUTH default secret").await, "+OK\r\n");
    assert_eq!(ask(&mut session, "GET k").await, "$-1\r\n");
}

#[tokio::test]
async fn tcp_clients_share_the_engine() {
    let engine = Engine::new();
    let listener = engine.listen("127.0.0.1:0").await.unwrap();
    let mut stream = tokio::net::TcpStream::connect(listener.local_addr())
        .await
        .unwrap();
    let mut session = engine.connect();
    ask(&mut session, "SET k v").await;
    stream.write_all(b"GET k\r\n").await.unwrap();
    let mut reply = [0; 7];
    stream.read_exact(&mut reply).await.unwrap();
    assert_eq!(&reply, b"$1\r\nv\r\n");
    drop(listener);
    assert_eq!(stream.read(&mut reply).await.unwrap(), 0);
}

#[tokio::test]
async fn a_script_that_never_ends_is_stopped() {
    for body in [
        "while true do end",
        "while true do pcall(function() while true do end end) end",
        "while true do xpcall(function() while true do end end, function(e) return e end) end",
        "while true do coroutine.resume(coroutine.create(function() while true do end end)) end",
        "return coroutine.wrap(function() while true do end end)()",
        // Functions that take long texts or lists.
        "local s = string.rep('x', 2 ^ 24) while true do redis.sha1hex(s) end",
        "local s = string.rep('x', 2 ^ 21) while true do string.upper(s) end",
        "local t = {} for i = 1, 100000 do t[i] = 'x' end while true do table.concat(t) end",
        "local s = string.rep('x', 2 ^ 20) while true do redis.call('HSET', 'h', 'f', s) end",
        "while true do redis.pcall('KEYS', '*') end",
        "local t = {} for i = 1, 500000 do t[i] = i end \
         while true do table.insert(t, 1, 0) table.remove(t, 1) end",
        "local f f = function() local c = coroutine.create(f) coroutine.resume(c) \
         while true do end end f()",
    ] {
        // With memory of its own.
        let mut session = Engine::new().connect();
        let began = Instant::now();
        let got = ask(&mut session, &format!("EVAL \"{body}\" 0")).await;
        assert!(
            got.starts_with("-ERR script stopped after 100 ms"),
            "{body}: {got}"
        );
        // What one slow instruction may take on a busy machine.
        let took = began.elapsed();
        assert!(took < Duration::from_secs(25), "{body} took {took:?}");
        assert_eq!(ask(&mut session, "EVAL \"return 1\" 0").await, ":1\r\n");
    }
}

#[tokio::test]
async fn scripts_share_nothing_but_keys() {
    let engine = Engine::new();
    let mut session = engine.connect();
    for body in [
        "KEYS[1] = 'x'",
        "string = nil",
        "redis.call = nil",
        "_G.x = 1",
        "rawset(_G, 'x', 1)",
    ] {
        ask(&mut session, &format!("EVAL \"{body}\" 0")).await;
        let seen = "return {#KEYS, type(string), type(redis.call), tostring(rawget(_G, 'x'))}";
        let got = ask(&mut session, &format!("EVAL \"{seen}\" 0")).await;
        assert_eq!(
            got, "*4\r\n:0\r\n$5\r\ntable\r\n$8\r\nfunction\r\n$3\r\nnil\r\n",
            "{body}"
        );
    }
    for name in [
        "os", "io", "require", "package", "debug", "dofile", "loadfile", "print",
    ] {
        let got = ask(&mut session, &format!("EVAL \"return {name}\" 0")).await;
        assert!(got.contains("nonexistent global variable"), "{name}: {got}");
    }
}

#[tokio::test]
async fn a_command_missing_in_the_engine_is_named() {
    let engine = Engine::new();
    let mut session = engine.connect();
    let unknown = "-ERR unknown command 'SINTER', with args beginning with: 'a' ";
    assert_eq!(
        ask(&mut session, "SINTER a").await,
        format!("{unknown}(the embedded engine has no 'SINTER')\r\n")
    );
    for (line, named) in [
        ("CLIENT LIST", "no 'CLIENT LIST'"),
        ("CLIENT KILL TYPE normal", "kills by ID only"),
        ("ZRANGE z - + BYLEX", "has no BYLEX"),
        ("EVAL \"#!lua\" 0", "takes no shebang"),
        ("EVAL \"return redis.call('JSON.GET')\" 0", "no 'JSON.GET'"),
        ("EVAL \"return cjson.encode({})\" 0", "no 'cjson'"),
        ("EVAL \"return {double = 1.5}\" 0", "no table with 'double'"),
    ] {
        let got = ask(&mut session, line).await;
        let said = got.split_once("the embedded engine ");
        assert!(said.is_some_and(|(_, said)| said.contains(named)), "{got}");
    }
}

/// Drops a session when it is woken, like a task whose last reference is the waker.
struct DropOnWake(Mutex<Option<Session>>);

impl Wake for DropOnWake {
    fn wake(self: Arc<Self>) {
        let session = self.0.lock().unwrap().take();
        drop(session);
    }
}

#[tokio::test]
async fn a_task_woken_by_a_message_may_use_the_engine() {
    let engine = Engine::new();
    let (mut one, mut two) = (engine.connect(), engine.connect());
    ask(&mut one, "SUBSCRIBE news").await;
    let victim = engine.connect();
    let waker = Waker::from(Arc::new(DropOnWake(Mutex::new(Some(victim)))));
    let mut chunk = [0; 8];
    let mut into = tokio::io::ReadBuf::new(&mut chunk);
    let read = tokio::io::AsyncRead::poll_read(
        std::pin::Pin::new(&mut one),
        &mut Context::from_waker(&waker),
        &mut into,
    );
    assert!(matches!(read, Poll::Pending));
    drop(waker);
    assert_eq!(ask(&mut two, "PUBLISH news hi").await, ":1\r\n");
    assert!(
        ask(&mut two, "INFO clients")
            .await
            .contains("connected_clients:2\r\n")
    );
}

#[test]
fn sessions_of_many_threads_do_not_lock_each_other_out() {
    let engine = Engine::new();
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let engine = engine.clone();
            scope.spawn(move || {
                let runtime = tokio::runtime::Builder::new_current_thread()
                    .build()
                    .unwrap();
                runtime.block_on(async {
                    for round in 0..50 {
                        let mut session = engine.connect();
                        ask(&mut session, "SUBSCRIBE news").await;
                        let mut other = engine.connect();
                        ask(&mut other, &format!("PUBLISH news {thread}-{round}")).await;
                        let script = "return redis.call('incr', KEYS[1])";
                        ask(&mut other, &format!("EVAL \"{script}\" 1 n")).await;
                    }
                });
            });
        }
    });
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap();
    runtime.block_on(async {
        let mut session = engine.connect();
        assert_eq!(ask(&mut session, "GET n").await, "$3\r\n200\r\n");
        assert!(
            ask(&mut session, "INFO clients")
                .await
                .contains("connected_clients:1\r\n")
        );
    });
}

async fn set_a_megabyte(session: &mut Session) {
    let mut set = b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$1048576\r\n".to_vec();
    set.extend(std::iter::repeat_n(b'x', 1 << 20));
    set.extend_from_slice(b"\r\n");
    session.write_all(&set).await.unwrap();
}

#[tokio::test]
async fn what_two_that_had_ended_did_not_read_cut_everybody_off() {
    let engine = Engine::new();
    let mut other = engine.connect();
    set_a_megabyte(&mut other).await;
    let mut ended = [engine.connect(), engine.connect()];
    for session in &mut ended {
        for _ in 0..63 {
            session.write_all(b"GET k\r\n").await.unwrap();
        }
        // A protocol error.
        session.write_all(b"*x\r\n").await.unwrap();
    }
    for _ in 0..3 {
        other.write_all(b"GET k\r\n").await.unwrap();
    }
    assert!(ask(&mut other, "PING").await.ends_with("+PONG\r\n"));
}

#[tokio::test]
async fn a_client_that_does_not_read_cannot_continue_to_write() {
    let engine = Engine::new();
    let mut session = engine.connect();
    set_a_megabyte(&mut session).await;
    for _ in 0..64 {
        session.write_all(b"GET k\r\n").await.unwrap();
    }
    let (mut reader, mut writer) = tokio::io::split(session);
    let mut write = tokio_test::task::spawn(writer.write_all(b"PING\r\n"));
    assert!(write.poll().is_pending());
    let mut chunk = vec![0; 2 << 20];
    reader.read_exact(&mut chunk).await.unwrap();
    assert!(write.is_woken());
    assert!(write.poll().is_ready());
}

#[tokio::test]
async fn a_subscriber_that_never_reads_is_cut_off() {
    let engine = Engine::new();
    let (mut idle, mut other) = (engine.connect(), engine.connect());
    idle.write_all(b"SUBSCRIBE news\r\n").await.unwrap();
    let mut publish = b"*3\r\n$7\r\nPUBLISH\r\n$4\r\nnews\r\n$4194304\r\n".to_vec();
    publish.extend(std::iter::repeat_n(b'x', 4 << 20));
    publish.extend_from_slice(b"\r\n");
    for _ in 0..10 {
        other.write_all(&publish).await.unwrap();
    }
    assert!(ask(&mut other, "PUBSUB CHANNELS").await.ends_with("*0\r\n"));
}
