//! The faults that give another server the place of a master, or of a replica.

use std::time::Duration;

use tests::{Cluster, Replicated, Sentinels};
use tokio::time::{sleep, timeout};

use super::{
    event::now,
    faults::{Fault, ask},
    topology::{Servers, Topology, seeds},
    worker::lease,
};

/// For what depends on several servers to be well again.
const RECOVERY: Duration = Duration::from_secs(30);

/// Returns since when all clients should be at the new master.
pub(crate) async fn fail_over(fault: Fault, topology: &mut Topology) -> u64 {
    let lease = lease(&topology.spec);
    let awake = match &mut topology.servers {
        Servers::Watched(replicated, sentinels) => {
            watched(fault, replicated, sentinels, lease).await
        }
        Servers::Cluster(cluster) => {
            in_cluster(fault, cluster).await;
            topology.spec = seeds(cluster);
            None
        }
        _ => None,
    };
    awake.unwrap_or_else(now)
}

async fn watched(
    fault: Fault,
    replicated: &mut Replicated,
    sentinels: &Sentinels,
    lease: Duration,
) -> Option<u64> {
    if fault == Fault::FreshReplica {
        // Of a failover before, sentinels forget the master that they have not made a replica yet.
        until(async || is_followed(replicated, sentinels).await.unwrap_or(false)).await;
    }
    let before = master(replicated, sentinels).await?;
    if fault == Fault::FreshReplica {
        replicated.replace((before + 1) % 3, before).await;
        sentinels.look_again(2).await;
    }
    let replicated = &*replicated;
    let is_moved = async || {
        let master = master(replicated, sentinels).await;
        master.is_some_and(|now| now != before)
    };
    let old = replicated.server(before);
    let mut awake = None;
    match fault {
        Fault::FreshReplica => {}
        Fault::FailoverAwake => {
            old.pause();
            until(is_moved).await;
            sleep(lease).await;
            // It is a master for some seconds yet.
            old.resume();
            awake = Some(now());
        }
        Fault::FailoverAsked => {
            let _ = sentinels.ask::<redis::Value>(0, "FAILOVER").await;
            until(is_moved).await;
        }
        _ => {
            let behind = (0..3).filter(|at| *at != before && fault == Fault::FailoverBehind);
            let behind: Vec<_> = behind.map(|at| replicated.server(at)).collect();
            if !behind.is_empty() {
                behind.iter().for_each(|replica| replica.pause());
                // What is written from now on is nowhere else.
                ask(old, &["CONFIG", "SET", "min-replicas-to-write", "0"]).await;
                ask(old, &["CLIENT", "KILL", "TYPE", "replica"]).await;
                // Less than a renewal interval.
                sleep(lease.mul_f64(0.3)).await;
            }
            old.kill();
            behind.iter().for_each(|replica| replica.resume());
            if !behind.is_empty() {
                // At once, so that the lost locks are not over.
                let _ = sentinels.ask::<redis::Value>(0, "FAILOVER").await;
            }
            until(is_moved).await;
            old.restart();
        }
    }
    // Until then, another failover has nowhere to go.
    until(async || is_followed(replicated, sentinels).await.unwrap_or(false)).await;
    awake
}

/// Whether both replicas are with the master.
async fn is_followed(replicated: &Replicated, sentinels: &Sentinels) -> Option<bool> {
    let master = replicated.server(master(replicated, sentinels).await?);
    let mut connection = master.connect().await.ok()?;
    let mut info = redis::cmd("INFO");
    let info = info
        .arg("replication")
        .query_async::<String>(&mut connection);
    Some(info.await.ok()?.matches("state=online").count() == 2)
}

async fn in_cluster(fault: Fault, cluster: &mut Cluster) {
    let masters = masters(cluster).await;
    let master = masters[fastrand::usize(..masters.len())];
    let Some(replica) = cluster.replicas_of(master).await.first().copied() else {
        return;
    };
    if fault == Fault::FailoverFresh {
        cluster.replace(replica).await;
    }
    let cluster = &*cluster;
    let is_promoted = async || is_master(cluster, replica).await;
    match fault {
        Fault::FailoverAsked | Fault::FailoverFresh => {
            let words = ["CLUSTER", "FAILOVER"];
            let _ = cluster.try_command::<redis::Value>(replica, &words).await;
            until(is_promoted).await;
        }
        _ => {
            cluster.kill(master);
            until(is_promoted).await;
            cluster.restart(master);
        }
    }
    until(async || {
        let mut well = true;
        for at in cluster.all() {
            let info = cluster.try_command::<String>(at, &["CLUSTER", "INFO"]);
            let is_ok = info
                .await
                .is_ok_and(|info| info.contains("cluster_state:ok"));
            let link = cluster.try_command::<String>(at, &["INFO", "replication"]);
            let link = link.await;
            well &= is_ok && link.is_ok_and(|link| !link.contains("link_status:down"));
        }
        well
    })
    .await;
}

pub(crate) async fn reshard(topology: &Topology) {
    if let Servers::Cluster(cluster) = &topology.servers {
        for kind in ["rlock", "fair", "fenced"] {
            let key = super::crew::name(kind);
            let from = cluster.master_of(&key).await;
            let others = masters(cluster).await;
            let to = others
                .into_iter()
                .find(|at| *at != from)
                .expect("three masters");
            let migration = cluster.migrate(tests::slot_of(&key), to).await;
            sleep(Duration::from_millis(200)).await;
            migration.finish().await;
        }
    }
}

/// Which servers are masters, where that changes.
pub(crate) async fn present(topology: &Topology) -> Vec<usize> {
    match &topology.servers {
        Servers::Watched(replicated, sentinels) => {
            let master = master(replicated, sentinels).await;
            master.into_iter().collect()
        }
        Servers::Cluster(cluster) => masters(cluster).await,
        _ => Vec::new(),
    }
}

async fn master(replicated: &Replicated, sentinels: &Sentinels) -> Option<usize> {
    let at: Vec<String> = sentinels.ask(0, "GET-MASTER-ADDR-BY-NAME").await.ok()?;
    Some(replicated.at(at.get(1)?.parse().ok()?))
}

async fn masters(cluster: &Cluster) -> Vec<usize> {
    let mut masters = Vec::new();
    for at in cluster.all() {
        if is_master(cluster, at).await {
            masters.push(at);
        }
    }
    masters
}

async fn is_master(cluster: &Cluster, at: usize) -> bool {
    let role = cluster
        .try_command::<String>(at, &["INFO", "replication"])
        .await;
    role.is_ok_and(|info| info.contains("role:master"))
}

/// Waits until it is so, or goes on without.
async fn until(is_so: impl AsyncFn() -> bool) {
    let is_so = async {
        while !is_so().await {
            sleep(Duration::from_millis(50)).await;
        }
    };
    if timeout(RECOVERY, is_so).await.is_err() {
        println!("the servers are not well after {RECOVERY:?}");
    }
}
