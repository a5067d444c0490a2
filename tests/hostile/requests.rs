//! Generated input for the embedded engine.

use std::cell::RefCell;

use futures::FutureExt;
use redlock_rt::embedded::{Engine, Session};
use tests::Random;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::seeds::{INPUT, each};

thread_local! {
    static ENGINE: RefCell<Option<Engine>> = const { RefCell::new(None) };
}

const NAMES: [&str; 76] = [
    "AUTH",
    "CLIENT",
    "PING",
    "SELECT",
    "DBSIZE",
    "FLUSHALL",
    "INFO",
    "TIME",
    "EVAL",
    "EVALSHA",
    "SCRIPT",
    "PSUBSCRIBE",
    "PUBLISH",
    "PUBSUB",
    "PUNSUBSCRIBE",
    "SUBSCRIBE",
    "UNSUBSCRIBE",
    "DEL",
    "EXISTS",
    "EXPIRE",
    "KEYS",
    "PERSIST",
    "PEXPIRE",
    "PEXPIREAT",
    "PTTL",
    "SCAN",
    "TTL",
    "TYPE",
    "APPEND",
    "DECR",
    "DECRBY",
    "GET",
    "INCR",
    "INCRBY",
    "SET",
    "HDEL",
    "HEXISTS",
    "HGET",
    "HGETALL",
    "HINCRBY",
    "HKEYS",
    "HLEN",
    "HMGET",
    "HRANDFIELD",
    "HSET",
    "HVALS",
    "LINDEX",
    "LLEN",
    "LPOP",
    "LPOS",
    "LPUSH",
    "LRANGE",
    "LREM",
    "RPOP",
    "RPUSH",
    "SADD",
    "SCARD",
    "SISMEMBER",
    "SMEMBERS",
    "SREM",
    "ZADD",
    "ZCARD",
    "ZCOUNT",
    "ZRANGE",
    "ZRANGEBYSCORE",
    "ZREM",
    "ZREMRANGEBYSCORE",
    "ZSCORE",
    "SHUTDOWN",
    "DEBUG",
    "CONFIG",
    "MULTI",
    "MONITOR",
    "RESTORE",
    "HELLO",
    "QUIT",
];

const WORDS: [&str; 62] = [
    "",
    "a",
    "b",
    "hash",
    "list",
    "zset",
    "set",
    "0",
    "1",
    "-1",
    "2",
    "100",
    "-100",
    "1000000000",
    "-1000000000",
    "9223372036854775807",
    "-9223372036854775808",
    "9223372036854775808",
    "18446744073709551616",
    "1.5",
    "-0",
    "nan",
    "inf",
    "-inf",
    "1e400",
    "(1",
    "(-inf",
    "[a",
    "*",
    "a*?[^",
    "[",
    "\\",
    "**********b",
    "COUNT",
    "MATCH",
    "TYPE",
    "NX",
    "XX",
    "GT",
    "LT",
    "CH",
    "INCR",
    "PX",
    "EX",
    "KEEPTTL",
    "GET",
    "WITHVALUES",
    "WITHSCORES",
    "REV",
    "BYSCORE",
    "LIMIT",
    "RANK",
    "MAXLEN",
    "ID",
    "KILL",
    "SETINFO",
    "LOAD",
    "FLUSH",
    "EXISTS",
    "CHANNELS",
    "NUMSUB",
    "SEGFAULT",
];

const SCRIPTS: [&str; 14] = [
    "return 1",
    "return {1, {2, {}}, 'x', false, nil, 3}",
    "return redis.call(unpack(ARGV))",
    "return redis.pcall(unpack(ARGV))",
    "local t = {} t[1] = t return t",
    "local t = {} for _ = 1, 60 do t = {t, t} end return t",
    "return {err = 'X\\r\\n+OK'}",
    "return {ok = '\\r\\n\\r\\n:1'}",
    "error({err = KEYS})",
    "return string.rep('x', ARGV[1])",
    "return redis.sha1hex(ARGV[1]) .. tostring(redis.call)",
    "return loadstring('\\27Lua')",
    "return #!",
    "return cjson.encode({})",
];

/// The words of a command that may be one.
fn command(random: &mut Random) -> Vec<Vec<u8>> {
    let name = random.pick(&NAMES);
    let mut words = vec![name.as_bytes().to_vec()];
    if name == "EVAL" {
        words.push(random.pick(&SCRIPTS).into());
    }
    for _ in 0..random.below(7) {
        words.push(match random.below(20) {
            0 => vec![b'x'; random.below(3000)],
            1 => (0..random.below(20))
                .map(|_| u8::try_from(random.below(256)).unwrap())
                .collect(),
            2 => random.pick(&NAMES).into(),
            _ => random.pick(&WORDS).into(),
        });
    }
    words
}

fn encoded(words: &[Vec<u8>]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", words.len()).into_bytes();
    for word in words {
        bytes.extend(format!("${}\r\n", word.len()).into_bytes());
        bytes.extend(word);
        bytes.extend(b"\r\n");
    }
    bytes
}

fn input(random: &mut Random) -> Vec<u8> {
    let mut bytes = Vec::new();
    for _ in 0..1 + random.below(4) {
        bytes.extend(match random.below(16) {
            0..9 => encoded(&command(random)),
            9 | 10 => [command(random).join(&b' '), b"\r\n".to_vec()].concat(),
            11 => {
                let mut bytes = encoded(&command(random));
                let at = random.below(bytes.len());
                bytes[at] = u8::try_from(random.below(256)).unwrap();
                bytes
            }
            12 => {
                let mut bytes = encoded(&command(random));
                bytes.truncate(random.below(bytes.len()));
                bytes
            }
            13 => format!("*{}\r\n", random.pick(&WORDS)).into_bytes(),
            14 => format!("*2\r\n$3\r\nGET\r\n${}\r\n", random.pick(&WORDS)).into_bytes(),
            _ => (0..random.below(60))
                .map(|_| u8::try_from(random.below(256)).unwrap())
                .collect(),
        });
    }
    bytes
}

/// All that can be read now, and whether the stream has ended.
fn read(session: &mut Session) -> (Vec<u8>, bool) {
    let mut bytes = Vec::new();
    loop {
        match session.read_buf(&mut bytes).now_or_never() {
            Some(Ok(0)) => return (bytes, true),
            Some(Ok(_)) => {}
            _ => return (bytes, false),
        }
    }
}

/// The length of the reply at the front; `None`: it is not complete.
fn reply_len(bytes: &[u8]) -> Option<usize> {
    let end = bytes.windows(2).position(|two| two == b"\r\n")? + 2;
    let line = std::str::from_utf8(&bytes[1..end - 2]);
    let number = || line.unwrap().parse::<i64>().unwrap();
    match bytes[0] {
        b'+' | b'-' => Some(end),
        b':' => {
            number();
            Some(end)
        }
        b'$' => match usize::try_from(number()) {
            Err(_) => Some(end),
            Ok(len) => {
                let whole = bytes.get(end..end + len + 2)?;
                assert!(whole.ends_with(b"\r\n"));
                Some(end + len + 2)
            }
        },
        b'*' => {
            let mut at = end;
            for _ in 0..number().max(0) {
                at += reply_len(bytes.get(at..)?)?;
            }
            Some(at)
        }
        other => panic!("a reply begins with {other}"),
    }
}

fn case(seed: u64) {
    let mut random = Random::new(seed);
    let engine = ENGINE.with_borrow_mut(|engine| engine.get_or_insert_with(Engine::new).clone());
    let mut witness = engine.connect();
    let mut session = engine.connect();
    for prepared in [
        "HSET hash a 1 b 2\r\nRPUSH list a b a\r\n",
        "ZADD zset 1 a 2 b\r\nSADD set a\r\n",
    ] {
        session.write_all(prepared.as_bytes()).now_or_never();
    }
    read(&mut session);
    let bytes = input(&mut random);
    let context = || String::from_utf8_lossy(&bytes).into_owned();
    let mut rest = &bytes[..];
    while !rest.is_empty() {
        let (piece, left) = rest.split_at(1 + random.below(rest.len()));
        // It may have been closed by then.
        let written = session.write_all(piece).now_or_never();
        assert!(written.is_some(), "it does not wait: {}", context());
        rest = left;
    }
    let (replies, ended) = read(&mut session);
    let mut at = 0;
    while at < replies.len() {
        let len = reply_len(&replies[at..]);
        at += len.unwrap_or_else(|| panic!("half a reply to {}", context()));
    }
    if ended {
        let last = String::from_utf8_lossy(&replies);
        let killed = bytes
            .windows(4)
            .any(|four| four.eq_ignore_ascii_case(b"KILL"));
        assert!(
            killed || last.contains("Protocol error"),
            "{last} to {}",
            context()
        );
    }
    drop(session);
    witness.write_all(b"PING\r\n").now_or_never();
    assert_eq!(read(&mut witness).0, b"+PONG\r\n", "{}", context());
}

#[test]
fn nothing_that_a_client_sends_breaks_the_engine() {
    each(&INPUT, case);
}
