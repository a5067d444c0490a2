//! A user of a cluster with the rights that docs/topologies.md lists: they are enough for every
//! primitive, and each of them is needed.

use std::time::Duration;

use redlock_rt::{Client, Error, LockOptions};
use tests::{Cluster, eventually, slot_of, unique, within};
use tokio::task::block_in_place;

use crate::{
    DEADLINE, EVERYBODY, FAIR, LATCH, LEASED, PLAIN, READ_WRITE, SCRIPTS, TOKENS, assert_listed,
    fair, latch, leased, plain, rights,
};

const PAGE: &str = include_str!("../../docs/topologies.md");
/// Renewed several times.
const LEASE: Duration = Duration::from_millis(900);

/// The second column of a row of the table in the section Rights.
fn row(of: &str) -> String {
    let (_, section) = PAGE.split_once("## Rights").unwrap();
    let row = section.lines().find(|line| line.starts_with(of));
    let row = row.unwrap().replace("\\|", "!");
    row.split('|').nth(2).unwrap().replace('!', "|")
}

/// What the page adds for a cluster, with other words for Redis 6.2.
async fn added(cluster: &Cluster) -> Vec<String> {
    let row = row("| Redis Cluster |");
    let (before, rest) = row.split_once("(Redis 6.2: ").unwrap();
    let (old, after) = rest.split_once(')').unwrap();
    let known = cluster.try_command::<Vec<String>>(0, &["PUBSUB", "SHARDCHANNELS"]);
    match known.await.is_ok() {
        true => rights(&(before.to_owned() + after)),
        false => rights(old),
    }
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
    let client = Client::builder().url(&url).lease(LEASE);
    let client = client.linger(Duration::from_millis(20)).build();
    (user, client.unwrap())
}

/// What this user was refused so far, at any node.
async fn refused(cluster: &Cluster, user: &str) -> Vec<String> {
    let mut refused = Vec::new();
    for at in cluster.all() {
        let log: Vec<redis::Value> = cluster.command(at, &["ACL", "LOG", "1000"]).await;
        for entry in log {
            let words: Vec<(String, redis::Value)> = redis::from_redis_value(entry).unwrap();
            let word = |name: &str| {
                let found = words.iter().find(|(key, _)| key == name).unwrap();
                redis::from_redis_value::<String>(found.1.clone()).unwrap()
            };
            if word("username") == user {
                refused.push(word("object"));
            }
        }
    }
    refused
}

/// A waiter that another task of the client wakes, and a renewal.
async fn locks(client: &Client, other: &Client, name: &str) -> Result<(), Error> {
    let lock = client.rlock(name);
    let guard = lock.lock().await?;
    guard.reenter().await?.unlock().await?;
    let waiter = tokio::spawn({
        let lock = other.rlock(name);
        async move { lock.lock().await }
    });
    eventually(DEADLINE, async || other.stats().subscriptions == 1).await;
    tokio::time::sleep(LEASE + LEASE / 2).await;
    assert!(guard.is_valid());
    guard.unlock().await?;
    within(DEADLINE, waiter).await.unwrap()?.unlock().await?;
    client.spin_lock(name).lock().await?.unlock().await?;

    let fenced = client.fenced_lock(name).lock().await?;
    let value = client.fenced_value(format!("{{{name}}}:value"));
    value.set("a", fenced.token()).await?;
    fenced.unlock().await?;

    let rw = client.read_write_lock(name).prefer_writers(true);
    let read = rw.read().await?;
    let write = rw.write_with(LockOptions::new().wait(LEASE / 9)).await;
    assert!(write.is_err_and(|error| error.is_timed_out()));
    let write = read
        .try_upgrade()
        .await
        .map_err(|refused| refused.into_error())?;
    write.downgrade().await.unwrap().unlock().await?;
    rw.write().await?.unlock().await?;
    Ok(())
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
async fn what_the_page_lists_is_enough_and_needed() {
    assert_listed();
    let cluster = block_in_place(|| Cluster::options().masters(2).replicas(0).start());
    let base = [
        EVERYBODY, SCRIPTS, FAIR, READ_WRITE, TOKENS, LATCH, PLAIN, LEASED,
    ];
    let mut base = rights(&base.concat());
    let connection: Vec<String> = cluster.command(0, &["ACL", "CAT", "connection"]).await;
    base.push("+client|setname".to_owned());
    if connection.iter().any(|command| command == "client|setinfo") {
        base.push("+client|setinfo".to_owned());
    }
    // Without this right the client asks once, and goes on with scripts.
    base.push("+restore".to_owned());
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
