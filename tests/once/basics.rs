//! What callers of one fire get, one after the other and at once.

use std::{
    collections::BTreeSet,
    time::{Duration, SystemTime},
};

use redlock_rt::Fire;
use tests::{Backend, eventually, within};

use crate::stage::{DEADLINE, KEEP, Stage, fire_time, guard, run, start, started, waiting};

macro_rules! on_each_server {
    ($($test:ident),+ $(,)?) => {
        on_each_server!(@ redis = tests::Redis: $($test),+);
        on_each_server!(@ cluster = tests::OneMaster: $($test),+);
        on_each_server!(@ embedded = tests::Embedded: $($test),+);
    };
    (@ $name:ident = $backend:ty: $($test:ident),+) => {
        mod $name {
            $(#[tokio::test]
            async fn $test() {
                super::$test::<$backend>().await;
            })+
        }
    };
}

on_each_server!(
    a_fire_is_done_once_and_later_callers_are_told_when,
    a_guard_that_is_dropped_leaves_it_to_one_that_waits,
    all_who_wait_are_told_that_it_is_done,
    who_does_not_wait_is_told_who_runs_it,
    after_the_last_attempt_it_has_failed,
    the_last_attempt_may_still_succeed,
    other_times_and_other_names_are_other_fires,
    a_fire_is_forgotten_after_its_time,
    a_guard_that_is_shared_marks_it_when_the_last_ends,
);

async fn a_fire_is_done_once_and_later_callers_are_told_when<B: Backend>() {
    let stage = Stage::open::<B>("once-done").await;
    let clients = [stage.client(), stage.client()];
    let before = SystemTime::now() - Duration::from_secs(1);
    let guard = run(&stage.once(&clients[0])).await;
    assert!(guard.is_valid() && guard.token() > 0);
    assert!(!stage.is_done().await);
    guard.done().await.unwrap();
    let mut times = BTreeSet::new();
    for client in &clients {
        for _ in 0..2 {
            let Fire::Done(at) = stage.once(client).start().await.unwrap() else {
                panic!("it is done");
            };
            assert!(at >= before && at <= SystemTime::now() + Duration::from_secs(1));
            times.insert(at);
        }
    }
    assert_eq!((times.len(), stage.attempts().await), (1, 1));
    stage.assert_clean().await;
}

async fn a_guard_that_is_dropped_leaves_it_to_one_that_waits<B: Backend>() {
    let stage = Stage::open::<B>("once-open").await;
    let [one, other] = [stage.client(), stage.client()];
    let first = run(&stage.once(&one)).await;
    let (starting, token) = (start(&stage.once(&other)), first.token());
    waiting(&other, 1).await;
    drop(first);
    let second = guard(started(starting).await);
    assert!(second.token() > token);
    second.unlock().await.unwrap();
    let third = run(&stage.once(&one)).await;
    assert_eq!(stage.attempts().await, 3);
    third.done().await.unwrap();
    stage.assert_clean().await;
}

async fn all_who_wait_are_told_that_it_is_done<B: Backend>() {
    const EACH: usize = 20;
    let stage = Stage::open::<B>("once-wait").await;
    let [one, other] = [stage.client(), stage.client()];
    let first = run(&stage.once(&one)).await;
    let all = [&one, &other].map(|client| {
        let once = stage.once(client);
        (0..EACH).map(|_| start(&once)).collect::<Vec<_>>()
    });
    waiting(&one, EACH).await;
    waiting(&other, EACH).await;
    first.done().await.unwrap();
    for starting in all.into_iter().flatten() {
        assert!(matches!(started(starting).await, Fire::Done(_)));
    }
    stage.assert_clean().await;
}

async fn who_does_not_wait_is_told_who_runs_it<B: Backend>() {
    let stage = Stage::open::<B>("once-running").await;
    let [one, other] = [stage.client(), stage.client()];
    let first = run(&stage.once(&one)).await;
    let by = first.hold_id().clone();
    let short = Duration::from_millis(50);
    for client in [&one, &other] {
        for wait in [Duration::ZERO, short] {
            let fire = stage.once(client).wait(wait).start().await.unwrap();
            assert!(matches!(fire, Fire::Running(holder) if holder == by));
        }
    }
    // Behind one that waits for the whole time, and that alone has asked.
    let long = start(&stage.once(&other));
    waiting(&other, 1).await;
    let fire = stage.once(&other).wait(short).start().await.unwrap();
    assert!(matches!(fire, Fire::Running(holder) if holder == by));
    first.done().await.unwrap();
    assert!(matches!(started(long).await, Fire::Done(_)));
    stage.assert_clean().await;
}

async fn after_the_last_attempt_it_has_failed<B: Backend>() {
    let stage = Stage::open::<B>("once-failed").await;
    let [one, other] = [stage.client(), stage.client()];
    let twice = |client| stage.once(client).attempts(2);
    drop(run(&twice(&one)).await);
    let second = run(&twice(&one)).await;
    let starting = [start(&twice(&one)), start(&twice(&other))];
    waiting(&other, 1).await;
    drop(second);
    for starting in starting {
        assert!(matches!(started(starting).await, Fire::Failed));
    }
    assert_eq!(stage.attempts().await, 2);
    run(&twice(&one).attempts(3)).await.done().await.unwrap();
    let fire = twice(&other).start().await.unwrap();
    assert!(matches!(fire, Fire::Done(_)));
    stage.assert_clean().await;
}

async fn the_last_attempt_may_still_succeed<B: Backend>() {
    let stage = Stage::open::<B>("once-last").await;
    let [one, other] = [stage.client(), stage.client()];
    let only = run(&stage.once(&one).attempts(1)).await;
    let late = stage.once(&other).attempts(1);
    let fire = late.clone().wait(Duration::ZERO).start().await.unwrap();
    assert!(matches!(fire, Fire::Running(_)), "it has not failed yet");
    let starting = start(&late);
    waiting(&other, 1).await;
    only.done().await.unwrap();
    assert!(matches!(started(starting).await, Fire::Done(_)));
    stage.assert_clean().await;
}

async fn other_times_and_other_names_are_other_fires<B: Backend>() {
    let stage = Stage::open::<B>("once-other").await;
    let client = stage.client();
    run(&stage.once(&client)).await.done().await.unwrap();
    let within_the_millisecond = fire_time() + Duration::from_micros(999);
    let same = client.once(&stage.name, within_the_millisecond);
    assert!(matches!(same.start().await.unwrap(), Fire::Done(_)));
    let next = client.once(&stage.name, fire_time() + Duration::from_millis(1));
    let other = client.once(format!("{}-other", stage.name), fire_time());
    for fire in [next, other] {
        run(&fire.keep(KEEP)).await.done().await.unwrap();
    }
    stage.assert_clean().await;
}

async fn a_fire_is_forgotten_after_its_time<B: Backend>() {
    let stage = Stage::open::<B>("once-keep").await;
    let client = stage.client();
    let short = Duration::from_millis(300);
    let once = stage.once(&client).lease(short).keep(short);
    run(&once).await.done().await.unwrap();
    eventually(DEADLINE, async || stage.mark().await.is_empty()).await;
    let again = run(&once).await;
    assert_eq!(stage.attempts().await, 1);
    drop(again);
    stage.assert_clean().await;
}

async fn a_guard_that_is_shared_marks_it_when_the_last_ends<B: Backend>() {
    let stage = Stage::open::<B>("once-shared").await;
    let client = stage.client();
    let first = run(&stage.once(&client)).await;
    let second = within(DEADLINE, first.reenter()).await.unwrap();
    first.done().await.unwrap();
    assert!(!stage.is_done().await);
    second.unlock().await.unwrap();
    assert!(stage.is_done().await);
    stage.assert_clean().await;
}
