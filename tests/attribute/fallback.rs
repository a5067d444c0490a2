//! The result of a call whose lock is not acquired.

use std::time::Duration;

use redlock_rt::{Client, Error, ErrorKind, Shutdown, distributed_lock};
use tests::within;
use tokio::task::yield_now;

use crate::world::*;

type Count = Result<u32, Error>;

/// A client whose server cannot be reached.
fn cut_off(world: &World) -> Client {
    let (client, wires) = world.wired(|builder| builder.connect_timeout(SPAN / 4));
    wires.refuse();
    client
}

#[distributed_lock(key = "<name>", wait = "0s", client = client)]
async fn by_default(client: &Client, name: &str) -> Count {
    Ok(1)
}

#[distributed_lock(
    key = "<name>", wait = "0s", on_timeout = error, on_unavailable = error, client = client
)]
async fn error(client: &Client, name: &str) -> Count {
    Ok(1)
}

#[distributed_lock(
    key = "<name>", wait = wait, on_timeout = skip, on_unavailable = skip, client = client
)]
async fn skip(client: &Client, name: &str, wait: Duration) -> Count {
    Ok(1)
}

/// A contended lock with and without a wait, and an unreachable Redis.
async fn held_and_cut_off<T>(world: &World, call: impl AsyncFn(&Client, Duration) -> T) -> [T; 4] {
    let (client, other) = (world.client(), world.client());
    let nobody = cut_off(world);
    let held = other.rlock(&world.name).lock().await.unwrap();
    // Longer than a reply takes: without one, the caller does not know whether the lock is held.
    let soon = Duration::from_secs(1);
    let outcomes = [
        call(&client, Duration::ZERO).await,
        call(&client, soon).await,
        call(&nobody, Duration::ZERO).await,
        call(&nobody, soon).await,
    ];
    held.unlock().await.unwrap();
    outcomes
}

pub(crate) async fn an_error_is_the_default(world: &World) {
    let kinds = [ErrorKind::Contended, ErrorKind::Contended];
    let unavailable = [ErrorKind::Unavailable; 2];
    let expected = [kinds, unavailable].concat();
    for explicit in [false, true] {
        let call = async |client: &Client, _| match explicit {
            false => by_default(client, &world.name).await,
            true => error(client, &world.name).await,
        };
        let outcomes = held_and_cut_off(world, call).await;
        let kinds = outcomes.map(|outcome| outcome.unwrap_err().kind());
        assert_eq!(kinds[..], expected[..]);
    }
    assert_eq!(error(&world.client(), &world.name).await.unwrap(), 1);
}

pub(crate) async fn skipped_calls_give_the_default(world: &World) {
    let call = async |client: &Client, wait| skip(client, &world.name, wait).await;
    for outcome in held_and_cut_off(world, call).await {
        assert_eq!(outcome.unwrap(), 0);
    }
    let free = skip(&world.client(), &world.name, SPAN).await;
    assert_eq!(free.unwrap(), 1);
}

#[distributed_lock(
    key = "<name>",
    wait = wait,
    on_timeout = value(Ok(other * 2)),
    on_unavailable = value({
        // The fallback may await, and use values that the body would take.
        yield_now().await;
        Ok(u32::try_from(name.len()).unwrap())
    }),
    client = client
)]
async fn value(client: &Client, name: String, wait: Duration, other: u32) -> Count {
    drop(name);
    Ok(1)
}

pub(crate) async fn values_are_given(world: &World) {
    let call =
        async |client: &Client, wait| value(client, world.name.clone(), wait, 21).await.unwrap();
    let length = u32::try_from(world.name.len()).unwrap();
    assert_eq!(
        held_and_cut_off(world, call).await,
        [42, 42, length, length]
    );
    assert_eq!(call(&world.client(), SPAN).await, 1);
}

#[distributed_lock(
    key = "<name>",
    wait = wait,
    on_timeout = call(busy),
    on_unavailable = call(down::<T>),
    client = client
)]
async fn calls<T: AsRef<[u8]>>(
    client: &Client,
    name: &str,
    wait: Duration,
    mut taken: Vec<u32>,
    more: T,
) -> Count {
    taken.clear();
    drop(more);
    Ok(1)
}

async fn busy<T>(client: &Client, name: &str, wait: Duration, taken: Vec<u32>, more: T) -> Count {
    yield_now().await;
    assert!(client.rlock(name).is_locked().await?);
    drop((wait, more));
    Ok(taken[0])
}

async fn down<T: AsRef<[u8]>>(
    _client: &Client,
    _name: &str,
    _wait: Duration,
    taken: Vec<u32>,
    more: T,
) -> Count {
    Ok(taken[1] + u32::from(more.as_ref()[0]))
}

pub(crate) async fn another_function_is_called(world: &World) {
    let call = async |client: &Client, wait| {
        calls(client, &world.name, wait, vec![5, 6], [10_u8])
            .await
            .unwrap()
    };
    assert_eq!(held_and_cut_off(world, call).await, [5, 5, 16, 16]);
    assert_eq!(call(&world.client(), SPAN).await, 1);
}

#[derive(Clone)]
struct Shop {
    client: Client,
    name: String,
    log: Log<&'static str>,
}

impl Shop {
    #[distributed_lock(
        key = "<self.name>", wait = "0s", on_timeout = call(Self::busy), client = self.client
    )]
    async fn by_reference(&self, order: u32) -> Count {
        Ok(order)
    }

    async fn busy(&self, order: u32) -> Count {
        self.log.add("busy");
        Ok(order + 1)
    }

    #[distributed_lock(
        key = "<self.name>", wait = "0s", on_timeout = call(Self::rename), client = self.client
    )]
    async fn by_exclusive_reference(&mut self, name: String) -> Result<&str, Error> {
        self.name.clear();
        Ok(&self.name)
    }

    async fn rename(&mut self, name: String) -> Result<&str, Error> {
        self.name = name;
        Ok(&self.name)
    }

    #[distributed_lock(
        key = "<self.name>", wait = "0s", on_timeout = call(Self::give_back), client = self.client
    )]
    async fn by_value(self) -> Result<Option<Self>, Error> {
        drop(self);
        Ok(None)
    }

    async fn give_back(self) -> Result<Option<Self>, Error> {
        Ok(Some(self))
    }
}

pub(crate) async fn methods_call_methods(world: &World) {
    let mut shop = Shop {
        client: world.client(),
        name: world.name.clone(),
        log: Log::default(),
    };
    assert_eq!(shop.by_reference(1).await.unwrap(), 1);
    let held = shop.client.rlock(&world.name).lock().await.unwrap();
    assert_eq!(shop.by_reference(1).await.unwrap(), 2);
    assert_eq!(shop.log.all(), ["busy"]);
    let shop_back = shop.clone().by_value().await.unwrap();
    assert_eq!(shop_back.unwrap().name, world.name);
    let renamed = shop.by_exclusive_reference("new".to_owned()).await;
    assert_eq!(renamed.unwrap(), "new");
    held.unlock().await.unwrap();
    assert!(shop.by_value().await.unwrap().is_none());
}

#[distributed_lock(key = "<name>", wait = wait, on_timeout = skip, client = client)]
async fn only_timeout(client: &Client, name: &str, wait: Duration) -> Count {
    Ok(1)
}

#[distributed_lock(key = "<name>", wait = wait, on_unavailable = skip, client = client)]
async fn only_unavailable(client: &Client, name: &str, wait: Duration) -> Count {
    Ok(1)
}

pub(crate) async fn one_fallback_is_not_the_other(world: &World) {
    let call = async |client: &Client, wait| only_timeout(client, &world.name, wait).await;
    let [contended, timed_out, down, still_down] = held_and_cut_off(world, call).await;
    assert_eq!((contended.unwrap(), timed_out.unwrap()), (0, 0));
    assert!(down.unwrap_err().is_unavailable());
    assert!(still_down.unwrap_err().is_unavailable());

    let call = async |client: &Client, wait| only_unavailable(client, &world.name, wait).await;
    let [contended, timed_out, down, still_down] = held_and_cut_off(world, call).await;
    assert!(contended.unwrap_err().is_contended());
    assert!(timed_out.unwrap_err().is_timed_out());
    assert_eq!((down.unwrap(), still_down.unwrap()), (0, 0));
}

#[distributed_lock(key = "<name>", wait = "0s", lease = "2s", client = client)]
async fn hanging(client: &Client, name: &str) -> Count {
    unreachable!("nobody says that it is held")
}

#[distributed_lock(
    key = "<name>", wait = "0s", lease = "2s", on_unavailable = value(Ok(9)), client = client
)]
async fn hanging_with_value(client: &Client, name: &str) -> Count {
    unreachable!("nobody says that it is held")
}

pub(crate) async fn an_unknown_outcome_is_unavailable(world: &World) {
    let (client, wires) = world.wired(|builder| {
        let builder = builder.response_timeout(SPAN / 4);
        builder.connect_timeout(SPAN / 4)
    });
    drop(client.rlock(&world.name).lock().await.unwrap());
    tests::eventually(DEADLINE, async || !world.is_there(&world.name).await).await;
    wires.hang();
    let error = within(DEADLINE, hanging(&client, &world.name))
        .await
        .unwrap_err();
    assert!(
        error.is_unavailable() || error.is_outcome_unknown(),
        "{error}"
    );
    let value = within(DEADLINE, hanging_with_value(&client, &world.name)).await;
    assert_eq!(value.unwrap(), 9);
    wires.speak();
}

pub(crate) async fn other_errors_are_never_skipped(world: &World) {
    let client = world.client();
    let error = skip(&client, " ", SPAN).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::BadInput);

    let _: () = world.redis(&["SET", &world.name, "data"]).await;
    let error = skip(&client, &world.name, SPAN).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::WrongType);
    let error = value(&client, world.name.clone(), SPAN, 1)
        .await
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::WrongType);
    world.delete().await;

    client.shutdown(Shutdown::ReleaseAll).await.unwrap();
    let error = skip(&client, &world.name, SPAN).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ShutDown);
    let error = calls(&client, &world.name, SPAN, Vec::new(), "x")
        .await
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ShutDown);
}

#[distributed_lock(
    key = "<world.name>",
    renew = OFTEN,
    on_timeout = skip,
    on_unavailable = skip,
    client = client
)]
async fn loses(client: &Client, world: &World) -> Count {
    world.delete().await;
    std::future::pending().await
}

/// Neither is a body that itself returns such an error.
#[distributed_lock(key = "<name>", on_timeout = skip, on_unavailable = skip, client = client)]
async fn fails_itself(client: &Client, name: &str, error: Error) -> Count {
    Err(error)
}

pub(crate) async fn a_loss_is_never_skipped(world: &World) {
    let client = world.client();
    let error = within(DEADLINE, loses(&client, world)).await.unwrap_err();
    assert!(error.is_lost());
    let call = async |client: &Client, _| by_default(client, &world.name).await.unwrap_err();
    for own in held_and_cut_off(world, call).await {
        let kind = own.kind();
        let error = fails_itself(&client, &world.name, own).await.unwrap_err();
        assert_eq!(error.kind(), kind);
    }
}
