//! A user of a cluster with the rights of its rule: they are enough for every primitive, and each of those for
//! clusters is needed.

use std::time::Duration;

use redlock_rt::{AclKind, Client, Error, LockOptions};
use tests::{Cluster, eventually, is_renewed, slot_of, unique, within};
use tokio::task::block_in_place;

use crate::{DEADLINE, LEASE, commands, fair, fenced, latch, leased, plain, read_write, rights};

/// What the rule adds for a cluster, with other words for Redis 6.2.
async fn added(cluster: &Cluster) -> Vec<String> {
    let known = cluster.try_command::<Vec<String>>(0, &["PUBSUB", "SHARDCHANNELS"]);
    let mut words = match known.await.is_ok() {
        true => {
            let client = Client::builder().url("redis+cluster://localhost:1").build();
            commands(&client.unwrap(), &[])
        }
        false => vec!["+cluster".to_owned(), "+asking".to_owned()],
    };
    let others = rights(&[]);
    words.retain(|word| !others.contains(word));
    words
}

/// A client of a new user with these rights at all nodes, and on the keys and channels of the library.
async fn entitled(cluster: &Cluster, rights: &[String]) -> (String, Client) {
    let user = unique("user").replace(':', "-");
    let mut words = vec!["ACL", "SETUSER", &user, "on", ">pw", "~*"];
    words.extend(["&redisson_*", "&redlock_wake:*"]);
    words.extend(rights.iter().map(String::as_str));
    for at in cluster.all() {
        cluster.command::<()>(at, &words).await;
    }
    let url = cluster.url().replace("://", &format!("://{user}:pw@"));
    let client = Client::builder().url(&url);
    let client = client.linger(Duration::from_millis(20)).build();
    (user, client.unwrap())
}

/// What this user was refused so far, at any node.
async fn refused(cluster: &Cluster, user: &str) -> Vec<String> {
    let mut refused = Vec::new();
    for at in cluster.all() {
        let log = cluster.command(at, &["ACL", "LOG", "1000"]).await;
        refused.extend(crate::refused(log, user));
    }
    refused
}

/// A waiter that another task of the client wakes, and a renewal.
async fn locks(client: &Client, other: &Client, name: &str) -> Result<(), Error> {
    let lock = client.rlock(name);
    let often = LockOptions::new().renew(LEASE / 3);
    let guard = lock.lock_with(often).await?;
    guard.reenter().await?.unlock().await?;
    let waiter = tokio::spawn({
        let lock = other.rlock(name);
        async move { lock.lock().await }
    });
    eventually(DEADLINE, async || other.stats().subscriptions == 1).await;
    is_renewed(LEASE, || guard.state()).await;
    guard.unlock().await?;
    within(DEADLINE, waiter).await.unwrap()?.unlock().await?;
    client.spin_lock(name).lock().await?.unlock().await?;

    fenced(client, name).await?;
    read_write(client, name).await
}

/// A lock in a slot that is moving, whose key is not at the first master any more.
async fn moved(cluster: &Cluster, client: &Client, name: &str) -> Result<(), Error> {
    let from = cluster.master_of(name).await;
    let migration = cluster.migrate(slot_of(name), 1 - from).await;
    let guard = client.rlock(name).lock().await?;
    guard.unlock().await?;
    migration.finish().await;
    client.rlock(name).lock().await?.unlock().await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_rule_for_a_cluster_is_enough_and_needed() {
    let cluster = block_in_place(|| Cluster::options().masters(2).replicas(0).start());
    // Without RESTORE the client asks once, and goes on with scripts.
    let mut base = rights(&[
        AclKind::FairLock,
        AclKind::ReadWriteLock,
        AclKind::FencedLock,
        AclKind::CountDownLatch,
        AclKind::Semaphore,
        AclKind::PermitExpirableSemaphore,
        AclKind::PlainCommands,
    ]);
    let connection: Vec<String> = cluster.command(0, &["ACL", "CAT", "connection"]).await;
    if connection.iter().any(|command| command == "client|setinfo") {
        base.push("+client|setinfo".to_owned());
    }
    let added = added(&cluster).await;
    let all = [&base[..], &added].concat();
    let (user, client) = entitled(&cluster, &all).await;
    let (_, other) = entitled(&cluster, &all).await;
    for at in 0..2 {
        let name = async |what: &str| cluster.name_at(at, &format!("rights:{what}")).await;
        locks(&client, &other, &name("lock").await).await.unwrap();
        fair(&client, &name("fair").await).await.unwrap();
        plain(&client, &name("plain").await).await.unwrap();
        leased(&client, &name("leased").await).await.unwrap();
        latch(&client, &name("latch").await).await.unwrap();
    }
    let names: Vec<String> = (0..8)
        .map(|number| format!("rights:multi:{number}"))
        .collect();
    let guard = client.multi_lock(&names).lock().await.unwrap();
    guard.unlock().await.unwrap();
    moved(&cluster, &client, "rights:moved").await.unwrap();
    assert_eq!(refused(&cluster, &user).await, Vec::<String>::new());

    for less in &added {
        let fewer: Vec<String> = all.iter().filter(|right| *right != less).cloned().collect();
        let (user, client) = entitled(&cluster, &fewer).await;
        let name = format!("rights:less:{less}");
        let tried = async {
            let tried = async {
                locks(&client, &client, &name).await?;
                moved(&cluster, &client, &name).await
            };
            // It may succeed in another way, or take long.
            let _: Result<(), Error> = tried.await;
            std::future::pending().await
        };
        let word = less.trim_start_matches('+');
        let noticed = eventually(DEADLINE, async || {
            let refused = refused(&cluster, &user).await;
            match refused.iter().any(|right| right == word) {
                true => Ok(()),
                false => Err(format!("without {less} only {refused:?} are refused")),
            }
        });
        tokio::select! {
            () = noticed => {}
            () = tried => {}
        }
    }
}
