//! A slot that moves away and comes back, while a command is still on its way to its first master.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use redlock_rt::{ErrorKind, LockOptions};
use tests::{Cluster, Frame, Matcher, Which, calls, eventually, slot_of, within};
use tokio::task::block_in_place;

use crate::channels::wait_for;
use crate::{DEADLINE, NEVER, assert_clean, builder, subscribed};

/// It is renewed three times in this time, which tells the client where the slot is.
const LEASE: Duration = Duration::from_secs(6);
/// The time-out of a call. After half of it without a reply the client closes the connection.
const RESPONSE: Duration = Duration::from_millis(1200);

/// The master keeps other slots meanwhile.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_the_first_master_had_not_read_never_runs() {
    let options = Cluster::options().masters(2).replicas(0).behind_proxies();
    let cluster = block_in_place(|| options.start());
    let name = cluster.name_at(0, "returned").await;
    comes_back(&cluster, &name, 0, 1).await;
}

/// The master has no slots meanwhile, so that a client has nothing to do there. Below Redis 7.0 such
/// a master becomes a replica as soon as it hears from the new one, and cannot be told to stay one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_master_of_one_slot_had_not_read_never_runs() {
    let cluster = with_a_spare();
    let name = "returned:alone";
    cluster.migrate(slot_of(name), 1).await.finish().await;
    comes_back(&cluster, name, 1, 0).await;
}

/// Two nodes, of which the second has no slots.
fn with_a_spare() -> Cluster {
    let options = Cluster::options().masters(1).replicas(0).spares(1);
    // Otherwise it becomes a replica there too.
    let stay = ["--cluster-allow-replica-migration", "no"];
    let options = options.each(|server| server.args(stay)).behind_proxies();
    block_in_place(|| options.start())
}

/// The connection that was made too late took what the next one had subscribed to for its own, and for gone:
/// whoever waited from then on heard nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_master_whose_slots_left_and_returned_while_it_was_dialed_woke_nobody() {
    let cluster = with_a_spare();
    let names = ["{dialed}:first", "{dialed}:second"];
    let channels = names.map(|name| format!("redisson_lock__channel:{name}"));
    cluster.migrate(slot_of(names[0]), 1).await.finish().await;
    let proxies = cluster.proxies();
    let proxy = &proxies[1];
    let seed = format!("redis+cluster://{}", cluster.node(0).address());
    let builder = || builder(&cluster).url(&seed).poll_interval(NEVER);
    let holder = builder().connect().await.unwrap();
    let waiting = builder().connect_timeout(DEADLINE).connect().await.unwrap();
    let mut guards = Vec::new();
    for name in names {
        guards.push(holder.rlock(name).lock().await.unwrap());
        assert!(waiting.rlock(name).try_lock().await.unwrap().is_none());
    }
    // Of both, for commands and for renewals.
    eventually(DEADLINE, async || proxy.connections(Which::All).len() == 4).await;

    let late = Arc::new(OnceLock::new());
    let first = Arc::clone(&late);
    let greeting = Matcher::command("CLIENT").mentioning("SETNAME");
    let greeting =
        greeting.and(move |frame| *first.get_or_init(|| frame.connection) == frame.connection);
    let gate = proxy.hold_request(greeting);
    let one = wait_for(&waiting, names[0]);
    gate.reached().await;
    for to in [0, 1] {
        cluster.migrate(slot_of(names[0]), to).await.finish().await;
        // This tells it where the slot is.
        assert!(waiting.rlock(names[0]).is_locked().await.unwrap());
        subscribed(&cluster, to, &channels[0], 1).await;
    }
    gate.open();
    let late = Which::Connection(*late.get().unwrap());
    eventually(DEADLINE, async || proxy.connections(late).is_empty()).await;
    let other = wait_for(&waiting, names[1]);
    subscribed(&cluster, 1, &channels[1], 1).await;
    for guard in guards {
        guard.unlock().await.unwrap();
    }
    within(DEADLINE, one).await.unwrap();
    within(DEADLINE, other).await.unwrap();
    assert_clean(&cluster, "dialed", &[&holder, &waiting]).await;
}

async fn comes_back(cluster: &Cluster, name: &str, home: usize, away: usize) {
    let proxies = cluster.proxies();
    let proxy = &proxies[home];
    let options = builder(cluster).lease(LEASE).response_timeout(RESPONSE);
    let seed = format!("redis+cluster://{}", cluster.node(away).address());
    let client = options.url(&seed).connect().await.unwrap();
    let guard = client.rlock(name).lock().await.unwrap();
    let late = format!("{{{name}}}:late");

    // The acquisition is sent, and not read.
    let acquisition = calls("rlock_acquire").mentioning(&late);
    let gate = proxy.hold_request(acquisition.clone());
    let lock = client.rlock(&late);
    let wait = LockOptions::new().wait(RESPONSE / 4);
    let caller = tokio::spawn(async move { lock.lock_with(wait).await });
    gate.reached().await;
    let frames = proxy.frames();
    let held = frames.iter().rfind(|frame| frame.mentions(&late)).unwrap();
    let held = held.connection;
    // The client cannot connect there again, and has no other connection, so it cannot end that one.
    proxy.refuse();
    for other in proxy.connections(Which::All) {
        if other != held {
            proxy.cut(Which::Connection(other));
        }
    }
    let error = caller.await.unwrap().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");

    // What it may have taken is released at the other master.
    cluster.migrate(slot_of(name), away).await.finish().await;
    let released = eventually(DEADLINE, async || client.stats().releases == 0);
    within(DEADLINE, released).await;
    assert_eq!(proxy.connections(Which::Connection(held)), [held]);

    proxy.mark();
    proxy.accept();
    cluster.migrate(slot_of(name), home).await.finish().await;
    // The client hears of it by a renewal, on another connection.
    eventually(DEADLINE, async || {
        match proxy.connections(Which::Connection(held)).is_empty() {
            true => Ok(()),
            false => Err(format!("not ended: {:?}", proxy.frames())),
        }
    })
    .await;
    gate.open();
    assert!(guard.is_valid());
    let there: bool = cluster.of_key(&late, &["EXISTS", &late]).await;
    assert!(!there, "the acquisition has run");
    let taken = within(DEADLINE, client.rlock(&late).lock()).await.unwrap();
    taken.unlock().await.unwrap();
    let frames = proxy.frames();
    let first = |of: &dyn Fn(&Frame) -> bool| frames.iter().position(of);
    let killed = first(&|frame| frame.command() == "CLIENT" && frame.mentions("KILL"));
    let acquired = first(&|frame| frame.mentions(&late));
    assert!(killed.is_some() && killed < acquired, "{frames:?}");
    assert_eq!(proxy.count(Matcher::any().on(Which::Connection(held))), 0);
    guard.unlock().await.unwrap();
    assert_clean(cluster, "returned", &[&client]).await;
}
