//! Annotated functions that call annotated functions.

use std::cell::Cell;

use redlock_rt::{Client, Error, ErrorKind, distributed_lock};
use tokio::{join, task::yield_now};

use crate::world::*;

#[distributed_lock(key = "<name>", wait = "0s", client = client)]
async fn inner(client: &Client, name: &str) -> Result<u64, Error> {
    client.rlock(name).hold_count().await
}

#[distributed_lock(key = "<name>", client = client)]
async fn outer(client: &Client, name: &str) -> Result<[u64; 3], Error> {
    let first = inner(client, name).await?;
    let between = client.rlock(name).hold_count().await?;
    // Also through functions without the attribute, at any depth.
    let second = Box::pin(async { middle(client, name).await }).await?;
    Ok([first, between, second])
}

async fn middle(client: &Client, name: &str) -> Result<u64, Error> {
    inmost(client, name).await
}

#[distributed_lock(key = "<name>", wait = "0s", client = client)]
async fn inmost(client: &Client, name: &str) -> Result<u64, Error> {
    inner(client, name).await
}

pub(crate) async fn nested_calls_reenter(world: &World) {
    let (client, other) = (world.client(), world.client());
    assert_eq!(outer(&client, &world.name).await.unwrap(), [2, 1, 3]);
    assert!(!world.is_there(&world.name).await);
    // Another client counts as another process.
    let crossed = crossing(&client, &world.name, &other).await.unwrap();
    assert_eq!(crossed, ErrorKind::Contended);
}

#[distributed_lock(key = "<name>", client = client)]
async fn crossing(client: &Client, name: &str, other: &Client) -> Result<ErrorKind, Error> {
    Ok(inner(other, name).await.unwrap_err().kind())
}

#[distributed_lock(keys = ["<a>", "<b>"], wait = "0s", client = client)]
async fn both(client: &Client, a: &str, b: &str) -> Result<[u64; 2], Error> {
    Ok([inner(client, a).await?, inner(client, b).await?])
}

#[distributed_lock(key = "<a>", client = client)]
async fn one_then_both(client: &Client, a: &str, b: &str) -> Result<[u64; 2], Error> {
    both(client, a, b).await
}

#[distributed_lock(keys = ["<a>", "<b>"], client = client)]
async fn both_then_both(client: &Client, a: &str, b: &str) -> Result<[u64; 2], Error> {
    both(client, b, a).await
}

pub(crate) async fn nested_calls_reenter_one_of_several(world: &World) {
    let (client, a, b) = (world.client(), world.named("a"), world.named("b"));
    assert_eq!(both(&client, &a, &b).await.unwrap(), [2, 2]);
    assert_eq!(one_then_both(&client, &a, &b).await.unwrap(), [3, 2]);
    assert_eq!(both_then_both(&client, &a, &b).await.unwrap(), [3, 3]);
    assert!(!world.is_there(&a).await && !world.is_there(&b).await);
}

#[distributed_lock(key = "<name>", kind = read, wait = "0s", client = client)]
async fn reads(client: &Client, name: &str) -> Done {
    Ok(())
}

#[distributed_lock(key = "<name>", kind = write, wait = "0s", client = client)]
async fn writes(client: &Client, name: &str) -> Done {
    // A writer may read.
    reads(client, name).await
}

#[distributed_lock(key = "<name>", kind = write, wait = "0s", client = client)]
async fn writes_twice(client: &Client, name: &str) -> Done {
    writes(client, name).await?;
    reads(client, name).await
}

#[distributed_lock(key = "<name>", kind = read, wait = "1s", client = client)]
async fn upgrades(client: &Client, name: &str) -> Result<ErrorKind, Error> {
    reads(client, name).await?;
    Ok(writes(client, name).await.unwrap_err().kind())
}

pub(crate) async fn nested_kinds_join(world: &World) {
    let client = world.client();
    writes_twice(&client, &world.name).await.unwrap();
    // The call would wait for itself.
    let kind = upgrades(&client, &world.name).await.unwrap();
    assert_eq!(kind, ErrorKind::UpgradeWouldDeadlock);
    assert!(!world.is_there(&world.name).await);
}

/// A place for one task at a time.
#[derive(Default)]
struct Place {
    inside: Cell<u32>,
    visits: Cell<u32>,
}

impl Place {
    async fn visit(&self) {
        assert_eq!(self.inside.replace(1), 0, "two at once");
        for _ in 0..5 {
            yield_now().await;
        }
        self.inside.set(0);
        self.visits.set(self.visits.get() + 1);
    }
}

macro_rules! visitors {
    ($name:ident: $($visit:ident, $side_by_side:ident($($options:tt)+);)+) => {
        $(#[distributed_lock($($options)+, wait = "10s", client = client)]
        async fn $visit(client: &Client, $name: &str, place: &Place) -> Done {
            place.visit().await;
            Ok(())
        }

        #[distributed_lock($($options)+, client = client)]
        async fn $side_by_side(client: &Client, $name: &str, place: &Place) -> Done {
            let (one, two, three) = join!(
                $visit(client, $name, place),
                $visit(client, $name, place),
                $visit(client, $name, place)
            );
            one.and(two).and(three)
        })+
    };
}

visitors! {
    name:
    visit, visits(key = "<name>");
    visit_fair, visits_fair(key = "<name>", kind = fair);
    visit_writing, visits_writing(key = "<name>", kind = write);
    visit_both, visits_both(keys = ["<name>:1", "<name>:2"]);
    visit_listed, visits_listed(keys = [name, "else"].map(|end| format!("{name}/{end}")));
}

#[distributed_lock(key = "<name>:outer", client = client)]
async fn beside(client: &Client, name: &str, place: &Place) -> Done {
    let (one, two) = join!(visit(client, name, place), visit(client, name, place));
    one.and(two)
}

pub(crate) async fn joined_calls_exclude_each_other(world: &World) {
    let (client, name) = (world.client(), &world.name);
    let place = Place::default();
    visits(&client, name, &place).await.unwrap();
    visits_fair(&client, name, &place).await.unwrap();
    visits_writing(&client, name, &place).await.unwrap();
    assert_eq!(place.visits.get(), 9);
    beside(&client, name, &place).await.unwrap();
    assert_eq!(place.visits.get(), 11);
}

#[distributed_lock(key = "<name>:2", client = client)]
async fn visits_both_under_one(client: &Client, name: &str, place: &Place) -> Done {
    let (one, two) = join!(
        visit_both(client, name, place),
        visit_both(client, name, place)
    );
    one.and(two)
}

pub(crate) async fn joined_calls_of_several_exclude_each_other(world: &World) {
    let (client, name) = (world.client(), &world.name);
    let place = Place::default();
    visits_both(&client, name, &place).await.unwrap();
    visits_listed(&client, name, &place).await.unwrap();
    assert_eq!(place.visits.get(), 6);
    visits_both_under_one(&client, name, &place).await.unwrap();
    assert_eq!(place.visits.get(), 8);
}

#[distributed_lock(key = "<name>", client = client)]
async fn spawns(client: &Client, name: &str) -> Result<ErrorKind, Error> {
    let (client, name) = (client.clone(), name.to_owned());
    let task = tokio::spawn(async move { inner(&client, &name).await });
    Ok(task.await.unwrap().unwrap_err().kind())
}

pub(crate) async fn spawned_tasks_inherit_nothing(world: &World) {
    let kind = spawns(&world.client(), &world.name).await.unwrap();
    assert_eq!(kind, ErrorKind::Contended);
}
