//! The limits of the embedded engine and of its listener, each at a client that goes beyond it.

use std::time::Duration;

use futures::FutureExt;
use redlock_rt::embedded::{Engine, Session};
use tests::{DEADLINE, eventually, processor_time};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    sync::Mutex,
    time::{Instant, timeout},
};

const MIB: usize = 1024 * 1024;
const MINUTE: Duration = Duration::from_secs(60);

/// Those that look at the memory of the process take turns.
static MEMORY: Mutex<()> = Mutex::const_new(());

/// The memory of this process, in MiB.
fn memory() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages: usize = statm.split(' ').nth(1).unwrap().parse().unwrap();
    pages * 4096 / MIB
}

/// The process has taken less than so many MiB since it had `before`.
#[track_caller]
fn assert_grew_by_less(before: usize, mib: usize) {
    let after = memory();
    assert!(after < before + mib, "{before} MiB before, {after} after");
}

async fn ask(stream: &mut TcpStream, line: &str) -> String {
    stream
        .write_all(format!("{line}\r\n").as_bytes())
        .await
        .unwrap();
    let mut reply = vec![0; 4096];
    let read = timeout(DEADLINE, stream.read(&mut reply)).await;
    let len = read.unwrap().unwrap();
    String::from_utf8_lossy(&reply[..len]).into_owned()
}

fn feed(session: &mut Session, bytes: &[u8]) -> bool {
    matches!(session.write_all(bytes).now_or_never(), Some(Ok(())))
}

fn read_some(session: &mut Session) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(MIB);
    let _ = session.read_buf(&mut bytes).now_or_never();
    bytes
}

fn is_served(engine: &Engine) -> bool {
    let mut session = engine.connect();
    feed(&mut session, b"PING\r\n") && read_some(&mut session) == b"+PONG\r\n"
}

fn set_big(engine: &Engine, len: usize) {
    let mut session = engine.connect();
    let value = "x".repeat(len);
    let commands = format!("*3\r\n$3\r\nSET\r\n$3\r\nbig\r\n${len}\r\n{value}\r\n");
    assert!(feed(&mut session, commands.as_bytes()));
    assert!(feed(
        &mut session,
        format!("*4\r\n$4\r\nHSET\r\n$1\r\nh\r\n$1\r\nf\r\n${len}\r\n{value}\r\n").as_bytes()
    ));
    assert_eq!(read_some(&mut session), b"+OK\r\n:1\r\n");
}

#[tokio::test]
async fn one_client_too_many_is_told_so() {
    let engine = Engine::new();
    let listener = engine.listen("127.0.0.1:0").await.unwrap().max_clients(2);
    let connect = || TcpStream::connect(listener.local_addr());
    let mut first = connect().await.unwrap();
    let mut second = connect().await.unwrap();
    assert_eq!(ask(&mut first, "PING").await, "+PONG\r\n");
    assert_eq!(ask(&mut second, "PING").await, "+PONG\r\n");
    let mut reply = String::new();
    let mut third = connect().await.unwrap();
    let read = timeout(DEADLINE, third.read_to_string(&mut reply)).await;
    read.expect("it is closed").unwrap();
    assert_eq!(reply, "-ERR max number of clients reached\r\n");
    assert_eq!(ask(&mut first, "PING").await, "+PONG\r\n");
    drop(second);
    eventually(DEADLINE, async || {
        let mut again = connect().await.unwrap();
        // It may be refused, and closed, before it has written.
        let _ = again.write_all(b"PING\r\n").await;
        let mut reply = [0; 5];
        again.read_exact(&mut reply).await.is_ok() && &reply == b"+PONG"
    })
    .await;
}

#[tokio::test]
async fn a_subscriber_that_never_reads_is_cut_off_and_its_socket_closed() {
    let _turn = MEMORY.lock().await;
    let engine = Engine::new();
    let listener = engine.listen("127.0.0.1:0").await.unwrap().max_clients(2);
    let mut slow = TcpStream::connect(listener.local_addr()).await.unwrap();
    assert!(ask(&mut slow, "SUBSCRIBE c").await.contains("subscribe"));
    let mut publisher = TcpStream::connect(listener.local_addr()).await.unwrap();
    let before = memory();
    let message = format!(
        "*3\r\n$7\r\nPUBLISH\r\n$1\r\nc\r\n${MIB}\r\n{}\r\n",
        "m".repeat(MIB)
    );
    let mut sent = 0;
    loop {
        publisher.write_all(message.as_bytes()).await.unwrap();
        sent += 1;
        let mut reply = [0; 4];
        publisher.read_exact(&mut reply).await.unwrap();
        if &reply == b":0\r\n" {
            break;
        }
        // What the kernel takes is some MiB.
        assert!(sent < 100, "{sent} MiB are unread");
    }
    assert_grew_by_less(before, 100);
    // The task that writes to it does not wait for it to read.
    eventually(DEADLINE, async || {
        let mut third = TcpStream::connect(listener.local_addr()).await.unwrap();
        let _ = third.write_all(b"PING\r\n").await;
        let mut reply = [0; 5];
        third.read_exact(&mut reply).await.is_ok() && &reply == b"+PONG"
    })
    .await;
    assert_eq!(
        ask(&mut publisher, "PUBSUB NUMSUB c").await,
        "*2\r\n$1\r\nc\r\n:0\r\n"
    );
}

/// The clock goes on when the process has nothing else to do.
#[tokio::test(start_paused = true)]
async fn a_connection_that_accepts_no_byte_for_a_minute_is_closed() {
    let engine = Engine::new();
    set_big(&engine, MIB);
    let clients = || {
        let mut session = engine.connect();
        feed(&mut session, b"INFO clients\r\n");
        let info = String::from_utf8(read_some(&mut session)).unwrap();
        // This session is one.
        info.contains("connected_clients:2\r\n")
    };
    let listener = engine.listen("127.0.0.1:0").await.unwrap();
    let mut slow = TcpStream::connect(listener.local_addr()).await.unwrap();
    // What the kernel takes is some MiB.
    slow.write_all("GET big\r\n".repeat(60).as_bytes())
        .await
        .unwrap();
    let began = Instant::now();
    eventually(DEADLINE, async || clients()).await;
    eventually(4 * MINUTE, async || !clients()).await;
    assert!(began.elapsed() >= MINUTE, "after {:?}", began.elapsed());
}

#[tokio::test]
async fn commands_wait_while_their_client_does_not_read() {
    const COMMANDS: usize = 400;
    let _turn = MEMORY.lock().await;
    let engine = Engine::new();
    set_big(&engine, MIB);
    let before = memory();
    let mut session = engine.connect();
    assert!(feed(
        &mut session,
        "GET big\r\n".repeat(COMMANDS).as_bytes()
    ));
    assert_grew_by_less(before, 150);
    assert!(
        session.write(b"PING\r\n").now_or_never().is_none(),
        "a further one is not taken"
    );
    assert!(is_served(&engine));
    let mut read = 0;
    loop {
        match read_some(&mut session).len() {
            0 => break,
            len => read += len,
        }
    }
    let reply = "$1048576\r\n".len() + MIB + 2;
    assert_eq!(read, COMMANDS * reply, "all of them have their replies");
    assert!(feed(&mut session, b"PING\r\n"));
    assert_eq!(read_some(&mut session), b"+PONG\r\n");
}

#[tokio::test]
async fn a_reply_that_is_too_long_ends_its_client() {
    let _turn = MEMORY.lock().await;
    let engine = Engine::new();
    set_big(&engine, MIB);
    let before = memory();
    let mut session = engine.connect();
    let command = format!("HMGET h{}\r\n", " f".repeat(1000));
    feed(&mut session, command.as_bytes());
    assert!(!feed(&mut session, b"PING\r\n"), "it was closed");
    assert!(read_some(&mut session).is_empty());
    assert_grew_by_less(before, 100);
    assert!(is_served(&engine));
}

#[tokio::test]
async fn requests_that_never_end_are_refused() {
    for (begin, again, refusal) in [
        ("", "x", "too big inline request"),
        ("*", "1", "too big mbulk count string"),
        ("*2\r\n$", "0", "too big bulk count string"),
        ("*1048577\r\n", "", "invalid multibulk length"),
        ("*1\r\n$67108865\r\n", "", "no request of more than 64 MiB"),
        (
            "*1048576\r\n",
            "$64\r\n0123456789012345678901234567890123456789012345678901234567890123\r\n",
            "no request of more than 64 MiB",
        ),
    ] {
        let _turn = MEMORY.lock().await;
        let engine = Engine::new();
        let mut session = engine.connect();
        let before = memory();
        feed(&mut session, begin.as_bytes());
        let piece = again.repeat(64 * 1024 / again.len().max(1));
        for _ in 0..3000 {
            if piece.is_empty() || !feed(&mut session, piece.as_bytes()) {
                break;
            }
        }
        let reply = String::from_utf8_lossy(&read_some(&mut session)).into_owned();
        assert!(
            reply.starts_with("-ERR Protocol error") && reply.contains(refusal),
            "{reply}"
        );
        assert!(!feed(&mut session, b"PING\r\n"), "it is closed");
        assert_grew_by_less(before, 300);
        assert!(is_served(&engine));
    }
}

#[tokio::test]
async fn a_client_without_the_password_sends_little() {
    let engine = Engine::with_password("secret");
    for (request, refusal) in [
        (
            "*11\r\n",
            "-ERR Protocol error: unauthenticated multibulk length\r\n",
        ),
        (
            "*2\r\n$4\r\nAUTH\r\n$16385\r\n",
            "-ERR Protocol error: unauthenticated bulk length\r\n",
        ),
    ] {
        let mut session = engine.connect();
        feed(&mut session, request.as_bytes());
        assert_eq!(read_some(&mut session), refusal.as_bytes());
    }
    let mut known = engine.connect();
    let words = "$1\r\na\r\n".repeat(20);
    feed(
        &mut known,
        format!("AUTH secret\r\n*21\r\n$3\r\nDEL\r\n{words}").as_bytes(),
    );
    assert_eq!(read_some(&mut known), b"+OK\r\n:0\r\n");
}

#[tokio::test]
async fn half_requests_of_many_clients_end_the_largest() {
    let _turn = MEMORY.lock().await;
    let engine = Engine::new();
    let before = memory();
    let piece = vec![b'x'; 64 * 1024];
    let mut small = engine.connect();
    assert!(feed(&mut small, b"*2\r\n$4\r\nPING\r\n$2\r\n"));
    let mut cut = 0;
    let mut sessions = Vec::new();
    for number in 0..12 {
        let mut session = engine.connect();
        assert!(feed(&mut session, b"*1\r\n$62914560\r\n"));
        // Each larger than those before.
        for _ in 0..(800 + number) {
            if !feed(&mut session, &piece) {
                cut += 1;
                break;
            }
        }
        sessions.push(session);
    }
    let gone = sessions
        .iter_mut()
        .filter_map(|session| session.write(b"x").now_or_never());
    let gone = gone.filter(Result::is_err).count();
    assert!(gone >= 6, "{gone} of 12 are gone, {cut} while they wrote");
    assert_grew_by_less(before, 400);
    assert!(feed(&mut small, b"ok\r\n"));
    assert_eq!(read_some(&mut small), b"$2\r\nok\r\n");
    assert!(is_served(&engine));
}

#[tokio::test]
async fn a_random_choice_of_more_than_there_is_memory_stopped_the_process() {
    let engine = Engine::new();
    let mut session = engine.connect();
    feed(&mut session, b"HSET h a 1 b 2\r\n");
    read_some(&mut session);
    for count in [
        "-9223372036854775808",
        "-9223372036854775807",
        "-10000000000",
        "-131073",
    ] {
        feed(&mut session, format!("HRANDFIELD h {count}\r\n").as_bytes());
        let reply = String::from_utf8_lossy(&read_some(&mut session)).into_owned();
        assert!(reply.starts_with("-ERR value is out of range"), "{reply}");
    }
    feed(&mut session, b"HRANDFIELD h -131072\r\n");
    assert!(read_some(&mut session).starts_with(b"*131072\r\n"));
    let mut session = engine.connect();
    feed(&mut session, b"HRANDFIELD h -3\r\n");
    assert!(read_some(&mut session).starts_with(b"*3\r\n"));
}

#[tokio::test]
async fn patterns_are_short() {
    let engine = Engine::new();
    let mut session = engine.connect();
    let long = "*a".repeat(513);
    for command in ["KEYS", "PSUBSCRIBE", "PUBSUB CHANNELS", "SCAN 0 MATCH"] {
        feed(&mut session, format!("{command} {long}\r\n").as_bytes());
        let reply = String::from_utf8_lossy(&read_some(&mut session)).into_owned();
        assert!(
            reply.contains("no pattern of more than 1024 bytes"),
            "{command}: {reply}"
        );
    }
}

/// The replies to each of these came after up to a minute, and other clients waited meanwhile.
#[tokio::test]
async fn commands_that_took_a_minute_are_quick_or_refused() {
    const AT_MOST: Duration = Duration::from_secs(15);
    let engine = Engine::new();
    let mut session = engine.connect();
    let mut quick = |command: &str, expected: &str| {
        // Other processes do not count.
        let began = processor_time();
        feed(&mut session, command.as_bytes());
        let reply = String::from_utf8_lossy(&read_some(&mut session)).into_owned();
        let shown = &command[..command.len().min(40)];
        assert!(reply.contains(expected), "{shown}: {reply:.200}");
        let took = processor_time() - began;
        assert!(took < AT_MOST, "{shown}: {took:?}");
    };
    let request = |words: &[String]| {
        let words = words
            .iter()
            .map(|word| format!("${}\r\n{word}\r\n", word.len()));
        let words: Vec<String> = words.collect();
        format!("*{}\r\n{}", words.len(), words.concat())
    };
    let key = "a".repeat(MIB);
    let pattern = format!("*{}b", "a".repeat(1000));
    quick(&request(&["SET".into(), key.clone(), "v".into()]), "+OK");
    for command in [
        vec!["KEYS".into(), pattern.clone()],
        vec!["SCAN".into(), "0".into(), "MATCH".into(), pattern.clone()],
    ] {
        quick(&request(&command), "-ERR matching takes too long");
    }
    let members =
        (0..200_000_u32).map(|at| [(at.wrapping_mul(2_654_435_761)).to_string(), at.to_string()]);
    let members: Vec<String> = members.flatten().collect();
    let of =
        |name: &str, words: Vec<String>| request(&[vec![name.into(), "z".into()], words].concat());
    quick(&of("ZADD", members.clone()), ":200000");
    let names = members.into_iter().skip(1).step_by(2).rev();
    quick(&of("ZREM", names.collect()), ":200000");
    let mut other = engine.connect();
    let patterns: Vec<String> = (0..1000).map(|at| format!("{pattern}{at}")).collect();
    feed(
        &mut other,
        request(&[vec!["PSUBSCRIBE".into()], patterns].concat()).as_bytes(),
    );
    let publish = request(&["PUBLISH".into(), key, "m".into()]);
    quick(&publish, "-ERR matching takes too long");
}

#[tokio::test]
async fn a_long_message_to_many_subscribers_took_all_memory() {
    let _turn = MEMORY.lock().await;
    let engine = Engine::new();
    let mut subscribers = Vec::new();
    for _ in 0..60 {
        let mut subscriber = engine.connect();
        feed(&mut subscriber, b"SUBSCRIBE c\r\n");
        subscribers.push(subscriber);
    }
    let before = memory();
    let mut publisher = engine.connect();
    let message = format!("*3\r\n$7\r\nPUBLISH\r\n$1\r\nc\r\n${}\r\n", 8 * MIB);
    let message = [message.as_bytes(), &vec![b'x'; 8 * MIB], b"\r\n"].concat();
    feed(&mut publisher, &message);
    assert_eq!(read_some(&mut publisher), b":60\r\n");
    assert_grew_by_less(before, 250);
    assert!(is_served(&engine));
}

/// A page in a browser may send this to any port. Its body ran as commands.
#[tokio::test]
async fn the_body_of_an_http_request_ran_as_commands() {
    let engine = Engine::new();
    for head in ["POST / HTTP/1.1", "GET / HTTP/1.1\r\nhost: a"] {
        let mut session = engine.connect();
        feed(
            &mut session,
            format!("{head}\r\n\r\nSET k v\r\n").as_bytes(),
        );
        assert!(!feed(&mut session, b"PING\r\n"), "{head}: it is closed");
        assert!(read_some(&mut session).is_empty());
    }
    let mut session = engine.connect();
    feed(&mut session, b"EXISTS k\r\n");
    assert_eq!(read_some(&mut session), b":0\r\n");
}

#[tokio::test]
async fn an_engine_without_a_password_is_for_this_machine() {
    let refused = Engine::new().listen("0.0.0.0:0").await.unwrap_err();
    assert!(
        refused.to_string().contains("without a password"),
        "{refused}"
    );
    let engine = Engine::with_password("secret");
    assert!(engine.listen("0.0.0.0:0").await.is_ok());
    assert!(Engine::new().listen("[::1]:0").await.is_ok());
}

#[tokio::test]
async fn passwords_could_be_guessed_as_fast_as_they_were_sent() {
    let engine = Engine::with_password("secret");
    let listener = engine.listen("127.0.0.1:0").await.unwrap();
    let guess = async || {
        let mut stream = TcpStream::connect(listener.local_addr()).await.unwrap();
        // At once: the second waits behind the first.
        stream
            .write_all(b"AUTH a\r\nAUTH b\r\nAUTH secret\r\n")
            .await
            .unwrap();
        let mut replies = Vec::new();
        while !replies.ends_with(b"+OK\r\n") {
            assert!(stream.read_buf(&mut replies).await.unwrap() > 0);
        }
    };
    let began = Instant::now();
    tokio::join!(guess(), guess(), guess());
    assert!(
        began.elapsed() >= Duration::from_millis(600),
        "{:?}",
        began.elapsed()
    );
}

#[tokio::test]
async fn subscriptions_took_memory_without_bound() {
    let engine = Engine::new();
    let mut refused = None;
    for client in 0..4 {
        let mut session = engine.connect();
        for at in 0..20 {
            let name = format!("{client}:{at}:{}", "x".repeat(MIB));
            let words = format!("*2\r\n$9\r\nSUBSCRIBE\r\n${}\r\n{name}\r\n", name.len());
            feed(&mut session, words.as_bytes());
            let reply = read_some(&mut session);
            if reply.starts_with(b"-ERR too many subscriptions") {
                refused.get_or_insert((client, at));
            }
        }
        if client == 3 {
            assert!(matches!(refused, Some((3, _))), "{refused:?}: 64 MiB");
            // What a client had is free when it has left.
            drop(session);
        } else {
            std::mem::forget(session);
        }
    }
    let mut session = engine.connect();
    feed(&mut session, b"SUBSCRIBE a\r\n");
    assert!(read_some(&mut session).starts_with(b"*3"));
}
