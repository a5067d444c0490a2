//! Redis answers a candidate later than the lease is long, has no replica, or is away.

use std::time::Duration;

use redlock_rt::{LeaderElection, ReplicaAck, RetryPolicy};
use tests::{DEADLINE, Proxy, calls, shared_server, within};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use crate::{campaigns, end, world};

/// Shorter than a connection may be silent.
const BRIEF: Duration = Duration::from_millis(300);

/// A stall of Redis now and then, however seldom, was taken for a lease that is too short.
#[tokio::test]
async fn a_candidate_of_many_terms_gave_up_at_its_third_late_reply() {
    let mut world = world("stalls").await;
    let (client, name) = (world.client(), world.name.clone());
    // Another one each time: one that has resigned waits.
    let other = || client.leader_election(&name);
    let proxy = Proxy::to(&shared_server());
    world.clients_connect_to(proxy.url());
    let standby = world.client().leader_election(&world.name).lease(BRIEF);
    let mut leads = other().campaign().await.unwrap();
    let waiting = campaigns(&standby);
    let asks = || calls("fenced_acquire");
    // What it gives back was its own for too short a time.
    let gave_back = || {
        let name = world.name.clone();
        calls("rlock_release").and(move |frame| frame.mentions(&name))
    };
    let (mut asked, mut rounds) = (0, 0..100);
    // A late reply that is a refusal, since it was asked for before the leader resigned, does not count.
    while proxy.count(gave_back()) <= 3 {
        rounds.next().expect("it was never late");
        // It is refused, and waits.
        proxy.wait_for_count(asks(), asked + 1).await;
        let late = proxy.hold_reply(asks());
        leads.resign().await.unwrap();
        late.reached().await;
        // When the lease of the candidate is over, if it has one.
        leads = within(DEADLINE, other().campaign()).await.unwrap();
        asked = proxy.count(asks());
        late.open();
    }
    proxy.wait_for_count(asks(), asked + 1).await;
    leads.resign().await.unwrap();
    let won = within(DEADLINE, waiting).await.unwrap();
    won.resign().await.unwrap();
    end(world).await;
}

/// Runs for ever, and tells its terms.
fn runs(election: LeaderElection) -> (JoinHandle<()>, mpsc::UnboundedReceiver<u64>) {
    let (tell, told) = mpsc::unbounded_channel();
    let running = tokio::spawn(async move {
        let never = election.run(async |leadership| tell.send(leadership.term()).unwrap());
        panic!("{}", never.await.unwrap_err());
    });
    (running, told)
}

/// It wins a term, and is ended.
async fn wins(running: JoinHandle<()>, mut told: mpsc::UnboundedReceiver<u64>) {
    assert!(within(DEADLINE, told.recv()).await.is_some());
    running.abort();
    assert!(running.await.unwrap_err().is_cancelled());
}

#[tokio::test]
async fn a_run_ended_when_redis_was_slower_than_the_lease_three_times() {
    let mut world = world("slow").await;
    let proxy = Proxy::to(&shared_server());
    world.clients_connect_to(proxy.url());
    let election = world.client().leader_election(&world.name).lease(BRIEF);
    // The lease counts from the moment at which the call was sent.
    proxy.delay(calls("fenced_acquire"), BRIEF * 2);
    let (running, told) = runs(election);
    proxy.wait_for_count(calls("fenced_acquire"), 4).await;
    proxy.clear();
    wins(running, told).await;
    end(world).await;
}

/// After a failover the new master has no replica for a while.
#[tokio::test]
async fn a_run_ended_while_no_replica_had_its_lock() {
    let mut world = world("alone").await;
    let proxy = Proxy::to(&shared_server());
    world.clients_connect_to(proxy.url());
    let client = world.client_with(|builder| {
        let builder = builder.replica_ack(ReplicaAck::AtLeast(1));
        builder.replica_timeout(BRIEF / 3).poll_interval(BRIEF / 3)
    });
    let (running, told) = runs(client.leader_election(&world.name));
    proxy.wait_for_count(calls("fenced_acquire"), 3).await;
    assert!(!running.is_finished());
    proxy.answer("WAIT", ":1\r\n", 1000);
    wins(running, told).await;
    drop(client);
    end(world).await;
}

#[tokio::test]
async fn a_run_ended_with_the_attempts_of_an_outage() {
    let mut world = world("outage").await;
    let proxy = Proxy::to(&shared_server());
    world.clients_connect_to(proxy.url());
    let client = world.client_with(|builder| {
        let builder = builder.retry(RetryPolicy::new().attempts(1));
        builder.poll_interval(BRIEF / 3)
    });
    client.leader_election(&world.name).leader().await.unwrap();
    proxy.refuse();
    proxy.cut_all();
    let election = client.leader_election(&world.name);
    let campaign = within(DEADLINE, election.campaign()).await;
    assert!(campaign.unwrap_err().is_unavailable());
    let (running, told) = runs(election);
    // Many campaigns fail meanwhile.
    tokio::time::sleep(3 * BRIEF).await;
    assert!(!running.is_finished());
    proxy.accept();
    wins(running, told).await;
    drop(client);
    end(world).await;
}
