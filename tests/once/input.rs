//! Bad input is refused where it is used, and nothing is sent; keys of others stay as they are.

use std::time::{Duration, UNIX_EPOCH};

use redlock_rt::{Client, ErrorKind, Fire, LockOptions, Once, Owner};
use tests::{Redis, within};

use crate::stage::{DEADLINE, Stage, fire_time, run};

#[tokio::test]
async fn bad_input_is_refused_before_anything_is_sent() {
    // Nobody listens there.
    let client = Client::builder()
        .url("redis://127.0.0.1:1")
        .build()
        .unwrap();
    let once = || client.once("job", fire_time());
    let options = |options: LockOptions| once().options(options);
    let second = Duration::from_secs(1);
    let bad: [Once; 11] = [
        client.once("", fire_time()),
        client.once(" ", fire_time()),
        client.once("a\0b", fire_time()),
        client.once("x".repeat(500), fire_time()),
        client.once("redlock_once:{a}", fire_time()),
        client.once("job", UNIX_EPOCH - Duration::from_millis(1)),
        once().attempts(0),
        once().lease(second).keep(second - Duration::from_millis(1)),
        once().lease(Duration::ZERO),
        once().keep(Duration::MAX),
        options(LockOptions::new().min_hold(second)),
    ];
    for once in bad {
        let error = within(DEADLINE, once.start()).await.unwrap_err();
        assert!(error.is_bad_input(), "{error}");
    }
}

#[tokio::test]
async fn under_a_fire_itself_it_is_refused() {
    let stage = Stage::open::<Redis>("once-nested").await;
    let client = stage.client();
    let first = run(&stage.once(&client)).await;
    for wait in [None, Some(Duration::ZERO), Some(DEADLINE)] {
        let once = stage.once(&client).wait(wait);
        let nested = first.run(once.start());
        let error = within(DEADLINE, nested).await.unwrap().unwrap_err();
        assert!(error.is_upgrade_would_deadlock(), "{error}");
        assert!(
            error.to_string().contains("run by the caller itself"),
            "{error}"
        );
    }
    first.done().await.unwrap();
    stage.assert_clean().await;
}

#[tokio::test]
async fn an_owner_does_not_reenter_its_fire() {
    let stage = Stage::open::<Redis>("once-owner").await;
    let client = stage.client();
    let options = LockOptions::new().owner(&Owner::new());
    let once = stage.once(&client).options(options);
    let first = run(&once).await;
    let error = within(DEADLINE, once.start()).await.unwrap_err();
    assert!(error.is_upgrade_would_deadlock(), "{error}");
    first.done().await.unwrap();
    assert!(matches!(once.start().await.unwrap(), Fire::Done(_)));
    stage.assert_clean().await;
}

#[tokio::test]
async fn a_key_that_is_no_lock_and_no_mark_is_left_alone() {
    let stage = Stage::open::<Redis>("once-foreign").await;
    let client = stage.client();
    let token = format!("redisson_lock_token:{{{}}}", stage.lock());
    for key in [stage.lock(), stage.mark_key(), token] {
        let _: () = stage.redis(&["SET", &key, "data"]).await;
        let error = stage.once(&client).start().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::WrongType, "{key}: {error}");
        let data: String = stage.redis(&["GETDEL", &key]).await;
        assert_eq!(data, "data");
    }
    let _: i64 = stage
        .redis(&["HSET", &stage.mark_key(), "done", "soon"])
        .await;
    let error = stage.once(&client).start().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Protocol, "{error}");
    let _: bool = stage.redis(&["DEL", &stage.mark_key()]).await;
    let numbers = ["attempts", "many", "owner", "somebody"];
    let key = stage.mark_key();
    let words = [&["HSET", key.as_str()], &numbers[..]].concat();
    let _: i64 = stage.redis(&words).await;
    run(&stage.once(&client)).await.done().await.unwrap();
    assert_eq!(stage.attempts().await, 1);
    let fire = stage.once(&client).start().await.unwrap();
    assert!(matches!(fire, Fire::Done(_)));
    stage.assert_clean().await;
}
