//! Requests and replies that are lost: an arrival counts once, and what came too late takes nothing.

use std::time::{Duration, Instant};

use redlock_rt::{Client, ErrorKind, Event, LockEvent};
use tests::{Loss, Proxy, World, calls, eventually, shared_server, within};

use crate::world::{
    DEADLINE, WAIT, arrived, arrived_in, assert_clean, assert_kind, barrier, ended, wait,
};

const RESPONSE: Duration = Duration::from_millis(2400);

struct Scene {
    world: World,
    proxy: Proxy,
    client: Client,
}

impl Scene {
    async fn open(what: &str) -> Self {
        let server = shared_server();
        let proxy = Proxy::to(&server);
        let world = World::on(&server, what).await;
        // Loads the scripts, so that a loss meets the call and not its NOSCRIPT.
        let first = world.client();
        let loads = format!("{}:loads", world.name);
        let loads = |parties| first.cyclic_barrier(&loads, parties);
        loads(1).wait().await.unwrap();
        let loads = loads(2);
        assert!(loads.wait_with(Duration::ZERO).await.is_err());
        loads.reset().await.unwrap();
        let url = proxy.url();
        let client = world.client_with(|_| {
            Client::builder()
                .url(&url)
                .response_timeout(RESPONSE)
                .linger(WAIT / 50)
        });
        Self {
            world,
            proxy,
            client,
        }
    }
}

/// Redis remembered how the last eight generations ended, whatever came in the meantime.
#[tokio::test]
async fn a_party_that_looked_late_was_told_that_it_is_lost() {
    let scene = Scene::open("barrier-late-look").await;
    let (one, two) = (barrier(&scene.world), barrier(&scene.world));
    let late = wait(&scene.client.cyclic_barrier(&scene.world.name, 2));
    arrived(&scene.world, 1).await;
    scene.proxy.go_silent();
    one.wait().await.unwrap();
    for _ in 0..10 {
        let first = wait(&one);
        arrived(&scene.world, 1).await;
        two.wait().await.unwrap();
        ended(first).await.unwrap();
    }
    scene.proxy.resume();
    assert_eq!(ended(late).await.unwrap().generation, 1);
    assert_clean(&scene.world).await;
}

#[tokio::test]
async fn an_arrival_counts_once() {
    let scene = Scene::open("barrier-lost-arrival").await;
    let other = barrier(&scene.world);
    for loss in Loss::ALL {
        for times in [1, 3] {
            let ours = scene.client.cyclic_barrier(&scene.world.name, 2);
            scene.proxy.lose(loss, calls("barrier_arrive"), times);
            // Neither alone: not the first, whose repeat is no second party,
            let first = wait(&ours);
            arrived(&scene.world, 1).await;
            assert!(!first.is_finished());
            other.wait().await.unwrap();
            ended(first).await.unwrap();
            // nor the last, whose repeat is no party of the next generation.
            let first = wait(&other);
            arrived(&scene.world, 1).await;
            scene.proxy.lose(loss, calls("barrier_arrive"), times);
            let last = within(DEADLINE, ours.wait()).await.unwrap();
            assert_eq!(ended(first).await.unwrap().generation, last.generation);
            arrived(&scene.world, 0).await;
        }
    }
    assert_clean(&scene.world).await;
}

/// By the time of the repeat its generation has ended, and the next one has begun.
#[tokio::test]
async fn the_repeat_of_an_arrival_counts_in_its_own_generation() {
    let scene = Scene::open("barrier-lost-repeat").await;
    let (other, third) = (barrier(&scene.world), barrier(&scene.world));
    let ours = scene.client.cyclic_barrier(&scene.world.name, 2);
    scene
        .client
        .rlock(&scene.world.name)
        .is_locked()
        .await
        .unwrap();
    scene.proxy.cut_after_request(calls("barrier_arrive"));
    let gate = scene.proxy.hold_request("INFO");
    let first = wait(&ours);
    within(DEADLINE, gate.reached()).await;
    assert_eq!(other.wait().await.unwrap().generation, 1);
    let next = wait(&third);
    arrived(&scene.world, 1).await;
    gate.open();
    assert_eq!(ended(first).await.unwrap().generation, 1);
    assert!(!next.is_finished());
    assert_eq!(other.wait().await.unwrap().generation, 2);
    ended(next).await.unwrap();
    assert_clean(&scene.world).await;
}

/// The call was given up before it arrives, over a connection that was broken meanwhile.
#[tokio::test]
async fn an_arrival_behind_its_withdrawal_takes_nothing() {
    let scene = Scene::open("barrier-lost-late").await;
    let ours = scene.client.cyclic_barrier(&scene.world.name, 2);
    let arrives = || calls("barrier_arrive");
    scene.proxy.swallow_request(arrives(), 1);
    let dropped = wait(&ours);
    eventually(DEADLINE, async || scene.proxy.count(arrives()) == 1).await;
    dropped.abort();
    assert!(dropped.await.unwrap_err().is_cancelled());
    eventually(DEADLINE, async || scene.client.stats().releases == 0).await;
    let frames = scene.proxy.frames();
    let lost = frames
        .iter()
        .find(|frame| arrives().matches(frame))
        .unwrap();
    let mut late = redis::cmd(&lost.command());
    lost.args[1..].iter().for_each(|arg| _ = late.arg(&**arg));
    assert_eq!(scene.world.query::<u32>(&late).await, 0);
    assert_kind(
        barrier(&scene.world).wait_with(Duration::ZERO).await,
        ErrorKind::TimedOut,
    );
    assert_clean(&scene.world).await;
}

#[tokio::test]
async fn a_reset_ends_one_generation() {
    let scene = Scene::open("barrier-lost-reset").await;
    let other = barrier(&scene.world);
    let ours = scene.client.cyclic_barrier(&scene.world.name, 2);
    ours.reset().await.unwrap();
    scene.proxy.cut_after_request(calls("barrier_reset"));
    let gate = scene.proxy.hold_request("INFO");
    let first = wait(&other);
    arrived(&scene.world, 1).await;
    let reset = tokio::spawn({
        let ours = ours.clone();
        async move { ours.reset().await }
    });
    within(DEADLINE, gate.reached()).await;
    assert_kind(ended(first).await, ErrorKind::BarrierReset);
    let second = wait(&other);
    arrived(&scene.world, 1).await;
    gate.open();
    assert!(ended(reset).await.unwrap());
    assert!(!second.is_finished());
    barrier(&scene.world).wait().await.unwrap();
    ended(second).await.unwrap();
    assert_clean(&scene.world).await;
}

/// All arrived while its wait ran out: it is told so.
#[tokio::test]
async fn a_wait_that_runs_out_behind_the_end_has_passed() {
    let scene = Scene::open("barrier-lost-time").await;
    let ours = scene.client.cyclic_barrier(&scene.world.name, 2);
    let first = tokio::spawn({
        let ours = ours.clone();
        async move { ours.wait_with(WAIT).await }
    });
    arrived(&scene.world, 1).await;
    let channel = format!("redlock_barrier:{{{}}}", scene.world.name);
    scene.world.subscribed_to(&channel, 1).await;
    eventually(DEADLINE, async || {
        scene.proxy.count(calls("barrier_look")) == 2
    })
    .await;
    // The announcement does not arrive.
    scene.proxy.swallow_message("message", 1);
    barrier(&scene.world).wait().await.unwrap();
    assert_eq!(ended(first).await.unwrap().generation, 1);
    assert_clean(&scene.world).await;
}

/// Its call to leave did not arrive, and all arrived before the repeat: it is told so.
#[tokio::test]
async fn a_time_out_whose_leave_was_lost_has_passed_with_the_others() {
    let scene = Scene::open("barrier-lost-leave").await;
    let ours = scene.client.cyclic_barrier(&scene.world.name, 2);
    scene.proxy.swallow_request(calls("barrier_leave"), 1);
    let first = tokio::spawn(async move { ours.wait_with(WAIT).await });
    arrived(&scene.world, 1).await;
    let gate = scene.proxy.hold_request(calls("barrier_leave"));
    within(DEADLINE, gate.reached()).await;
    barrier(&scene.world).wait().await.unwrap();
    gate.open();
    assert_eq!(ended(first).await.unwrap().generation, 1);
    assert_clean(&scene.world).await;
}

/// The call to look took another response time-out behind a slow one to leave.
#[tokio::test]
async fn a_wait_that_ran_out_took_two_response_time_outs_more() {
    let scene = Scene::open("barrier-slow-leave").await;
    let ours = scene.client.cyclic_barrier(&scene.world.name, 2);
    // Sent again after half a response time-out.
    scene.proxy.swallow_request(calls("barrier_leave"), 1);
    let gate = scene.proxy.hold_reply(calls("barrier_leave"));
    let begun = Instant::now();
    let first = tokio::spawn(async move { ours.wait_with(WAIT).await });
    within(DEADLINE, gate.reached()).await;
    let all = usize::MAX;
    scene.proxy.swallow_request(calls("barrier_look"), all);
    gate.open();
    assert_kind(ended(first).await, ErrorKind::TimedOut);
    let took = begun.elapsed();
    assert!(took < WAIT + RESPONSE * 7 / 5, "{took:?}");
    scene.proxy.clear();
    assert_clean(&scene.world).await;
}

#[tokio::test]
async fn a_party_leaves_once() {
    let scene = Scene::open("barrier-leaves-once").await;
    let name = &scene.world.name;
    let parties = format!("redlock_double_barrier_parties:{{{name}}}");
    let (ours, theirs) = (
        scene.client.double_barrier(name, 2),
        scene.world.client().double_barrier(name, 2),
    );
    for loss in Loss::ALL {
        for is_last in [false, true] {
            let (guard, other) = tokio::try_join!(ours.enter(), theirs.enter()).unwrap();
            scene.proxy.lose(loss, calls("barrier_leave"), 1);
            let (first, last) = if is_last {
                (other, guard)
            } else {
                (guard, other)
            };
            let first = tokio::spawn(first.leave());
            arrived_in(&scene.world, &parties, 1).await;
            assert!(!first.is_finished());
            within(DEADLINE, last.leave()).await.unwrap();
            ended(first).await.unwrap();
        }
    }
    assert_clean(&scene.world).await;
}

/// The announcement does not arrive, and nobody looks before the renewal.
#[tokio::test]
async fn an_end_that_a_renewal_hears_of_first_is_no_loss() {
    let scene = Scene::open("barrier-renewal-first").await;
    let url = scene.proxy.url();
    let never = Duration::from_secs(600);
    let settings = |_| Client::builder().url(&url).poll_interval(never);
    let client = scene.world.client_with(settings);
    let mut events = client.events();
    let ours = client.cyclic_barrier(&scene.world.name, 2).lease(3 * WAIT);
    let first = wait(&ours);
    arrived(&scene.world, 1).await;
    crate::world::settles(&scene.world, &client, 1).await;
    eventually(DEADLINE, async || {
        scene.proxy.count(calls("barrier_look")) == 2
    })
    .await;
    scene.proxy.swallow_message("message", 1);
    barrier(&scene.world).wait().await.unwrap();
    assert_eq!(ended(first).await.unwrap().generation, 1);
    assert_eq!(scene.proxy.count(calls("renew")), 1);
    for expected in [LockEvent::Acquired, LockEvent::Released] {
        match within(DEADLINE, events.next()).await.unwrap() {
            Event::Lock { what, .. } => assert_eq!(what, expected),
            event => panic!("{event:?}"),
        }
    }
    assert_clean(&scene.world).await;
}
