//! No more permits are granted than exist.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};
use std::time::Duration;

use redlock_rt::ErrorKind;
use tests::within;
use tokio::{task::JoinSet, time::Instant};

use crate::{
    subject::{Subject, with_permits},
    world::*,
};

pub(crate) async fn no_more_are_given_than_there_are<S: Subject>(world: &World) {
    let (client, other) = (world.client(), world.client());
    let semaphore = with_permits::<S>(&client, &world.name, 3).await;
    let elsewhere = S::open(&other, &world.name);
    let mut guards = Vec::new();
    for left in (0..3).rev() {
        let taken = if left == 1 { &elsewhere } else { &semaphore };
        guards.push(taken.try_one().await.unwrap().unwrap());
        assert_eq!(semaphore.free().await.unwrap(), left);
    }
    assert!(semaphore.try_one().await.unwrap().is_none());
    assert!(elsewhere.try_one().await.unwrap().is_none());
    S::give_back(guards.remove(0)).await.unwrap();
    guards.push(elsewhere.try_one().await.unwrap().unwrap());
    assert!(semaphore.try_one().await.unwrap().is_none());
    drop(guards);
    gone(world, 3).await;
}

pub(crate) async fn several_are_taken_all_or_none<S: Subject>(world: &World) {
    let client = world.client();
    let semaphore = with_permits::<S>(&client, &world.name, 5).await;
    let three = semaphore.take(3).await.unwrap();
    assert_eq!(S::count_of(&three), 3);
    let refused = semaphore.take_within(3, Duration::ZERO).await;
    let error = refused.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Contended, "{error}");
    assert_eq!(semaphore.free().await.unwrap(), 2, "nothing is taken");
    let two = semaphore.take(2).await.unwrap();
    S::give_back(three).await.unwrap();
    assert_eq!(semaphore.free().await.unwrap(), 3);
    S::give_back(two).await.unwrap();
    gone(world, 5).await;
}

pub(crate) async fn a_try_answers_at_once<S: Subject>(world: &World) {
    let client = world.client();
    let semaphore = with_permits::<S>(&client, &world.name, 1).await;
    let guard = semaphore.try_one().await.unwrap().unwrap();
    let start = Instant::now();
    assert!(semaphore.try_one().await.unwrap().is_none());
    assert!(start.elapsed() < LATE);
    assert_eq!(client.stats().subscriptions, 0, "it does not wait");
    S::give_back(guard).await.unwrap();
    gone(world, 1).await;
}

pub(crate) async fn a_wait_runs_out<S: Subject>(world: &World) {
    let (client, other) = (world.client(), world.client());
    let semaphore = with_permits::<S>(&client, &world.name, 2).await;
    let guard = semaphore.take(1).await.unwrap();
    for client in [&client, &other] {
        let start = Instant::now();
        let waited = S::open(client, &world.name).take_within(2, WAIT).await;
        assert_passed(start, WAIT);
        let error = waited.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::TimedOut, "{error}");
        assert_eq!(error.name(), Some(&*world.name));
        assert_eq!(client.stats().waiting, 0);
    }
    assert_eq!(semaphore.free().await.unwrap(), 1);
    S::give_back(guard).await.unwrap();
    gone(world, 2).await;
}

pub(crate) async fn a_wait_of_zero_tries_once<S: Subject>(world: &World) {
    let client = world.client();
    let semaphore = with_permits::<S>(&client, &world.name, 1).await;
    let guard = semaphore.take_within(1, Duration::ZERO).await;
    let guard = guard.unwrap();
    let refused = semaphore.take_within(1, Duration::ZERO).await;
    let error = refused.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Contended, "{error}");
    assert_eq!(client.stats().subscriptions, 0, "it does not wait");
    S::give_back(guard).await.unwrap();
    gone(world, 1).await;
}

pub(crate) async fn a_wait_is_served_in_time<S: Subject>(world: &World) {
    let (client, other) = (world.client(), world.client());
    let semaphore = with_permits::<S>(&client, &world.name, 1).await;
    let guard = semaphore.take(1).await.unwrap();
    let elsewhere = S::open(&other, &world.name);
    let waiter = tokio::spawn(async move { elsewhere.take_within(1, DEADLINE).await });
    waits(&other, 1).await;
    settles(world, &other).await;
    S::give_back(guard).await.unwrap();
    let guard = within(DEADLINE, waiter).await.unwrap();
    S::give_back(guard.unwrap()).await.unwrap();
    gone(world, 1).await;
}

pub(crate) async fn names_do_not_meddle<S: Subject>(world: &World) {
    let client = world.client();
    let semaphore = with_permits::<S>(&client, &world.name, 1).await;
    let beside = format!("{}:beside", world.name);
    let other = with_permits::<S>(&client, &beside, 1).await;
    let guard = semaphore.take(1).await.unwrap();
    let free = other.try_one().await.unwrap();
    S::give_back(free.unwrap()).await.unwrap();
    S::give_back(guard).await.unwrap();
    let _: bool = world.redis(&["DEL", &beside]).await;
    gone(world, 1).await;
}

pub(crate) async fn handles_of_one_name_are_one_semaphore<S: Subject>(world: &World) {
    let client = world.client();
    let semaphore = with_permits::<S>(&client, &world.name, 1).await;
    let guard = semaphore.clone().take(1).await.unwrap();
    let again = S::open(&client, &world.name);
    assert!(again.try_one().await.unwrap().is_none());
    S::give_back(guard).await.unwrap();
    gone(world, 1).await;
}

pub(crate) async fn where_none_were_set_there_are_none<S: Subject>(world: &World) {
    let client = world.client();
    let semaphore = S::open(&client, &world.name);
    assert_eq!(semaphore.free().await.unwrap(), 0);
    assert!(semaphore.try_one().await.unwrap().is_none());
    let error = semaphore.take_within(1, WAIT).await.unwrap_err();
    assert!(error.is_timed_out(), "{error}");
    assert!(!world.is_there().await, "nothing is made");
    assert!(semaphore.set(0).await.unwrap());
    assert!(semaphore.try_one().await.unwrap().is_none());
    gone(world, 0).await;
}

pub(crate) async fn a_hundred_tasks_never_have_more_than_there_are<S: Subject>(world: &World) {
    const TASKS: usize = 100;
    const PERMITS: u32 = 4;
    let clients = [world.client(), world.client()];
    let semaphore = with_permits::<S>(&clients[0], &world.name, PERMITS).await;
    let (inside, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let mut tasks = JoinSet::new();
    for task in 0..TASKS {
        let semaphore = S::open(&clients[task % 2], &world.name);
        let (inside, most) = (Arc::clone(&inside), Arc::clone(&most));
        tasks.spawn(async move {
            let wanted = 1 + task % 2;
            let guard = semaphore
                .take(u32::try_from(wanted).unwrap())
                .await
                .unwrap();
            let now = inside.fetch_add(wanted, Ordering::SeqCst) + wanted;
            most.fetch_max(now, Ordering::SeqCst);
            tokio::task::yield_now().await;
            inside.fetch_sub(wanted, Ordering::SeqCst);
            S::give_back(guard).await.unwrap();
        });
    }
    while let Some(done) = tasks.join_next().await {
        done.unwrap();
    }
    let most = most.load(Ordering::SeqCst);
    assert!((1..=PERMITS as usize).contains(&most), "{most} at once");
    assert_eq!(semaphore.free().await.unwrap(), i64::from(PERMITS));
    gone(world, i64::from(PERMITS)).await;
}

pub(crate) async fn what_cannot_be_is_refused<S: Subject>(world: &World) {
    const TOO_MANY: u32 = i32::MAX as u32 + 1;
    let client = world.client();
    let semaphore = with_permits::<S>(&client, &world.name, 2).await;
    for bad in [0, TOO_MANY, u32::MAX] {
        let limited = S::open(&client, &world.name).limited(bad);
        for error in [
            semaphore.take(bad).await.unwrap_err(),
            semaphore.take_within(bad, LEASE).await.unwrap_err(),
            limited.take(1).await.unwrap_err(),
            limited.try_one().await.unwrap_err(),
        ] {
            assert_eq!(error.kind(), ErrorKind::BadInput, "{error}");
            assert_eq!(error.name(), Some(&*world.name));
        }
    }
    assert!(semaphore.set(TOO_MANY).await.unwrap_err().is_bad_input());
    for bad in ["", " ", "a\0b", &"x".repeat(513)] {
        let semaphore = S::open(&client, bad);
        assert!(semaphore.take(1).await.unwrap_err().is_bad_input());
        assert!(semaphore.set(1).await.unwrap_err().is_bad_input());
        assert!(semaphore.add(1).await.unwrap_err().is_bad_input());
        assert!(semaphore.free().await.unwrap_err().is_bad_input());
    }
    gone(world, 2).await;
}

pub(crate) async fn another_type_of_value_is_told<S: Subject>(world: &World) {
    let client = world.client();
    let semaphore = S::open(&client, &world.name);
    for command in [["SET", &world.name, "many"], ["SADD", &world.name, "a"]] {
        let _: redis::Value = world.redis(&["DEL", &world.name]).await;
        let _: redis::Value = world.redis(&command).await;
        let kinds = [
            semaphore.take(1).await.unwrap_err().kind(),
            semaphore.try_one().await.unwrap_err().kind(),
            semaphore.free().await.unwrap_err().kind(),
            semaphore.set(1).await.unwrap_err().kind(),
        ];
        assert_eq!(kinds, [ErrorKind::WrongType; 4]);
    }
    let _: bool = world.redis(&["DEL", &world.name]).await;
}
