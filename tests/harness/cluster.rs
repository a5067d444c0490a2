//! A cluster: nodes that die and are replaced, slots that move.

use std::time::Duration;

use tests::{Cluster, eventually, shared_cluster, slot_of, unique};

use crate::DEADLINE;

#[test]
fn slots_are_those_of_redis() {
    let cluster = shared_cluster();
    let names = [
        "123456789",
        "a",
        "{a}b",
        "b{a}",
        "x{y",
        "{}a",
        "{a}{b}",
        "a{}{b}",
        "{{a}}",
        "ü{ö}",
        "}a{b}",
    ];
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        for name in names {
            let slot: u16 = cluster.command(0, &["CLUSTER", "KEYSLOT", name]).await;
            assert_eq!(slot_of(name), slot, "{name}");
        }
    });
}

#[tokio::test(flavor = "multi_thread")]
async fn the_masters_share_all_slots() {
    let cluster = shared_cluster();
    let prefix = unique("share");
    for at in cluster.all() {
        let name = cluster.name_at(at, &prefix).await;
        assert_eq!(cluster.master_of(&name).await, at);
        let set: String = cluster.of_key(&name, &["SET", &name, "1"]).await;
        assert_eq!(set, "OK");
        assert!(cluster.keys().await.contains(&name));
        let other = (at + 1) % cluster.count();
        let refused = cluster.try_command::<String>(other, &["GET", &name]).await;
        let refused = refused.unwrap_err().to_string();
        assert!(
            refused.contains("MOVED") || refused.contains("Moved"),
            "{refused}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slot_moves_in_steps() {
    let cluster = Cluster::options().masters(2).replicas(0).start();
    let name = cluster.name_at(0, "moving").await;
    let other = format!("{{{name}}}:other");
    for key in [&name, &other] {
        let _: String = cluster.command(0, &["SET", key, "1"]).await;
    }
    let migration = cluster.migrate(slot_of(&name), 1).await;
    assert_eq!(migration.from(), 0);
    migration.carry(&[&name]).await;
    assert_eq!(migration.left().await, [other.as_str()]);
    let both = cluster
        .try_command::<Vec<String>>(0, &["MGET", &name, &other])
        .await;
    assert_eq!(both.unwrap_err().code(), Some("TRYAGAIN"));
    migration.finish().await;
    assert_eq!(cluster.master_of(&name).await, 1);
    let both: Vec<String> = cluster.command(1, &["MGET", &name, &other]).await;
    assert_eq!(both, ["1", "1"]);
}

/// The next master overtook the news of the one before. Each named the other as the owner, for ever.
#[tokio::test(flavor = "multi_thread")]
async fn a_slot_has_moved_when_all_masters_have_heard_of_it() {
    let options = Cluster::options().replicas(0);
    let cluster = options
        .each(|server| server.args(["--enable-debug-command", "local"]))
        .start();
    let slot = slot_of(&cluster.name_at(0, "news").await);
    // The last one hears by the next PING, up to a second later, and not at once by a PONG.
    let deaf = ["DEBUG", "DROP-CLUSTER-PACKET-FILTER", "1"];
    let _: String = cluster.command(2, &deaf).await;
    cluster.migrate(slot, 1).await.finish().await;
    let claim = async |at: usize| {
        let table: String = cluster.command(at, &["CLUSTER", "NODES"]).await;
        let id: String = cluster.command(1, &["CLUSTER", "MYID"]).await;
        let line = table.lines().find(|line| line.starts_with(&id)).unwrap();
        let words: Vec<&str> = line.split(' ').collect();
        // The epoch and the slots.
        (words[6].to_owned(), words[8..].join(" "))
    };
    assert_eq!(claim(2).await, claim(1).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replica_takes_the_place_of_a_killed_master() {
    let cluster = Cluster::options().start();
    let name = cluster.name_at(1, "kept").await;
    let _: String = cluster.command(1, &["SET", &name, "1"]).await;
    let replicas = cluster.replicas_of(1).await;
    let [replica] = replicas.as_slice() else {
        panic!("it has one: {replicas:?}");
    };
    eventually(DEADLINE, async || {
        cluster.command::<usize>(*replica, &["DBSIZE"]).await == 1
    })
    .await;
    cluster.kill(1);
    cluster.is_promoted(*replica).await;
    cluster.is_well().await;
    assert_eq!(cluster.master_of(&name).await, *replica);
    let kept: String = cluster.of_key(&name, &["GET", &name]).await;
    assert_eq!(kept, "1");

    // As a replica of it.
    cluster.restart(1);
    eventually(Duration::from_secs(60), async || {
        cluster.replicas_of(*replica).await == [1]
    })
    .await;
    cluster.fail_over_to(1).await;
    assert_eq!(cluster.master_of(&name).await, 1);
}
