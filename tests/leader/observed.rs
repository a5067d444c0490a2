//! Those who only want to know who leads.

use futures::StreamExt;
use redlock_rt::{ErrorKind, Shutdown};
use tests::{DEADLINE, eventually, within};

use crate::{campaigns, election, end, world};

#[tokio::test]
async fn an_observer_sees_each_leader_once_and_in_order() {
    let world = world("observed").await;
    let [one, other] = [
        election(&world, |builder| builder),
        election(&world, |builder| builder),
    ];
    // No poll.
    let client = world.client();
    let mut leaders = client.leader_election(&world.name).observe();
    let mut late = client.leader_election(&world.name).observe();
    let (tell, mut told) = tokio::sync::mpsc::unbounded_channel();
    // It waits for the next leader while the one before leads.
    let observing = tokio::spawn(async move {
        while let Some(leader) = leaders.next().await {
            tell.send(leader).unwrap();
        }
    });
    let mut before = 0;
    for round in 0..6 {
        let election = [&one, &other][round % 2];
        let leadership = within(DEADLINE, election.campaign()).await.unwrap();
        let seen = within(DEADLINE, told.recv()).await.unwrap().unwrap();
        assert_eq!(seen.term, leadership.term(), "round {round}");
        assert!(seen.term > before);
        before = seen.term;
        leadership.resign().await.unwrap();
    }
    // A hold that is deposed is announced.
    let leadership = within(DEADLINE, one.campaign()).await.unwrap();
    let seen = within(DEADLINE, told.recv()).await.unwrap().unwrap();
    assert_eq!(seen.term, leadership.term());
    let thief = world.client().fenced_lock(&world.name);
    let guard = thief.steal("observed").await.unwrap();
    let seen = within(DEADLINE, told.recv()).await.unwrap().unwrap();
    assert_eq!((seen.term, &seen.hold), (guard.token(), guard.hold_id()));
    drop((leadership, guard));
    client.shutdown(Shutdown::ReleaseAll).await.unwrap();
    let error = within(DEADLINE, late.next()).await.unwrap().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ShutDown);
    assert!(late.next().await.is_none());
    observing.abort();
    end(world).await;
}

#[tokio::test]
async fn an_observer_that_is_dropped_leaves_its_channel() {
    let world = world("dropped").await;
    let client = world.client();
    let mut leaders = client.leader_election(&world.name).observe();
    let leadership = campaigns(&client.leader_election(&world.name));
    let leadership = within(DEADLINE, leadership).await.unwrap();
    within(DEADLINE, leaders.next()).await.unwrap().unwrap();
    assert_eq!(client.stats().subscriptions, 1);
    drop(leaders);
    eventually(DEADLINE, async || client.stats().subscriptions == 0).await;
    leadership.resign().await.unwrap();
    end(world).await;
}
