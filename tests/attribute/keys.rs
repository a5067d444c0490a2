//! The keys that a function locks.

use redlock_rt::{Client, ErrorKind, MultiLockGuard, distributed_lock};
use tokio::{join, task::yield_now};

use crate::world::{Done, World};

#[distributed_lock(keys = ["<from>", "<to>", also], wait = "10s", guard = held, client = client)]
async fn transfer(
    client: &Client,
    from: &str,
    to: &str,
    also: &str,
    body: impl AsyncFnOnce(&MultiLockGuard) -> Done,
) -> Done {
    body(held).await
}

pub(crate) async fn several_are_sorted_and_taken_once(world: &World) {
    let [a, b, c] = ["a", "b", "c"].map(|name| world.named(name));
    let client = world.client();
    let body = async |held: &MultiLockGuard| {
        assert_eq!(held.hold_ids().len(), 3);
        for name in [&a, &b, &c] {
            assert!(world.is_there(name).await);
        }
        assert_eq!(client.stats().held, 3);
        Ok(())
    };
    transfer(&client, &c, &a, &b, body).await.unwrap();
    let body = async |held: &MultiLockGuard| {
        assert_eq!(held.hold_ids().len(), 1);
        assert_eq!(held.hold_count(), 1);
        Ok(())
    };
    transfer(&client, &b, &b, &b, body).await.unwrap();
    assert!(!world.is_there(&b).await);
}

pub(crate) async fn opposite_orders_never_deadlock(world: &World) {
    let clients = [world.client(), world.client()];
    let (a, b) = (world.named("a"), world.named("b"));
    let inside = std::cell::Cell::new(0);
    let visit = async |_: &MultiLockGuard| {
        inside.set(inside.get() + 1);
        assert_eq!(inside.get(), 1, "two at once");
        for _ in 0..3 {
            yield_now().await;
        }
        inside.set(inside.get() - 1);
        Ok(())
    };
    let transfers = async |client: &Client, from: &str, to: &str| {
        for _ in 0..5 {
            transfer(client, from, to, from, visit).await.unwrap();
        }
    };
    join!(
        transfers(&clients[0], &a, &b),
        transfers(&clients[0], &b, &a),
        transfers(&clients[1], &a, &b),
        transfers(&clients[1], &b, &a),
    );
}

struct User {
    tenant: String,
    id: u32,
}

impl User {
    fn key(&self) -> String {
        format!("{}:{}", self.tenant, self.id)
    }
}

#[distributed_lock(key = user.key(), client = client)]
async fn by_method(client: &Client, user: User) -> Done {
    assert!(client.rlock(user.key()).is_locked().await?);
    Ok(())
}

#[distributed_lock(key = format_args!("{}:{id}", user.tenant), client = client)]
async fn by_arguments(client: &Client, user: User, id: u32) -> Done {
    assert!(
        client
            .rlock(format!("{}:{id}", user.tenant))
            .is_locked()
            .await?
    );
    Ok(())
}

#[distributed_lock(key = prefix.to_owned() + name, client = client)]
async fn by_concatenation(client: &Client, prefix: &str, name: &str) -> Done {
    assert!(client.rlock(format!("{prefix}{name}")).is_locked().await?);
    Ok(())
}

pub(crate) async fn keys_are_expressions_too(world: &World) {
    let client = world.client();
    let user = || User {
        tenant: world.name.clone(),
        id: 7,
    };
    by_method(&client, user()).await.unwrap();
    by_arguments(&client, user(), 8).await.unwrap();
    by_concatenation(&client, &world.name, "/9").await.unwrap();
}

#[distributed_lock(keys = names.iter().rev(), client = client)]
async fn of_list(client: &Client, names: Vec<String>) -> Result<usize, redlock_rt::Error> {
    for name in &names {
        assert!(client.rlock(name).is_locked().await?);
    }
    Ok(client.stats().held)
}

#[distributed_lock(keys = users.iter().map(User::key), client = client)]
async fn of_users(client: &Client, users: &[User]) -> Result<usize, redlock_rt::Error> {
    Ok(client.stats().held)
}

pub(crate) async fn a_list_makes_keys(world: &World) {
    let client = world.client();
    let names = ["x", "y", "x"].map(|name| world.named(name)).to_vec();
    assert_eq!(of_list(&client, names).await.unwrap(), 2);
    let users = [3, 4, 5].map(|id| User {
        tenant: world.name.clone(),
        id,
    });
    assert_eq!(of_users(&client, &users).await.unwrap(), 3);
    let error = of_list(&client, Vec::new()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::BadInput, "{error}");
}

#[distributed_lock(key = "order:<part>", client = client)]
async fn by_part(client: &Client, part: &str) -> Done {
    unreachable!("order: would lock everybody")
}

#[distributed_lock(key = part, client = client)]
async fn by_expression(client: &Client, part: &str) -> Done {
    unreachable!("it is no name")
}

#[distributed_lock(keys = ["order:<name>", "order:<part>"], client = client)]
async fn by_one_of_several(client: &Client, name: &str, part: &str) -> Done {
    unreachable!("one is no name")
}

#[distributed_lock(keys = [part, name], client = client)]
async fn by_one_expression_of_several(client: &Client, name: &str, part: &str) -> Done {
    unreachable!("one is no name")
}

#[distributed_lock(keys = parts, client = client)]
async fn by_list(client: &Client, parts: [&str; 2]) -> Done {
    unreachable!("one is no name")
}

pub(crate) async fn blank_ones_are_refused(world: &World) {
    let (client, name) = (world.client(), &*world.name);
    for blank in ["", " ", "\t\n"] {
        let by_part = by_part(&client, blank).await.unwrap_err();
        assert!(by_part.to_string().contains("<part>"), "{by_part}");
        let errors = [
            by_part,
            by_expression(&client, blank).await.unwrap_err(),
            by_one_of_several(&client, name, blank).await.unwrap_err(),
            by_one_expression_of_several(&client, name, blank)
                .await
                .unwrap_err(),
            by_list(&client, [name, blank]).await.unwrap_err(),
        ];
        for error in errors {
            assert_eq!(error.kind(), ErrorKind::BadInput, "{error}");
            assert!(error.to_string().contains("empty or blank"), "{error}");
        }
    }
    assert_eq!(client.stats().held, 0);
}
