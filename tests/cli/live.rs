//! `redlock watch` and `redlock top`: what happens now.

use redlock_rt::Client;
use serde_json::Value;
use tests::{Matcher, Proxy, shared_server, unique};

use crate::command::{PROGRAM, redlock, start};
use crate::terminal::Terminal;

#[tokio::test]
async fn what_happens_to_a_lock_is_printed_a_line_an_event() {
    let key = unique("cli:watch");
    let client = Client::connect(&shared_server().url()).await.unwrap();
    let mut watch = start(["--json", "watch", &key, "--every", "10ms"]);
    let guard = client.rlock(&key).lock().await.unwrap();
    watch.says(r#""event":"acquired""#).await;
    let again = guard.reenter().await.unwrap();
    watch.says(r#""event":"held""#).await;
    let mut waiter = start(["run", &key, "true"]);
    watch.says(r#""event":"waiters""#).await;
    let id = guard.hold_id().as_str().to_owned();
    drop((guard, again));
    watch.says(r#""event":"released""#).await;
    assert_eq!(waiter.ended().await.code, 0);
    watch.kill();
    for line in watch.out().lines() {
        let event: Value = serde_json::from_str(line).unwrap();
        assert_eq!(event["key"], key, "{event}");
        assert!(
            event["time_ms"].as_u64() > Some(1_600_000_000_000),
            "{event}"
        );
    }
    assert!(watch.out().contains(&id));
}

#[tokio::test]
async fn a_watch_for_some_time_ends_and_tells_of_a_latch() {
    let key = unique("cli:watch:latch");
    assert_eq!(redlock(["latch", &key, "set", "3"]).await.code, 0);
    let ended = redlock(["watch", &key, "--every", "10ms", "--for", "100ms"]).await;
    assert_eq!(ended.code, 0);
    assert!(ended.out.contains("count    3"), "{}", ended.out);
}

#[tokio::test]
async fn a_watch_did_not_tell_that_a_latch_has_opened() {
    let key = unique("cli:watch:opens");
    assert_eq!(redlock(["latch", &key, "set", "1"]).await.code, 0);
    let mut watch = start(["watch", &key, "--every", "10ms"]);
    watch.says("count    1").await;
    assert_eq!(redlock(["latch", &key, "count-down"]).await.code, 0);
    watch.says("count    0").await;
    watch.kill();
}

#[tokio::test]
async fn a_lock_that_is_kept_for_its_shortest_hold_has_no_holder() {
    let key = unique("cli:watch:kept");
    let kept = redlock(["run", &key, "--min-hold", "60s", "true"]).await;
    assert_eq!(kept.code, 0, "{kept:?}");
    let ended = redlock(["watch", &key, "--every", "10ms", "--for", "100ms"]).await;
    assert_eq!((ended.code, ended.out.as_str()), (0, ""), "{ended:?}");
}

#[tokio::test]
async fn a_watch_whose_time_was_over_went_on_until_its_next_look() {
    let key = unique("cli:watch:for");
    let ended = redlock(["watch", &key, "--every", "1h", "--for", "10ms"]).await;
    assert_eq!((ended.code, ended.out.as_str()), (0, ""), "{ended:?}");
}

#[tokio::test]
async fn top_shows_the_lock_with_most_waiters_first_and_ends_by_q() {
    let prefix = unique("top");
    let client = Client::connect(&shared_server().url()).await.unwrap();
    let (calm, hot) = (format!("{prefix}:aaaa"), format!("{prefix}:zzzz"));
    let _calm = client.rlock(&calm).lock().await.unwrap();
    let held = client.rlock(&hot).lock().await.unwrap();
    let pattern = format!("{prefix}:*");
    let arguments = [PROGRAM, "top", &pattern, "--every", "20ms"];
    let mut terminal = Terminal::start(&shared_server().url(), &arguments);
    terminal.shows("aaaa", 1).await;
    terminal.shows("zzzz", 1).await;
    let mut waiter = start(["run", &hot, "true"]);
    // What differs is drawn anew: the hot one in the first row, and the calm one below it.
    terminal.shows("zzzz", 2).await;
    terminal.shows("aaaa", 2).await;
    let shown = terminal.shown();
    assert!(shown.find("aaaa") < shown.find("zzzz"), "{shown:?}");
    assert!(shown.rfind("zzzz") < shown.rfind("aaaa"), "{shown:?}");
    terminal.types("q");
    assert_eq!(terminal.ended().await, 0);
    // The screen of before is back.
    terminal.shows("\x1b[?1049l", 1).await;
    drop(held);
    assert_eq!(waiter.ended().await.code, 0);
}

#[tokio::test]
async fn top_let_a_key_turn_the_direction_of_its_line() {
    let prefix = unique("top:turned");
    let client = Client::connect(&shared_server().url()).await.unwrap();
    let key = format!("{prefix}\u{202e}\u{200f}");
    let _held = client.rlock(&key).lock().await.unwrap();
    let pattern = format!("{prefix}*");
    let mut terminal = Terminal::start(&shared_server().url(), &[PROGRAM, "top", &pattern]);
    terminal.shows("\\u{202e}\\u{200f}", 1).await;
    terminal.types("q");
    assert_eq!(terminal.ended().await, 0);
}

#[tokio::test]
async fn top_did_not_end_before_its_scan() {
    let pattern = unique("top:scan");
    for key in ["q", "\x03"] {
        let proxy = Proxy::to(&shared_server());
        let scan = proxy.hold_reply(Matcher::any().mentioning(&pattern));
        let arguments = [PROGRAM, "top", &pattern, "--timeout", "1h"];
        let mut terminal = Terminal::start(&proxy.url(), &arguments);
        scan.reached().await;
        terminal.types(key);
        assert_eq!(terminal.ended().await, 0, "{key:?}");
    }
}

#[tokio::test]
async fn top_without_a_terminal_is_64() {
    assert_eq!(redlock(["top"]).await.code, 64);
}
