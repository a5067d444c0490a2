//! Values in Redis that compare tokens.

use std::time::Duration;

use redlock_rt::{Client, Error, ErrorKind, FencedValue, Reply, Shutdown};
use tests::{CALL, Proxy, ask, shared_server, within};

use crate::{DEADLINE, Scene};

const INCREMENT: &str = "return redis.call('INCR', KEYS[1])";
/// The longest time that Redis can keep a key, less the time of day.
const LONGEST: Duration = Duration::from_millis(i64::MAX as u64 / 4);

/// A value of a scene, which is removed with it.
struct Stage {
    scene: Scene,
    key: String,
    fence: String,
    value: FencedValue,
}

impl Stage {
    async fn open(what: &str, url: &str) -> Self {
        let scene = Scene::at(what, url).await;
        let key = format!("{}:value", scene.name);
        Self {
            value: scene.client.fenced_value(&key),
            fence: format!("redlock_fence:{{{key}}}"),
            key,
            scene,
        }
    }

    async fn is(&self) -> Option<String> {
        self.scene.redis(&["GET", &self.key]).await
    }

    async fn seen(&self) -> Option<String> {
        self.scene.redis(&["GET", &self.fence]).await
    }

    async fn end(self) {
        let _: usize = self.scene.redis(&["DEL", &self.key, &self.fence]).await;
        self.scene.end().await;
    }
}

#[track_caller]
fn assert_kind<T: std::fmt::Debug>(outcome: Result<T, Error>, kind: ErrorKind, says: &str) {
    let error = outcome.unwrap_err();
    assert_eq!(error.kind(), kind, "{error}");
    assert!(tests::told(&error).contains(says), "{error}");
}

#[tokio::test]
async fn older_tokens_are_refused_and_the_last_passes_again() {
    let stage = Stage::open("values", &shared_server().url()).await;
    let Stage { value, key, .. } = &stage;
    value.set("a", 7).await.unwrap();
    value.set("b", 7).await.unwrap();
    // Longer, so greater, although smaller as text.
    value.set("c", 10).await.unwrap();
    let says = format!("set fenced value {key:?}: a newer fencing token was seen: token 9");
    assert_kind(value.set("d", 9).await, ErrorKind::StaleToken, &says);
    let ran = value.exec(INCREMENT, &[], 9).await;
    assert!(ran.as_ref().is_err_and(Error::is_stale_token));
    assert_kind(ran, ErrorKind::StaleToken, "token 9 is older than 10");
    assert_eq!(stage.is().await.unwrap(), "c");
    // At any length.
    for token in [(1 << 53) + 1, u64::MAX - 1, u64::MAX] {
        value.set("e", token).await.unwrap();
        assert_kind(value.set("f", token - 1).await, ErrorKind::StaleToken, "");
        assert_eq!(stage.seen().await, Some(token.to_string()));
    }
    assert_eq!(stage.is().await.unwrap(), "e");
    stage.end().await;
}

#[tokio::test]
async fn an_older_holder_does_not_write_between_the_read_and_the_write_of_a_newer_one() {
    let stage = Stage::open("reads", &shared_server().url()).await;
    let value = &stage.value;
    assert_eq!(value.get(1).await.unwrap(), None);
    value.set("10", 1).await.unwrap();
    assert_eq!(value.get(2).await.unwrap().as_deref(), Some("10"));
    assert_kind(value.set("11", 1).await, ErrorKind::StaleToken, "older");
    assert_kind(value.get(1).await, ErrorKind::StaleToken, "older");
    value.set("11", 2).await.unwrap();
    assert_eq!(stage.is().await.as_deref(), Some("11"));
    let _: usize = stage.scene.redis(&["DEL", &stage.key]).await;
    let _: usize = stage.scene.redis(&["RPUSH", &stage.key, "a"]).await;
    let says = "read fenced value";
    assert_kind(value.get(2).await, ErrorKind::WrongType, says);
    let binary = redis::cmd("SET")
        .arg(&stage.key)
        .arg(&b"\xff\xfe"[..])
        .to_owned();
    let _: () = stage.scene.query(&binary).await;
    assert_kind(value.get(2).await, ErrorKind::Protocol, says);
    stage.end().await;
}

#[tokio::test]
async fn a_read_whose_reply_is_lost_is_repeated() {
    let proxy = Proxy::to(&shared_server());
    let stage = Stage::open("lost read", &proxy.url()).await;
    stage.value.set("a", 1).await.unwrap();
    proxy.swallow_reply(CALL, 1);
    let read = within(DEADLINE, stage.value.get(1)).await;
    assert_eq!(read.unwrap().as_deref(), Some("a"));
    stage.end().await;
}

#[tokio::test]
async fn a_script_sees_its_own_and_answers_anything() {
    let stage = Stage::open("exec", &shared_server().url()).await;
    let value = &stage.value;
    let (int, text) = (Reply::Int, |text: &str| Reply::Text(text.to_owned()));
    assert_eq!(value.exec(INCREMENT, &[], 1).await.unwrap(), int(1));
    for (script, args, reply) in [
        (
            "return {KEYS, ARGV, #KEYS, #ARGV}",
            &["x", "y"][..],
            Reply::List(vec![
                Reply::List(vec![text(&stage.key)]),
                Reply::List(vec![text("x"), text("y")]),
                int(1),
                int(2),
            ]),
        ),
        (
            "return {0, '99'}",
            &[],
            Reply::List(vec![int(0), text("99")]),
        ),
        ("local _ = 1", &[], Reply::Nil),
        ("return false", &[], Reply::Nil),
        ("return true", &[], int(1)),
        ("return redis.status_reply('FINE')", &[], text("FINE")),
        ("return redis.call('GET', KEYS[1])", &[], text("1")),
    ] {
        assert_eq!(
            value.exec(script, args, 2).await.unwrap(),
            reply,
            "{script}"
        );
    }
    stage.end().await;
}

/// After a failed write its token counts as seen; an unreadable token does not.
#[tokio::test]
async fn a_script_that_fails_is_told() {
    let stage = Stage::open("fails", &shared_server().url()).await;
    let value = &stage.value;
    for (token, script, kind, says) in [
        (
            5,
            "return redis.call(",
            ErrorKind::Protocol,
            "cannot be read",
        ),
        (6, "error('on purpose')", ErrorKind::Protocol, "on purpose"),
        (
            7,
            "return redis.error_reply('ERR its own')",
            ErrorKind::Protocol,
            "its own",
        ),
        (
            8,
            "return redis.call('HGET', KEYS[1], 'f')",
            ErrorKind::WrongType,
            "",
        ),
    ] {
        stage.value.set("text", 4).await.ok();
        assert_kind(value.exec(script, &[], token).await, kind, says);
        let seen = if token == 5 { 4 } else { token };
        assert_eq!(stage.seen().await, Some(seen.to_string()), "{script}");
    }
    stage.end().await;
}

/// Once, a script whose error contained a word like BUSY ran again: 46 times in a second.
#[tokio::test]
async fn a_script_that_failed_with_the_word_busy_ran_many_times() {
    async fn each_runs_once(value: &FencedValue) {
        for (token, (ends, says)) in (1..).zip([
            ("return redis.error_reply('BUSY come later')", "come later"),
            ("return redis.error_reply('NOSCRIPT of mine')", "of mine"),
            ("return redis.error_reply('READONLY of mine')", "of mine"),
            ("return redis.error_reply('OOM of mine')", "of mine"),
            ("return {err = 'MOVED 1 elsewhere'}", "elsewhere"),
            ("error('the queue is BUSY')", "the queue is BUSY"),
            ("error('-LOADING it')", "LOADING it"),
            ("error('please ASK the owner')", "please ASK"),
            ("error({err = 'BUSY table'})", "BUSY table"),
            ("error({})", "raised a table"),
            ("error()", "raised a nil"),
            ("return redis.call('NOSUCH')", ""),
            (
                "return setmetatable({}, {__index = function() error({err = 'BUSY meta'}) end})",
                "",
            ),
        ]) {
            let before = value.exec("return redis.call('GET', KEYS[1]) or '0'", &[], token);
            let Reply::Text(before) = before.await.unwrap() else {
                panic!("GET answers a text");
            };
            let script = format!("redis.call('INCR', KEYS[1]) {ends}");
            let ran = within(DEADLINE, value.exec(&script, &[], token)).await;
            if !says.is_empty() {
                assert_kind(ran, ErrorKind::Protocol, says);
            }
            let after = value
                .exec("return redis.call('GET', KEYS[1])", &[], token)
                .await;
            let once = (before.parse::<u32>().unwrap() + 1).to_string();
            assert_eq!(after.unwrap(), Reply::Text(once), "{ends}");
        }
    }
    let stage = Stage::open("once", &shared_server().url()).await;
    each_runs_once(&stage.value).await;
    stage.end().await;
    each_runs_once(&Client::embedded().fenced_value("once")).await;
}

/// The token is written first: if that is refused, the script has not run.
#[tokio::test]
async fn a_script_is_tried_again_where_the_memory_was_full_before_it_ran() {
    let server = tests::RedisServer::start();
    let proxy = Proxy::to(&server);
    let value = Client::connect(&proxy.url()).await.unwrap();
    let value = value.fenced_value("memory");
    let control = server.connect().await.unwrap();
    let limit = async |bytes: &str| {
        ask::<()>(&control, &["CONFIG", "SET", "maxmemory", bytes]).await;
    };
    limit("1").await;
    let running = tokio::spawn(async move { value.exec(INCREMENT, &[], 1).await });
    within(DEADLINE, proxy.wait_for_count(CALL, 4)).await;
    limit("0").await;
    assert_eq!(running.await.unwrap().unwrap(), Reply::Int(1));
}

#[tokio::test]
async fn the_token_may_be_forgotten_after_a_time() {
    let stage = Stage::open("fence-ttl", &shared_server().url()).await;
    let ttl = async || {
        let ttl: i64 = stage.scene.redis(&["PTTL", &stage.fence]).await;
        ttl
    };
    stage.value.set("a", 5).await.unwrap();
    assert_eq!(ttl().await, -1);
    let minute = stage.value.clone().fence_ttl(Duration::from_secs(60));
    minute.set("b", 5).await.unwrap();
    assert!((50_000..=60_000).contains(&ttl().await));
    let _: bool = stage.scene.redis(&["PEXPIRE", &stage.fence, "10000"]).await;
    minute.exec(INCREMENT, &[], 6).await.unwrap_err();
    assert!((50_000..=60_000).contains(&ttl().await), "set anew");
    let brief = stage.value.clone().fence_ttl(Duration::from_millis(50));
    brief.set("c", 7).await.unwrap();
    tests::eventually(DEADLINE, async || stage.seen().await.is_none()).await;
    assert_eq!(stage.is().await.unwrap(), "c", "the value stays");
    stage.value.set("d", 1).await.unwrap();
    let longest = stage.value.clone().fence_ttl(LONGEST);
    longest.set("e", 7).await.unwrap();
    assert!(ttl().await > 0);
    for (ttl, says) in [
        (Duration::ZERO, "shorter than a millisecond"),
        (
            LONGEST + Duration::from_millis(1),
            "longer than redis can keep",
        ),
        (Duration::MAX, "longer than redis can keep"),
    ] {
        let value = stage.value.clone().fence_ttl(ttl);
        assert_kind(value.set("e", 8).await, ErrorKind::BadInput, says);
        assert_kind(value.exec("", &[], 8).await, ErrorKind::BadInput, says);
    }
    stage.end().await;
}

#[tokio::test]
async fn a_write_whose_reply_is_lost_is_repeated_and_a_script_is_not() {
    let proxy = Proxy::to(&shared_server());
    let stage = Stage::open("lost-write", &proxy.url()).await;
    stage.value.set("0", 1).await.unwrap();
    stage.value.exec(INCREMENT, &[], 1).await.unwrap();
    proxy.cut_after_request(CALL);
    let set = stage.value.set("10", 2);
    within(DEADLINE, set).await.unwrap();
    proxy.cut_after_request(CALL);
    let ran = within(DEADLINE, stage.value.exec(INCREMENT, &[], 2)).await;
    assert_kind(ran, ErrorKind::OutcomeUnknown, "");
    assert_eq!(stage.is().await.unwrap(), "11", "once");
    // It is repeated if it cannot have run: after a refusal, or if the server does not know it.
    let loading = "-LOADING Redis is loading the dataset in memory\r\n";
    proxy.answer(CALL, loading, 1);
    let ran = within(DEADLINE, stage.value.exec(INCREMENT, &[], 2)).await;
    assert_eq!(ran.unwrap(), Reply::Int(12));
    let _: () = stage.scene.redis(&["SCRIPT", "FLUSH"]).await;
    let ran = within(DEADLINE, stage.value.exec(INCREMENT, &[], 2)).await;
    assert_eq!(ran.unwrap(), Reply::Int(13));
    stage.end().await;
}

#[tokio::test]
async fn the_key_is_the_callers() {
    let client = Client::builder()
        .url(&shared_server().url())
        .namespace("svc")
        .build()
        .unwrap();
    let stage = Stage::open("namespace", &shared_server().url()).await;
    client.fenced_value(&stage.key).set("v", 3).await.unwrap();
    assert_eq!(stage.is().await.unwrap(), "v");
    assert_eq!(stage.seen().await.unwrap(), "3");
    // SET replaces any value.
    let _: usize = stage.scene.redis(&["DEL", &stage.key]).await;
    let _: i64 = stage.scene.redis(&["RPUSH", &stage.key, "a"]).await;
    stage.value.set("w", 3).await.unwrap();
    assert_eq!(stage.is().await.unwrap(), "w");

    for (key, says) in [("", "empty or blank"), ("a\0b", "NUL")] {
        let value = client.fenced_value(key);
        assert_kind(value.set("v", 1).await, ErrorKind::BadInput, says);
        assert_kind(value.exec("", &[], 1).await, ErrorKind::BadInput, says);
    }
    let _: usize = stage.scene.redis(&["DEL", &stage.fence]).await;
    let _: i64 = stage.scene.redis(&["RPUSH", &stage.fence, "a"]).await;
    assert_kind(
        stage.value.set("x", 9).await,
        ErrorKind::WrongType,
        &stage.key,
    );
    assert_eq!(stage.is().await.unwrap(), "w");
    client.shutdown(Shutdown::ReleaseAll).await.unwrap();
    let after = client.fenced_value(&stage.key).set("y", 9).await;
    assert_kind(after, ErrorKind::ShutDown, &stage.key);
    stage.end().await;
}

/// A token of the lock, against writers without one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_write_goes_back_whatever_the_order_of_arrival() {
    const WRITERS: u64 = 16;
    let stage = Stage::open("arrival", &shared_server().url()).await;
    let mut tasks = tokio::task::JoinSet::new();
    for token in 1..=WRITERS {
        let value = stage.value.clone();
        let append = "return redis.call('APPEND', KEYS[1], ARGV[1])";
        tasks.spawn(async move {
            let word = format!("{token} ");
            let wrote = value.exec(append, &[&word], token).await;
            assert!(wrote.is_ok() || wrote.is_err_and(|error| error.is_stale_token()));
        });
    }
    within(DEADLINE, tasks.join_all()).await;
    let written = stage.is().await.unwrap();
    let written: Vec<u64> = written
        .split_whitespace()
        .map(|token| token.parse().unwrap())
        .collect();
    assert!(written.is_sorted(), "{written:?}");
    assert_eq!(written.last(), Some(&WRITERS));
    stage.end().await;
}
