//! Options of the acquisition: times, owner, condition, name.

use std::time::Duration;

use redlock_rt::{Client, ErrorKind, LostReason, Owner, RLockGuard, Renew, distributed_lock};
use tests::within;
use tokio::time::{Instant, timeout};

use crate::world::*;

type Ttl = Result<Duration, redlock_rt::Error>;

#[distributed_lock(key = "<name>", lease = "7s", client = client)]
async fn seven_seconds(client: &Client, name: &str) -> Ttl {
    Ok(client.rlock(name).remaining_ttl().await?.unwrap())
}

#[distributed_lock(key = "<name>", lease = 2 * lease, client = client)]
async fn twice(client: &Client, name: &str, lease: Duration) -> Ttl {
    Ok(client.rlock(name).remaining_ttl().await?.unwrap())
}

#[distributed_lock(key = "<name>", client = client)]
async fn by_default(client: &Client, name: &str) -> Ttl {
    Ok(client.rlock(name).remaining_ttl().await?.unwrap())
}

pub(crate) async fn a_lease_is_a_literal_or_an_expression(world: &World) {
    let lease = Duration::from_secs(40);
    let (client, name) = (
        world.client_with(|builder| builder.lease(lease)),
        &world.name,
    );
    let about = |ttl: Duration, seconds| {
        let expected = Duration::from_secs(seconds);
        assert!(ttl <= expected && ttl + LATE > expected, "{ttl:?}");
    };
    about(seven_seconds(&client, name).await.unwrap(), 7);
    about(
        twice(&client, name, Duration::from_secs(5)).await.unwrap(),
        10,
    );
    about(by_default(&client, name).await.unwrap(), 40);
    let error = twice(&client, name, Duration::ZERO).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::BadInput);
}

/// Runs a body under a lease of 2 s that checks whether the lease ends.
async fn watch(held: &RLockGuard) -> Option<LostReason> {
    timeout(3 * SPAN / 2, held.lost()).await.ok()
}

type Watched = Result<Option<LostReason>, redlock_rt::Error>;

#[distributed_lock(key = "<name>", lease = SPAN, renew = true, guard = held, client = client)]
async fn always(client: &Client, name: &str) -> Watched {
    Ok(watch(held).await)
}

#[distributed_lock(key = "<name>", lease = SPAN, renew = false, guard = held, client = client)]
async fn never(client: &Client, name: &str) -> Watched {
    Ok(watch(held).await)
}

/// The body completes, so its value is returned.
macro_rules! renewed {
    ($renews:ident: $($function:ident(renew = $renew:expr);)+) => {
        $(#[distributed_lock(
            key = "<name>", lease = SPAN, renew = $renew, guard = held, client = client
        )]
        async fn $function(client: &Client, name: &str, $renews: bool) -> Watched {
            Ok(watch(held).await)
        })+
    };
}

renewed! {
    renews:
    by_variable(renew = renews);
    by_kind(renew = if renews { Renew::Third } else { Renew::Never });
    by_span(renew = if renews { Renew::Every(SPAN / 4) } else { Renew::Never });
}

pub(crate) async fn renewal_is_a_switch(world: &World) {
    let client = world.client();
    let expired = Some(LostReason::Expired);
    assert_eq!(always(&client, &world.name).await.unwrap(), None);
    assert_eq!(never(&client, &world.name).await.unwrap(), expired);
    for (renews, end) in [(true, None), (false, expired)] {
        assert_eq!(
            by_variable(&client, &world.name, renews).await.unwrap(),
            end
        );
        assert_eq!(by_kind(&client, &world.name, renews).await.unwrap(), end);
    }
    assert_eq!(by_span(&client, &world.name, true).await.unwrap(), None);
}

#[distributed_lock(key = "<world.name>", renew = "20ms", guard = held, client = client)]
async fn every_20_ms(client: &Client, world: &World) -> Result<LostReason, redlock_rt::Error> {
    world.delete().await;
    Ok(held.lost().await)
}

#[distributed_lock(key = "<world.name>", renew = every / 2, guard = held, client = client)]
async fn every(
    client: &Client,
    world: &World,
    every: Duration,
) -> Result<LostReason, redlock_rt::Error> {
    world.delete().await;
    Ok(held.lost().await)
}

pub(crate) async fn renewal_is_a_span(world: &World) {
    // The lease is 30 s: by default its renewal would find the loss after 10 s.
    let client = world.client();
    let found = within(SPAN + LATE, every_20_ms(&client, world)).await;
    assert_eq!(found.unwrap(), LostReason::Deleted);
    let found = within(SPAN + LATE, every(&client, world, SPAN)).await;
    assert_eq!(found.unwrap(), LostReason::Deleted);
}

#[distributed_lock(key = "<name>", wait = patience, client = client)]
async fn patient(client: &Client, name: &str, patience: Duration) -> Done {
    Ok(())
}

#[distributed_lock(key = "<name>", wait = forever, client = client)]
async fn for_ever(client: &Client, name: &str) -> Done {
    Ok(())
}

#[distributed_lock(key = "<name>", client = client)]
async fn as_the_client_does(client: &Client, name: &str) -> Done {
    Ok(())
}

pub(crate) async fn a_wait_is_an_expression(world: &World) {
    let (client, name) = (world.client(), &world.name);
    let held = client.rlock(name).lock().await.unwrap();
    let start = Instant::now();
    let error = patient(&client, name, SPAN).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TimedOut);
    assert_passed(start, SPAN);
    let error = patient(&client, name, Duration::ZERO).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Contended);
    held.unlock().await.unwrap();
}

pub(crate) async fn a_wait_for_ever(world: &World) {
    let client = world.client_with(|builder| builder.default_wait(SPAN / 4));
    let held = client.rlock(&world.name).lock().await.unwrap();
    let call = for_ever(&client, &world.name);
    tokio::pin!(call);
    assert!(timeout(SPAN, call.as_mut()).await.is_err(), "it waits");
    held.unlock().await.unwrap();
    within(DEADLINE, call).await.unwrap();
}

pub(crate) async fn the_clients_wait_is_the_default(world: &World) {
    let client = world.client_with(|builder| builder.default_wait(SPAN));
    let held = client.rlock(&world.name).lock().await.unwrap();
    let start = Instant::now();
    let error = as_the_client_does(&client, &world.name).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TimedOut);
    assert_passed(start, SPAN);
    held.unlock().await.unwrap();
}

struct Job {
    client: Client,
    owner: Owner,
}

impl Job {
    #[distributed_lock(key = "<name>", owner = self.owner, wait = "0s", client = self.client)]
    async fn step(&self, name: String) -> Result<u64, redlock_rt::Error> {
        self.client.rlock(&name).hold_count().await
    }
}

#[distributed_lock(key = "<name>", owner = owner, wait = "0s", client = client)]
async fn by_reference(client: &Client, name: &str, owner: &Owner) -> Done {
    Ok(())
}

pub(crate) async fn an_owner_reenters_from_another_task(world: &World) {
    let (client, name) = (world.client(), &world.name);
    let owner = Owner::new();
    let options = redlock_rt::LockOptions::new().owner(&owner);
    let held = client.rlock(name).lock_with(options).await.unwrap();
    let job = Job {
        client: client.clone(),
        owner: owner.clone(),
    };
    let name_there = name.clone();
    let step = tokio::spawn(async move { job.step(name_there).await });
    assert_eq!(step.await.unwrap().unwrap(), 2);
    by_reference(&client, name, &owner).await.unwrap();
    let error = by_reference(&client, name, &Owner::new())
        .await
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Contended);
    held.unlock().await.unwrap();
}

#[distributed_lock(key = "<name>", when = amount > 100, wait = "0s", client = client)]
async fn large_ones(client: &Client, name: &str, amount: u32) -> Result<bool, redlock_rt::Error> {
    client.rlock(name).is_locked().await
}

#[distributed_lock(
    key = "<name>", when = amount > 100, wait = "0s", on_timeout = value(Ok(7)), client = client
)]
async fn counts(client: &Client, name: &str, amount: u32) -> Result<usize, redlock_rt::Error> {
    Ok(client.stats().held)
}

pub(crate) async fn when_false_there_is_no_lock(world: &World) {
    let (client, name) = (world.client(), &world.name);
    assert!(large_ones(&client, name, 101).await.unwrap());
    assert!(!large_ones(&client, name, 100).await.unwrap());
    // There is no key either.
    assert_eq!(counts(&client, "", 100).await.unwrap(), 0);
    let held = client.rlock(name).lock().await.unwrap();
    assert!(large_ones(&client, name, 100).await.unwrap());
    let error = large_ones(&client, name, 101).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Contended);
    assert_eq!(counts(&client, name, 100).await.unwrap(), 1);
    assert_eq!(counts(&client, name, 101).await.unwrap(), 7);
    held.unlock().await.unwrap();
    assert_eq!(counts(&client, name, 101).await.unwrap(), 1);
    assert_eq!(counts(&client, name, 100).await.unwrap(), 0);
}

mod shop {
    use super::*;

    pub(super) struct Shop;

    impl Shop {
        #[distributed_lock(key = "<world.name>", name = "place order", client = client)]
        pub(super) async fn place(client: &Client, world: &World) -> Done {
            world.delete().await;
            Ok(())
        }

        #[distributed_lock(key = "<world.name>", client = client)]
        pub(super) async fn r#move(client: &Client, world: &World) -> Done {
            world.delete().await;
            Ok(())
        }
    }
}

pub(crate) async fn a_name_is_told(world: &World) {
    let (client, told) = world.telling();
    shop::Shop::place(&client, world).await.unwrap();
    shop::Shop::r#move(&client, world).await.unwrap();
    let names: Vec<_> = told.all().iter().map(|loss| loss.function).collect();
    assert_eq!(names, ["place order", "attribute::options::shop::move"]);
}
