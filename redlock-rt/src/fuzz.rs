//! The fuzz targets of `tests/fuzz`, and a test that runs them with their corpora.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures::FutureExt as _;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::connection::{of_script, replies};
use crate::name::LockName;
use crate::wire::*;
use crate::{Client, Error, embedded};

/// A name, and a function that panics if something is wrong.
pub type Target = (&'static str, fn(&[u8]));

pub const TARGETS: [Target; 5] = [
    ("replies", any_split_gives_the_same_replies),
    ("scripts", a_reply_of_a_script_is_read_or_malformed),
    ("restore", a_dump_is_read_or_refused),
    ("commands", the_engine_answers_each_command),
    ("urls", a_url_makes_a_client_or_an_error),
];

/// The first byte tells how the others are split.
fn any_split_gives_the_same_replies(data: &[u8]) {
    let Some((first, bytes)) = data.split_first() else {
        return;
    };
    let whole = replies(bytes, &[usize::MAX]);
    let parts = [first & 7, first >> 3 & 7, first >> 6].map(|part| usize::from(part) + 1);
    for parts in [&parts[..], &[1]] {
        let (read, end) = replies(bytes, parts);
        assert_eq!(read, whole.0);
        // A string that is too long may be refused at its header, or when more of it comes.
        let is_refused = whole.1 == Ok(false) && matches!(&end, Err(why) if why.contains("bytes"));
        assert!(is_refused || end == whole.1, "{end:?}, not {:?}", whole.1);
    }
}

fn a_reply_of_a_script_is_read_or_malformed(data: &[u8]) {
    let name = || LockName::new(None, "name").expect("a name");
    let terms = OnceTerms {
        keep: Duration::ZERO,
        attempts: None,
        request: String::new(),
    };
    let recipes: [&dyn Recipe; 9] = [
        &RLockWire::new(name()),
        &FairQueue::new(name(), Duration::ZERO),
        &FencedWire::new(name(), None),
        &OnceWire::new(name(), terms),
        &PermitsWire::new(name(), 2, 3),
        &SemaphoreWire::new(name(), 2, 3),
        &ReadWire::new(name()),
        &WriteWire::new(name(), Duration::ZERO),
        &BarrierWire::new(name(), true, 2),
    ];
    for value in replies(data, &[usize::MAX]).0 {
        let shown = format!("{value:?} {:?}", value.text());
        let Some(reply) = of_script(value) else {
            continue;
        };
        let (answer, announcement) = reply.clone().split();
        for reply in [reply, answer] {
            for recipe in recipes {
                if let Err(malformed) = recipe.acquired(reply.clone()) {
                    assert!(
                        malformed.to_string().len() < 1000,
                        "{shown} {announcement:?}"
                    );
                }
            }
            let of = |read: &mut dyn FnMut(Reply)| read(reply.clone());
            of(&mut |reply| drop(HoldReply::try_from(reply)));
            of(&mut |reply| drop(first_held(reply, 2)));
            of(&mut |reply| drop(Holder::decode(reply)));
            of(&mut |reply| drop(Beat::decode_all(reply, 2)));
            of(&mut |reply| drop(present_token(reply)));
            of(&mut |reply| drop(present_leader(reply)));
            of(&mut |reply| drop(was_run(reply)));
            of(&mut |reply| drop(was_done(reply)));
            of(&mut |reply| drop(count_left(reply)));
            of(&mut |reply| drop(ClientIdentity::decode(reply)));
            of(&mut |reply| drop(name_page(reply)));
            of(&mut |reply| drop(Inspection::decode("name", reply)));
            of(&mut |reply| drop(LatchWire::new(name()).read(reply)));
            of(&mut |reply| drop(touched(&reply)));
        }
    }
}

/// An engine for all inputs of a thread, since starting Lua for each would take most of the time. With its own
/// clock it is repeatable.
fn session() -> embedded::Session {
    thread_local! {
        static ENGINE: embedded::Engine = embedded::Engine::simulated(7, || {
            static NOW: AtomicU64 = AtomicU64::new(1_700_000_000_000);
            Duration::from_millis(NOW.fetch_add(1, Ordering::Relaxed))
        });
    }
    let mut session = ENGINE.with(embedded::Engine::connect);
    assert_eq!(asked(&mut session, &[b"FLUSHALL"]), b"+OK\r\n");
    session
}

/// The whole answer of the engine to this command.
fn asked(session: &mut embedded::Session, words: &[&[u8]]) -> Vec<u8> {
    let mut request = format!("*{}\r\n", words.len()).into_bytes();
    for word in words {
        request.extend(format!("${}\r\n", word.len()).into_bytes());
        request.extend([word, &b"\r\n"[..]].concat());
    }
    let written = session.write_all(&request).now_or_never();
    assert!(written.is_some(), "it waits");
    let mut said = Vec::new();
    while let Some(Ok(1..)) = session.read_buf(&mut said).now_or_never() {}
    said
}

/// The input is the start of a dump, before its version and checksum; also a whole dump; also an owner.
fn a_dump_is_read_or_refused(data: &[u8]) {
    let mut session = session();
    let mut ask = |words: &[&[u8]]| asked(&mut session, words);
    assert!(ask(&[b"RESTORE", b"raw", b"0", data]).starts_with(b"-") || data.len() > 10);
    let mut dump = [data, &[6, 0]].concat();
    dump.extend(
        crc::Crc::<u64>::new(&crc::CRC_64_REDIS)
            .checksum(&dump)
            .to_le_bytes(),
    );
    if ask(&[b"RESTORE", b"made", b"0", &dump]) == b"+OK\r\n" {
        assert_eq!(ask(&[b"TYPE", b"made"]), b"+hash\r\n");
        assert_ne!(ask(&[b"HLEN", b"made"]), b":0\r\n");
    }
    let owner = String::from_utf8_lossy(data).repeat(data.first().copied().unwrap_or(1).into());
    let call = RLockWire::new(LockName::new(None, "name").expect("a name")).acquire(&Ask {
        owner: &owner,
        lease: Duration::from_secs(30),
        waits: false,
        rest: None,
        tokens: 1,
        under: None,
        steal: None,
    });
    let said = FastPath::Create.first(&call, |words| ask(words));
    assert_eq!(said, b"+OK\r\n");
    let read = replies(&ask(&[b"HGETALL", b"name"]), &[usize::MAX]).0;
    let owned = [owner.into_bytes(), b"1".to_vec()].map(Value::Text);
    assert_eq!(read, [Value::List(owned.into())]);
}

/// A line is a command, with words separated by tabs. After a first zero byte all is sent as it is.
fn the_engine_answers_each_command(data: &[u8]) {
    let mut session = session();
    let (lines, raw) = data.split_at(
        data.iter()
            .position(|byte| *byte == 0)
            .unwrap_or(data.len()),
    );
    let mut said = Vec::new();
    for line in lines
        .split(|byte| *byte == b'\n')
        .filter(|line| !line.is_empty())
    {
        let words: Vec<&[u8]> = line.split(|byte| *byte == b'\t').collect();
        let more = asked(&mut session, &words);
        let read = session.read_u8().now_or_never();
        let ended = read.is_some_and(|read| read.is_err());
        assert!(
            !more.is_empty() || ended,
            "no answer to {}",
            line.escape_ascii()
        );
        said.extend(more);
    }
    for part in raw.chunks(7) {
        let _ = session.write_all(part).now_or_never();
    }
    while let Some(Ok(1..)) = session.read_buf(&mut said).now_or_never() {}
    // A script may return more than our clients accept, or bytes that are not text.
    let mistake = match replies(&said, &[usize::MAX]).1 {
        Ok(whole) => !whole,
        Err(why) => ["a reply that begins", "a number", "a line or a string"]
            .iter()
            .any(|kind| why.starts_with(kind)),
    };
    assert!(!mistake, "{}", said.escape_ascii());
    drop(session);
    assert_eq!(asked(&mut self::session(), &[b"PING"]), b"+PONG\r\n");
}

/// The first line selects the method for the others. `~` ends a password.
fn a_url_makes_a_client_or_an_error(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let Some((method, list)) = text.split_once('\n') else {
        return;
    };
    let shown = |secret| {
        let list = list.replace('~', &format!(":{secret}@"));
        let (urls, builder) = (list.lines(), Client::builder());
        let builder = match method {
            "urls" => builder.urls(urls),
            "cluster" => builder.cluster(urls),
            "" => builder.url(&list),
            service => builder.sentinels(urls, service),
        };
        let debug = format!("{builder:?}");
        let error = builder.build().err();
        assert!(error.as_ref().is_none_or(Error::is_bad_input), "{error:?}");
        (debug, error.map(|error| format!("{error} {error:?}")))
    };
    // The shown text does not depend on the password. A path is shown, and a part of a socket's URL may be one.
    let (one, other) = (shown("hunter2"), shown("correct"));
    assert!(
        list.to_ascii_lowercase().contains("unix") || one == other,
        "{one:?}"
    );
}

#[cfg(test)]
mod tests {
    use super::TARGETS;

    #[test]
    fn what_fuzzing_found_before_is_as_it_should_be() {
        for (name, target) in TARGETS {
            let folder = format!("{}/../tests/fuzz/corpus/{name}", env!("CARGO_MANIFEST_DIR"));
            let inputs: Vec<_> = std::fs::read_dir(&folder).expect(&folder).collect();
            assert!(!inputs.is_empty(), "{folder}");
            for input in inputs {
                let path = input.expect("a file").path();
                println!("{}", path.display());
                target(&std::fs::read(path).expect("a file"));
            }
        }
    }
}
