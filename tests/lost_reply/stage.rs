//! A client behind a proxy that loses commands or replies, and another client.

use std::{
    collections::{BTreeMap, BTreeSet},
    panic::Location,
    time::{Duration, Instant},
};

use redlock_rt::{Client, GuardState, RLock, RLockGuard, Unlocked};
use tests::{Matcher, Place, Proxied, Proxy, Which, World, calls, eventually, unique};

use crate::{DEADLINE, RESPONSE};

pub(crate) struct Stage {
    world: World,
    servers: Proxied,
    /// The number of the server that has the lock.
    at: usize,
    pub(crate) client: Client,
    pub(crate) lock: RLock,
    other_client: Client,
    /// The lock through the other client, to which no fault applies.
    pub(crate) other: RLock,
}

tests::is_a_world!(Stage);

impl Stage {
    pub(crate) async fn set(place: Place, what: &str) -> Self {
        Self::patient(place, what, RESPONSE).await
    }

    pub(crate) async fn patient(place: Place, what: &str, response: Duration) -> Self {
        let (servers, name) = (Proxied::at(place).await, unique(what));
        let at = servers.server_of(&name).await;
        let mut world = World::named(servers.server(at), &name).await;
        world.clients_are(servers.undisturbed());
        let other_client = world.client();
        world.clients_are(servers.client());
        let client = world.client_with(|builder| {
            let builder = builder.response_timeout(response);
            builder.connect_timeout(2 * RESPONSE)
        });
        let stage = Self {
            lock: client.rlock(&name),
            other: other_client.rlock(&name),
            world,
            servers,
            at,
            client,
            other_client,
        };
        // Connects and loads the scripts, so that from here on each call is one frame.
        let guard = stage.lock.lock().await.unwrap();
        guard.reenter().await.unwrap().unlock().await.unwrap();
        guard.unlock().await.unwrap();
        stage
    }

    /// The proxy in front of the server that has the lock.
    pub(crate) fn proxy(&self) -> &Proxy {
        self.servers.proxy(self.at)
    }

    /// The calls of a script for a hold of the client. In a cluster, those of the other client pass the
    /// same proxy.
    pub(crate) fn calls(&self, script: &str) -> Matcher {
        let calls = calls(script).mentioning(&self.name);
        calls.mentioning(self.client.uuid())
    }

    /// The connection on which the client calls scripts.
    pub(crate) fn connection(&self) -> u64 {
        let open = self.proxy().connections(Which::Scripts);
        let frames = self.proxy().frames().into_iter();
        let ours = frames.filter(|frame| frame.mentions(self.client.uuid()));
        let ours: BTreeSet<u64> = ours.map(|frame| frame.connection).collect();
        let ours: Vec<u64> = open.into_iter().filter(|one| ours.contains(one)).collect();
        match ours[..] {
            [connection] => connection,
            ref others => panic!("one connection calls scripts, not {others:?}"),
        }
    }

    /// Waits until no command is in flight on a connection that the client has closed: each has run,
    /// or will never run.
    pub(crate) async fn ended(&self, connection: u64) {
        let which = Which::Connection(connection);
        eventually(DEADLINE, async || {
            self.proxy().connections(which).is_empty()
        })
        .await;
    }

    /// Waits until a task of the other client waits for the lock and is subscribed.
    pub(crate) async fn other_waits(&self) {
        eventually(DEADLINE, async || {
            let channels = self.channels(&format!("*{}*", self.name)).await;
            self.other_client.stats().waiting == 1 && channels.len() == 1
        })
        .await;
    }

    /// The lock in Redis: owner -> hold count.
    pub(crate) async fn hash(&self) -> BTreeMap<String, u32> {
        self.redis(&["HGETALL", &self.name]).await
    }

    /// Only this guard has the lock, with this hold count, and no longer than the key lives.
    #[track_caller]
    pub(crate) fn assert_held(&self, guard: &RLockGuard, count: u32) -> impl Future<Output = ()> {
        let expected = BTreeMap::from([(guard.hold_id().to_string(), count)]);
        let caller = Location::caller();
        async move {
            assert_eq!(self.hash().await, expected, "{caller}");
            let GuardState::Held { until } = guard.state() else {
                panic!("{caller}: {guard:?}");
            };
            let expires = self.ttl().await.unwrap() + Duration::from_millis(1);
            assert!(until <= Instant::now() + expires, "{caller}: {guard:?}");
        }
    }

    /// The other client gets the lock at once.
    #[track_caller]
    pub(crate) fn assert_free(&self) -> impl Future<Output = ()> {
        let caller = Location::caller();
        async move {
            match self.other.try_lock().await.unwrap() {
                Some(guard) => assert_eq!(guard.unlock().await.unwrap(), Unlocked::Released),
                None => panic!("{caller}: held by {:?}", self.hash().await),
            }
        }
    }
}
