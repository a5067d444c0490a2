//! Elections of a leader: its terms, who observes them, and who resigns.

mod late;
mod observed;
mod processes;
mod resigned;

use std::{
    sync::Arc,
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use futures::StreamExt;
use redlock_rt::{
    Client, ClientBuilder, ErrorKind, LeaderElection, Leadership, LostReason, Shutdown,
    embedded::Engine,
};
use tests::{DEADLINE, World, eventually, shared_server, within};

/// Is renewed, and so looked at, a third of it later.
const LEASE: Duration = Duration::from_secs(3);

/// No renewal is due before the end of the test.
const LONG: Duration = Duration::from_secs(600);

async fn world(what: &str) -> World {
    World::on(&shared_server(), what).await
}

fn election(world: &World, options: impl FnOnce(ClientBuilder) -> ClientBuilder) -> LeaderElection {
    let client = world.client_with(|builder| options(builder.lease(LEASE)));
    client.leader_election(&world.name)
}

/// The term that this election has now, and who has it.
async fn present(election: &LeaderElection) -> Option<(u64, String)> {
    let leader = election.leader().await.unwrap()?;
    Some((leader.term, leader.hold.client().to_owned()))
}

async fn end(world: World) {
    world.forget_thefts().await;
    world.assert_clean().await;
}

/// A task of its own campaigns, as `run` needs no local task.
fn campaigns(election: &LeaderElection) -> tokio::task::JoinHandle<Leadership> {
    let election = election.clone();
    tokio::spawn(async move { election.campaign().await.unwrap() })
}

#[tokio::test]
async fn each_leader_has_a_greater_term_and_is_known() {
    let world = world("terms").await;
    let [one, other] = [world.client(), world.client()];
    let elections = [&one, &other].map(|client| client.leader_election(&world.name));
    assert_eq!(present(&elections[0]).await, None);
    let mut before = 0;
    for round in 0..6 {
        let (client, election) = ([&one, &other][round % 2], &elections[round % 2]);
        let leadership = within(DEADLINE, election.campaign()).await.unwrap();
        assert!(leadership.term() > before && leadership.is_leader());
        before = leadership.term();
        for election in &elections {
            let expected = Some((before, client.uuid().to_owned()));
            assert_eq!(present(election).await, expected);
        }
        leadership.resign().await.unwrap();
        assert_eq!(present(election).await, None);
    }
    end(world).await;
}

#[tokio::test]
async fn a_leader_says_who_it_is() {
    let world = world("identity").await;
    let election = election(&world, |builder| builder.identity("pod-7").lease(LONG));
    let leadership = election.campaign().await.unwrap();
    // Long before its first renewal: the call is behind the one that won.
    eventually(DEADLINE, async || {
        let leader = election.leader().await.unwrap().unwrap();
        leader
            .identity
            .is_some_and(|identity| identity.name == "pod-7")
    })
    .await;
    assert!(leadership.is_leader());
    leadership.resign().await.unwrap();
    end(world).await;
}

#[tokio::test]
async fn a_leader_that_is_deposed_is_told_why() {
    let world = world("deposed").await;
    let election = election(&world, |builder| builder);
    let leadership = election.campaign().await.unwrap();
    let thief = world.client().fenced_lock(&world.name);
    let guard = thief.steal("too slow").await.unwrap();
    let reason = within(DEADLINE, leadership.lost()).await;
    assert!(matches!(reason, LostReason::Stolen(theft) if theft.why == "too slow"));
    assert!(!leadership.is_leader() && leadership.term() < guard.token());
    drop((leadership, guard));
    end(world).await;
}

/// Its future is one that may be spawned.
#[tokio::test]
async fn a_body_leads_in_one_term_after_the_other() {
    let world = world("run").await;
    let client = world.client_with(|builder| builder.lease(LEASE));
    let election = client.leader_election(&world.name);
    let (tell, mut told) = tokio::sync::mpsc::unbounded_channel();
    let running = tokio::spawn({
        let election = election.clone();
        async move {
            // Each term has a clone of the body.
            let first = Arc::new(AtomicBool::new(true));
            let ended = election.run(async move |leadership| {
                tell.send(leadership.term()).unwrap();
                // The first body returns, and the second is dropped.
                if !first.swap(false, Ordering::Relaxed) {
                    std::future::pending::<()>().await;
                }
            });
            ended.await.unwrap_err().kind()
        }
    });
    let first = within(DEADLINE, told.recv()).await.unwrap();
    let second = within(DEADLINE, told.recv()).await.unwrap();
    assert!(second > first);
    let lock = client.fenced_lock(&world.name);
    assert!(lock.force_unlock().await.unwrap());
    assert!(within(DEADLINE, told.recv()).await.unwrap() > second);
    client.shutdown(Shutdown::ReleaseAll).await.unwrap();
    let ended = within(DEADLINE, running).await.unwrap();
    assert_eq!(ended, ErrorKind::ShutDown);
    end(world).await;
}

/// There is no room for the key of its identity.
#[tokio::test]
async fn a_leader_under_a_long_namespace_was_an_error() {
    let redis = Engine::new();
    let builder = Client::builder().embedded(&redis).identity("pod-7");
    let client = builder.namespace("n".repeat(480)).build().unwrap();
    let election = client.leader_election("x");
    let leadership = election.campaign().await.unwrap();
    let leader = election.leader().await.unwrap().unwrap();
    assert_eq!((leader.term, leader.identity), (leadership.term(), None));
    let seen = election.observe().next().await.unwrap().unwrap();
    assert_eq!(seen.term, leadership.term());
    assert_eq!(client.identity_of(&leader.hold).await.unwrap(), None);
    leadership.resign().await.unwrap();
}

#[tokio::test]
async fn a_name_or_a_lease_that_cannot_be_one_is_refused() {
    let client = Client::embedded();
    let bad = client.leader_election("");
    let too_short = client.leader_election("n").lease(Duration::ZERO);
    for outcome in [
        bad.campaign().await.map(drop),
        bad.leader().await.map(drop),
        bad.run(async |_| ()).await.map(drop),
        bad.observe().next().await.unwrap().map(drop),
        too_short.campaign().await.map(drop),
    ] {
        assert_eq!(outcome.unwrap_err().kind(), ErrorKind::BadInput);
    }
}
