//! Every kind of lock.

use redlock_rt::{Client, ErrorKind, distributed_lock};

use crate::world::{Done, World};

/// A function under a lock of each kind.
macro_rules! of_each_kind {
    ($($name:ident($($kind:tt)+);)+) => {
        $(#[distributed_lock(key = "<name>", kind = $($kind)+, wait = "0s", client = client)]
        async fn $name(client: &Client, name: &str, body: impl AsyncFnOnce() -> Done) -> Done {
            body().await
        })+
    };
}

of_each_kind! {
    reentrant(reentrant);
    fair(fair);
    read(read);
    write(write);
    fenced(fenced);
    spin(spin);
    permit(semaphore(limit = 3));
    two_permits(semaphore(limit = 3, take = 2));
}

#[distributed_lock(key = "<name>", wait = "0s", client = client)]
async fn by_default(client: &Client, name: &str, body: impl AsyncFnOnce() -> Done) -> Done {
    body().await
}

async fn nothing() -> Done {
    Ok(())
}

async fn never() -> Done {
    unreachable!("somebody else holds it")
}

fn is_contended(outcome: Done) {
    assert_eq!(outcome.unwrap_err().kind(), ErrorKind::Contended);
}

pub(crate) async fn exclusive_kinds_exclude(world: &World) {
    let (client, other, name) = (world.client(), world.client(), &world.name);
    macro_rules! exclude {
        ($($kind:ident),+) => {
            $($kind(&client, name, async || {
                assert!(world.is_there(name).await);
                assert_eq!(client.stats().held, 1);
                is_contended($kind(&other, name, never).await);
                // A nested call re-enters.
                $kind(&client, name, nothing).await
            })
            .await
            .unwrap();
            assert!(!world.is_there(name).await, "released when it returns");)+
        };
    }
    exclude!(by_default, reentrant, fair, write, fenced, spin);
    world.forget(&format!("redisson_lock_token:*{name}*")).await;
}

pub(crate) async fn readers_share_and_writers_do_not(world: &World) {
    let (client, other, name) = (world.client(), world.client(), &world.name);
    let body = async || {
        read(&other, name, nothing).await?;
        is_contended(write(&other, name, never).await);
        Ok(())
    };
    read(&client, name, body).await.unwrap();
    let body = async || {
        is_contended(read(&other, name, never).await);
        Ok(())
    };
    write(&client, name, body).await.unwrap();
}

pub(crate) async fn permits_are_counted(world: &World) {
    let (client, other, name) = (world.client(), world.client(), &world.name);
    let semaphore = other.permit_expirable_semaphore(name);
    let body = async || {
        assert_eq!(semaphore.available_permits().await?, 1);
        is_contended(two_permits(&other, name, never).await);
        // Permits are not re-entered.
        is_contended(two_permits(&client, name, never).await);
        permit(&other, name, async || {
            assert_eq!(semaphore.available_permits().await?, 0);
            Ok(())
        })
        .await
    };
    two_permits(&client, name, body).await.unwrap();
    assert_eq!(semaphore.available_permits().await.unwrap(), 3);
    world.forget(&format!("*{name}*")).await;
}

struct Pool {
    client: Client,
    size: u32,
}

impl Pool {
    #[distributed_lock(
        key = "<name>",
        kind = semaphore(limit = self.size, take = share.div_ceil(2)),
        client = self.client
    )]
    async fn take(&self, name: &str, share: u32) -> Result<i64, redlock_rt::Error> {
        self.client
            .permit_expirable_semaphore(name)
            .available_permits()
            .await
    }
}

pub(crate) async fn a_semaphore_takes_expressions(world: &World) {
    let pool = Pool {
        client: world.client(),
        size: 5,
    };
    assert_eq!(pool.take(&world.name, 5).await.unwrap(), 2);
    assert_eq!(pool.take(&world.name, 2).await.unwrap(), 4);
    // Six of five permits are never available.
    let error = pool.take(&world.name, 11).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::BadInput, "{error}");
    world.forget(&format!("*{}*", world.name)).await;
}
