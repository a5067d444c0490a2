//! The order in which the options are evaluated.

use std::{fmt, time::Duration};

use redlock_rt::{Client, distributed_lock};
use tokio_test::{assert_pending, task};

use crate::world::*;

type Notes = Log<&'static str>;

fn note<T>(log: &Notes, what: &'static str, value: T) -> T {
    log.add(what);
    value
}

/// Notes that it is formatted.
struct Shown<'a>(&'a Notes, &'static str, String);

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.add(self.1);
        f.write_str(&self.2)
    }
}

#[distributed_lock(
    client = note(log, "client", client),
    lease = note(log, "lease", Duration::from_secs(9)),
    wait = note(log, "wait", Duration::from_secs(9)),
    when = note(log, "when", true),
    key = "<shown>"
)]
async fn simple(client: &Client, log: &Notes, shown: Shown<'_>) -> Done {
    log.add("body");
    Ok(())
}

#[distributed_lock(
    client = note(log, "client", client),
    on_timeout = value(note(log, "value", Ok(()))),
    wait = "0s",
    key = "<shown>",
    guard = held
)]
async fn guarded(client: &Client, log: &Notes, shown: Shown<'_>) -> Done {
    log.add(if held.is_valid() { "body" } else { "lost" });
    Ok(())
}

pub(crate) async fn when_then_key_then_client_before_any_await(world: &World) {
    // The lock is not granted within the first poll.
    let (client, wires) = world.wired(|builder| builder);
    wires.hang();
    let log = Notes::default();
    let shown = || Shown(&log, "key", world.name.clone());
    let mut call = task::spawn(Box::pin(simple(&client, &log, shown())));
    assert!(log.all().is_empty(), "nothing is done before it is polled");
    assert_pending!(call.poll());
    let all = log.all();
    assert_eq!(all[..3], ["when", "key", "client"]);
    let also = ["lease", "wait"];
    assert!(also.iter().all(|what| all[3..].contains(what)), "{all:?}");
    wires.speak();
    call.into_inner().await.unwrap();
    assert_eq!(log.all()[5..], ["body"]);

    let log = Notes::default();
    let shown = || Shown(&log, "key", world.name.clone());
    wires.hang();
    let mut call = task::spawn(Box::pin(guarded(&client, &log, shown())));
    assert_pending!(call.poll());
    assert_eq!(log.all(), ["key", "client"]);
    wires.speak();
    call.into_inner().await.unwrap();
    assert_eq!(log.all()[2..], ["body"]);
    let held = client.rlock(&world.name).lock().await.unwrap();
    guarded(&client, &log, shown()).await.unwrap();
    assert_eq!(log.all()[3..], ["key", "client", "value"]);
    held.unlock().await.unwrap();
}

#[distributed_lock(
    keys = ["<first>", second, "<third>"],
    client = note(log, "client", client)
)]
async fn several(
    client: &Client,
    log: &Notes,
    third: Shown<'_>,
    second: Shown<'_>,
    first: Shown<'_>,
) -> Done {
    log.add("body");
    Ok(())
}

pub(crate) async fn keys_are_made_in_their_order(world: &World) {
    let client = world.client();
    let log = Notes::default();
    let shown = |what| Shown(&log, what, world.named(what));
    several(&client, &log, shown("3"), shown("2"), shown("1"))
        .await
        .unwrap();
    assert_eq!(log.all(), ["1", "2", "3", "client", "body"]);
}

struct Order {
    client: Client,
    name: String,
    patience: Duration,
}

#[distributed_lock(
    keys = ["<order.name>", format!("{}:more", order.name)],
    when = !order.name.is_empty(),
    wait = order.patience,
    client = order.client
)]
async fn moves(order: Order, tail: String) -> Result<(String, String), redlock_rt::Error> {
    let Order { client, name, .. } = order;
    assert_eq!(client.stats().held, 2);
    Ok((name, tail))
}

pub(crate) async fn parameters_are_used_before_they_move(world: &World) {
    let order = Order {
        client: world.client(),
        name: world.name.clone(),
        patience: SPAN,
    };
    let (name, tail) = moves(order, "tail".to_owned()).await.unwrap();
    assert_eq!((&name, &*tail), (&world.name, "tail"));
}
