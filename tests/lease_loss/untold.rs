//! Tracking where messages do not come: connections that break, rights that are missing, servers that do
//! not know it.

use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redlock_rt::{Client, LockOptions, LostReason, embedded::Engine};
use tests::{Proxy, RedisServer, ask, assert_clean, eventually, trace_init, unique, within};

use crate::{
    DEADLINE, LINGER,
    tracked::{tracking, until_watched, watched},
};

/// What a server says of one client.
fn field<'a>(client: &'a str, name: &str) -> &'a str {
    let mut fields = client.split(' ').filter_map(|field| field.split_once('='));
    fields.find(|(key, _)| *key == name).unwrap().1
}

/// The ids of the client that renews and of the one that is told, if there are both.
async fn pair(redis: &MultiplexedConnection) -> Option<(String, String)> {
    let clients: String = ask(redis, &["CLIENT", "LIST"]).await;
    let told: Vec<_> = clients.lines().map(|client| field(client, "id")).collect();
    let renews = clients
        .lines()
        .find(|client| told.contains(&field(client, "redir")))?;
    let (id, told) = (field(renews, "id"), field(renews, "redir"));
    Some((id.to_owned(), told.to_owned()))
}

/// The connection that renews, or that is told, is killed; then, at once or when the server watches the key
/// again, the lock is deleted.
#[tokio::test]
async fn a_loss_is_told_after_a_connection_was_made_anew() {
    trace_init();
    let server = RedisServer::start();
    let redis = server.connect().await.unwrap();
    let client = tracking(&server.url());
    let name = unique("anew");
    for of_renewals in [true, false] {
        for at_once in [true, false] {
            let guard = client.rlock(&name).lock().await.unwrap();
            until_watched(&redis, 1).await;
            let (renews, told) = eventually(DEADLINE, async || pair(&redis).await).await;
            let victim = if of_renewals { &renews } else { &told };
            assert!(ask::<bool>(&redis, &["CLIENT", "KILL", "ID", victim]).await);
            if !at_once {
                eventually(DEADLINE, async || {
                    let now = pair(&redis).await;
                    now.is_some_and(|now| now.0 != *victim && now.1 != *victim)
                })
                .await;
                until_watched(&redis, 1).await;
                assert!(guard.is_valid());
            }
            assert!(ask::<bool>(&redis, &["DEL", &name]).await);
            assert_eq!(within(DEADLINE, guard.lost()).await, LostReason::Deleted);
        }
    }
    assert_clean(&server, &name, [&client]).await;
}

/// Others delete the lock behind its renewal, before the server watches its key.
#[tokio::test]
async fn a_lock_that_is_gone_before_its_key_is_watched_is_lost_at_once() {
    trace_init();
    let server = RedisServer::start();
    let proxy = Proxy::to(&server);
    let redis = server.connect().await.unwrap();
    let client = tracking(&proxy.url());
    let name = unique("between");
    let first = client.rlock(format!("{name}:first")).lock().await.unwrap();
    until_watched(&redis, 1).await;
    let gate = proxy.hold_request(tests::Matcher::command("EXISTS").mentioning(&name));
    let guard = client.rlock(&name).lock().await.unwrap();
    gate.reached().await;
    assert!(ask::<bool>(&redis, &["DEL", &name]).await);
    assert!(guard.is_valid());
    gate.open();
    assert_eq!(within(DEADLINE, guard.lost()).await, LostReason::Deleted);
    assert!(first.is_valid());
}

/// As without tracking: the next renewal notices it, and the probe says so.
async fn is_noticed_late(client: &Client, redis: &MultiplexedConnection) {
    let name = unique("late");
    let options = LockOptions::new().renew(Duration::from_millis(200));
    let guard = client.rlock(&name).lock_with(options).await.unwrap();
    eventually(DEADLINE, async || !client.health().await.told_of_losses).await;
    assert!(guard.is_valid(), "{:?}", guard.state());
    assert!(ask::<bool>(redis, &["DEL", &name]).await);
    assert_eq!(within(DEADLINE, guard.lost()).await, LostReason::Deleted);
    drop(guard);
    eventually(DEADLINE, async || client.stats().names == 0).await;
}

#[tokio::test]
async fn without_a_right_a_loss_is_noticed_as_late_as_without_tracking() {
    trace_init();
    let server = RedisServer::start();
    let redis = server.connect().await.unwrap();
    let without = [
        ["-client|tracking", "+@all"],
        ["-client|caching", "+@all"],
        ["resetchannels", "&redisson_*"],
    ];
    for [first, second] in without {
        let user = unique("user").replace(':', "-");
        let all = ["ACL", "SETUSER", &user, "on", ">pw", "~*", "&*", "+@all"];
        let _: () = ask(&redis, &[&all[..], &[first, second]].concat()).await;
        if second == "+@all" {
            let _: () = ask(&redis, &["ACL", "SETUSER", &user, first]).await;
        }
        let login = format!("redis://{user}:pw@");
        let client = tracking(&server.url().replace("redis://", &login));
        is_noticed_late(&client, &redis).await;
        assert_eq!(watched(&redis).await, 0);
    }
    let client = tracking(&server.url());
    assert!(client.health().await.told_of_losses);
    let plain = Client::connect(&server.url()).await.unwrap();
    assert!(!plain.health().await.told_of_losses);
}

/// It knows no such command.
#[tokio::test]
async fn on_the_embedded_engine_a_loss_is_noticed_as_late_as_without_tracking() {
    trace_init();
    let engine = Engine::new();
    let redis = tests::connection_over(engine.connect()).await.unwrap();
    let builder = Client::builder().embedded(&engine).tracking(true);
    is_noticed_late(&builder.linger(LINGER).build().unwrap(), &redis).await;
}
