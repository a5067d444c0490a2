//! Fencing tokens: they grow, whatever happens to the counter, and a resource that compares them
//! refuses late writers.

mod counter;
mod failover;
mod paused;
mod tokens;
mod values;

use redlock_rt::{Client, FencedLock};
use tests::{DEADLINE, World, shared_server, within};

/// A lock on the shared server, and its keys.
struct Scene {
    world: World,
    client: Client,
    lock: FencedLock,
}

tests::is_a_world!(Scene);

impl Scene {
    async fn open(what: &str) -> Self {
        Self::at(what, &shared_server().url()).await
    }

    /// The client at this address of the shared server.
    async fn at(what: &str, url: &str) -> Self {
        let mut world = World::on(&shared_server(), what).await;
        world.clients_connect_to(url.to_owned());
        let client = world.client_with(|builder| builder);
        Self {
            lock: client.fenced_lock(&world.name),
            client,
            world,
        }
    }

    fn counter(&self) -> String {
        format!("redisson_lock_token:{{{}}}", self.name)
    }

    /// Takes and releases the lock.
    async fn token(&self) -> u64 {
        let guard = within(DEADLINE, self.lock.lock()).await.unwrap();
        let token = guard.token();
        guard.unlock().await.unwrap();
        token
    }

    /// Sets the counter as another client may have left it.
    async fn count(&self, value: &str) {
        let _: () = self.redis(&["SET", &self.counter(), value]).await;
    }

    async fn end(self) {
        let _: bool = self.redis(&["DEL", &self.counter()]).await;
        self.world.assert_clean().await;
    }
}
