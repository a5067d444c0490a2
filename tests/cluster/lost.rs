//! A command or a reply is lost on the way to a node: no lock is left without a holder, none is freed
//! twice, and the old connection is ended before anything else is sent to that node.

use std::{collections::BTreeMap, time::Duration};

use redlock_rt::{Client, LockOptions, RLock, Unlocked};
use tests::{Cluster, Loss, Matcher, Proxy, Which, calls, eventually, lock_and_unlock, within};
use tokio::task::block_in_place;

use crate::{DEADLINE, assert_clean, builder};

/// The time-out of a call. After half of it without a reply the client closes the connection.
const RESPONSE: Duration = Duration::from_millis(2400);
const NAME: &str = "lost";

/// A cluster of two masters, which clients reach through proxies only.
struct Stage {
    cluster: Cluster,
    /// One for each master.
    proxies: Vec<Proxy>,
    client: Client,
    lock: RLock,
    name: String,
}

impl Stage {
    async fn set() -> Self {
        let options = Cluster::options().masters(2).replicas(0).behind_proxies();
        let cluster = block_in_place(|| options.start());
        let proxies = cluster.proxies();
        let name = cluster.name_at(0, NAME).await;
        let options = builder(&cluster).response_timeout(RESPONSE);
        let options = options.connect_timeout(2 * RESPONSE);
        let url = format!("redis+cluster://{}", cluster.node(1).address());
        let client = options.url(&url).connect().await.unwrap();
        let lock = client.rlock(&name);
        // Connects and loads the scripts, so that from here on each call is one frame.
        lock_and_unlock(&lock).await;
        proxies[0].mark();
        Self {
            cluster,
            proxies,
            client,
            lock,
            name,
        }
    }

    /// In front of the master of the lock.
    fn proxy(&self) -> &Proxy {
        &self.proxies[0]
    }

    fn calls(&self, script: &str) -> Matcher {
        calls(script).mentioning(&self.name)
    }

    async fn hash(&self) -> BTreeMap<String, u32> {
        self.cluster.command(0, &["HGETALL", &self.name]).await
    }

    fn kills(&self) -> usize {
        self.proxy()
            .count(Matcher::from("CLIENT").mentioning("KILL"))
    }

    /// The client has ended the connection on which something was lost.
    fn assert_ended(&self, loss: Loss, before: usize) {
        let kills = self.kills() - before;
        assert!(kills >= 1, "{loss:?}: nothing was killed");
        let scripts = self.proxy().connections(Which::Scripts);
        assert!(scripts.len() <= 2, "{loss:?}: {scripts:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_acquisition_that_was_lost_is_made_once() {
    let stage = Stage::set().await;
    for loss in Loss::ALL {
        let before = stage.kills();
        stage.proxy().lose(loss, stage.calls("rlock_acquire"), 1);
        let options = LockOptions::new().wait(DEADLINE);
        let guard = within(DEADLINE, stage.lock.lock_with(options))
            .await
            .unwrap();
        let expected = BTreeMap::from([(guard.hold_id().to_string(), 1)]);
        assert_eq!(stage.hash().await, expected, "{loss:?}");
        stage.assert_ended(loss, before);
        assert_eq!(guard.unlock().await.unwrap(), Unlocked::Released);
        assert_eq!(stage.hash().await, BTreeMap::new(), "{loss:?}");
    }
    assert_clean(&stage.cluster, NAME, &[&stage.client]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_release_that_was_lost_is_no_error() {
    let stage = Stage::set().await;
    for loss in Loss::ALL {
        let guard = stage.lock.lock().await.unwrap();
        let before = stage.kills();
        stage.proxy().lose(loss, stage.calls("rlock_release"), 1);
        let released = within(DEADLINE, guard.unlock()).await.unwrap();
        assert_eq!(released, Unlocked::Released, "{loss:?}");
        assert_eq!(stage.hash().await, BTreeMap::new(), "{loss:?}");
        stage.assert_ended(loss, before);
    }
    assert_clean(&stage.cluster, NAME, &[&stage.client]).await;
}

/// A caller that goes away in the middle of a call whose reply is lost.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cancelled_acquisition_that_was_lost_leaves_nothing() {
    let stage = Stage::set().await;
    for loss in Loss::ALL {
        stage.proxy().lose(loss, stage.calls("rlock_acquire"), 1);
        let before = stage.proxy().count(stage.calls("rlock_acquire"));
        let lock = stage.lock.clone();
        let caller = tokio::spawn(async move { lock.lock().await.map(drop) });
        eventually(DEADLINE, async || {
            stage.proxy().count(stage.calls("rlock_acquire")) > before
        })
        .await;
        caller.abort();
        let _ = caller.await;
        eventually(DEADLINE, async || stage.client.stats().releases == 0).await;
        assert_eq!(stage.hash().await, BTreeMap::new(), "{loss:?}");
        let guard = within(DEADLINE, stage.lock.lock()).await.unwrap();
        guard.unlock().await.unwrap();
    }
    assert_clean(&stage.cluster, NAME, &[&stage.client]).await;
}
