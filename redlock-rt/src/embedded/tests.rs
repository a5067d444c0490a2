//! The engine through its sessions, as a client sees it.

use super::{Engine, Session};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// Sends a line and gives all that can be read without waiting.
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
            std::task::Poll::Ready(Ok(n)) if n > 0 => {
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

#[tokio::test]
async fn script_errors_say_where() {
    let engine = Engine::new();
    let mut session = engine.connect();
    for (script, reply) in [
        (
            "return redis.call('foo')",
            "-ERR Unknown Redis command called from script script: ",
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
            "-ERR Unknown Redis command called from script\r\n",
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
    ask(&mut one, "HELLO 3").await;
    let confirmed = ask(&mut one, "SUBSCRIBE news").await;
    assert_eq!(confirmed, ">3\r\n$9\r\nsubscribe\r\n$4\r\nnews\r\n:1\r\n");
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

#[tokio::test]
async fn quit_answers_first_and_runs_nothing_after() {
    let engine = Engine::new();
    let (mut one, mut two) = (engine.connect(), engine.connect());
    assert_eq!(ask(&mut one, "QUIT\r\nSET k v").await, "+OK\r\n");
    assert_eq!(one.read(&mut [0; 8]).await.unwrap(), 0);
    assert_eq!(ask(&mut two, "EXISTS k").await, ":0\r\n");
}

#[tokio::test(start_paused = true)]
async fn keys_expire_on_a_paused_clock() {
    let engine = Engine::new();
    let mut session = engine.connect();
    ask(&mut session, "SET k v PX 1000").await;
    tokio::time::advance(Duration::from_millis(999)).await;
    assert_eq!(ask(&mut session, "PTTL k").await, ":1\r\n");
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
async fn transactions_are_all_or_nothing() {
    let engine = Engine::new();
    let (mut one, mut two) = (engine.connect(), engine.connect());
    ask(&mut one, "WATCH k").await;
    ask(&mut one, "MULTI").await;
    assert_eq!(ask(&mut one, "INCR n").await, "+QUEUED\r\n");
    ask(&mut two, "SET k v").await;
    assert_eq!(ask(&mut one, "EXEC").await, "*-1\r\n");
    ask(&mut one, "MULTI").await;
    ask(&mut one, "INCR n").await;
    ask(&mut one, "EVAL \"return redis.call('incr', KEYS[1])\" 1 n").await;
    assert_eq!(ask(&mut one, "EXEC").await, "*2\r\n:1\r\n:2\r\n");
    ask(&mut one, "MULTI").await;
    ask(&mut one, "NOSUCH").await;
    assert!(ask(&mut one, "EXEC").await.starts_with("-EXECABORT"));
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
async fn fragments_make_requests() {
    let engine = Engine::new();
    let mut session = engine.connect();
    for byte in b"*1\r\n$4\r\nPING\r\n" {
        assert_eq!(read_now(&mut session), "");
        session.write_all(&[*byte]).await.unwrap();
    }
    assert_eq!(read_now(&mut session), "+PONG\r\n");
    session.write_all(b"*1\r\n!").await.unwrap();
    assert_eq!(
        read_now(&mut session),
        "-ERR Protocol error: expected '$', got '!'\r\n"
    );
    assert_eq!(session.read(&mut [0; 8]).await.unwrap(), 0);
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
async fn monitors_see_every_command() {
    let engine = Engine::new();
    let (mut watcher, mut session) = (engine.connect(), engine.connect());
    assert_eq!(ask(&mut watcher, "MONITOR").await, "+OK\r\n");
    ask(&mut session, "EVAL \"return redis.call('get', 'k')\" 0").await;
    let seen = read_now(&mut watcher);
    let lines: Vec<&str> = seen.lines().collect();
    assert!(lines[0].contains("[0 127.0.0.1:0] \"EVAL\""), "{seen}");
    assert!(lines[1].ends_with("[0 lua] \"get\" \"k\""), "{seen}");
}
