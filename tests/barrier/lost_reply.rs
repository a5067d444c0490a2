//! Requests and replies that are lost: an arrival counts once, and what came too late takes nothing.

use std::time::Duration;

use redlock_rt::{Client, ErrorKind};
use tests::{Loss, Proxy, World, calls, eventually, shared_server, within};

use crate::world::{DEADLINE, WAIT, arrived, assert_clean, assert_kind, barrier, ended, wait};

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

/// The call was given up before it arrives.
#[tokio::test]
async fn an_arrival_behind_its_withdrawal_takes_nothing() {
    let scene = Scene::open("barrier-lost-late").await;
    let ours = scene.client.cyclic_barrier(&scene.world.name, 2);
    scene
        .client
        .rlock(&scene.world.name)
        .is_locked()
        .await
        .unwrap();
    let gate = scene.proxy.hold_request(calls("barrier_arrive"));
    let dropped = wait(&ours);
    within(DEADLINE, gate.reached()).await;
    dropped.abort();
    gate.open();
    eventually(DEADLINE, async || scene.client.stats().releases == 0).await;
    arrived(&scene.world, 0).await;
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
