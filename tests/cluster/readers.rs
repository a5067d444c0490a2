//! Locks with several keys in a slot that moves key by key, as MIGRATE carries them: the name is at the new
//! master already, and what belongs to it is not.

use std::time::Duration;

use redlock_rt::{Client, Error, LockOptions, PermitOptions, Renew};
use tests::{Cluster, eventually, slot_of, within};
use tokio::task::block_in_place;

use crate::{DEADLINE, assert_clean, builder};

const LEASE: Duration = Duration::from_secs(20);

fn start() -> Cluster {
    block_in_place(|| Cluster::options().masters(2).replicas(0).start())
}

fn client(cluster: &Cluster) -> Client {
    let builder = builder(cluster)
        .lease(LEASE)
        .poll_interval(Duration::from_millis(300))
        .response_timeout(Duration::from_secs(2));
    builder.build().unwrap()
}

/// What a caller is told of a release that Redis could not answer yet.
fn goes_on(error: &Error) -> bool {
    error.is_unavailable() || error.is_outcome_unknown()
}

/// Once, the release of a reader found no lease of the other one at the new master, and freed the lock.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_writer_got_the_lock_beside_a_reader_while_its_slot_moved() {
    let cluster = start();
    let [one, other, third] = [(); 3].map(|()| client(&cluster));
    let name = cluster.name_at(0, "readers").await;
    let reading = one.read_write_lock(&name).read().await.unwrap();
    let leaving = other.read_write_lock(&name).read().await.unwrap();
    let migration = cluster.migrate(slot_of(&name), 1).await;
    migration.carry(&[&name]).await;
    // It cannot be answered before the slot has moved, and goes on in the background.
    let refused = within(DEADLINE, leaving.unlock()).await.unwrap_err();
    assert!(goes_on(&refused), "{refused}");
    assert_eq!(other.stats().releases, 1);
    // Thousands, without a pause between two tries.
    let errors: String = cluster.command(0, &["INFO", "errorstats"]).await;
    let asks = |line: &str| Some(line.strip_prefix("errorstat_ASK:count=")?.parse::<u32>());
    let asked = errors.lines().find_map(asks).map_or(0, Result::unwrap);
    assert!(asked < 200, "{errors}");
    migration.carry_all().await;
    migration.finish().await;
    eventually(DEADLINE, async || other.stats().releases == 0).await;
    let lock = third.read_write_lock(&name);
    assert!(lock.try_write().await.unwrap().is_none());
    assert!(reading.is_valid());
    reading.unlock().await.unwrap();
    let wait = LockOptions::new().wait(DEADLINE);
    let writing = lock.write_with(wait).await.unwrap();
    writing.unlock().await.unwrap();
    assert_clean(&cluster, &name, &[&one, &other, &third]).await;
}

/// Once, their renewals found no lease at the new master, and the guards were lost.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn renewed_readers_and_permits_were_lost_while_their_slots_moved() {
    let cluster = start();
    let client = client(&cluster);
    let lock = cluster.name_at(0, "reader").await;
    let permits = format!("{{{lock}}}:permits");
    let every = Duration::from_millis(300);
    let options = LockOptions::new().renew(Renew::Every(every));
    let reading = client.read_write_lock(&lock).read_with(options).await;
    let reading = reading.unwrap();
    let semaphore = client.permit_expirable_semaphore(&permits).limit(2);
    let options = PermitOptions::new().renew(Renew::Every(every));
    let permit = semaphore.acquire_with(options).await.unwrap();
    let migration = cluster.migrate(slot_of(&lock), 1).await;
    migration.carry(&[&lock, &permits]).await;
    tokio::time::sleep(every * 5).await;
    assert!(reading.is_valid() && permit.is_valid());
    migration.carry_all().await;
    migration.finish().await;
    // Until the next renewal at the new master.
    eventually(DEADLINE, async || {
        let at = cluster.command::<i64>(1, &["PTTL", &lock]).await;
        u128::try_from(at).unwrap() > (LEASE - every * 2).as_millis()
    })
    .await;
    assert!(reading.is_valid() && permit.is_valid());
    reading.unlock().await.unwrap();
    permit.release().await.unwrap();
    assert_eq!(semaphore.available_permits().await.unwrap(), 2);
}

/// Once, a look at a key that is nowhere ended the release of a reader, and the lock stayed for its lease.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_release_of_a_reader_was_given_up_while_its_slot_was_about_to_move() {
    let cluster = start();
    let [holder, other] = [(); 2].map(|()| client(&cluster));
    let name = cluster.name_at(0, "released").await;
    let reading = holder.read_write_lock(&name).read().await.unwrap();
    let migration = cluster.migrate(slot_of(&name), 1).await;
    let refused = within(DEADLINE, reading.unlock()).await.unwrap_err();
    assert!(goes_on(&refused), "{refused}");
    assert_eq!(holder.stats().releases, 1);
    migration.carry_all().await;
    migration.finish().await;
    eventually(DEADLINE, async || holder.stats().releases == 0).await;
    let writing = other.read_write_lock(&name).try_write().await.unwrap();
    writing.expect("it is free").unlock().await.unwrap();
    assert_clean(&cluster, &name, &[&holder, &other]).await;
}
