//! One who resigns lets others win.

use std::time::Duration;

use redlock_rt::ClientBuilder;
use tests::{DEADLINE, Proxy, calls, eventually, shared_server, within};

use crate::{campaigns, end, world};

/// Far longer than a client lets others try first that have had the lock.
const SLOW: Duration = Duration::from_millis(300);

/// The other one is far away, and the one who resigns campaigns at once.
async fn another_wins(what: &str, options: fn(ClientBuilder) -> ClientBuilder) {
    let mut world = world(what).await;
    let near = world.client_with(|builder| options(builder.poll_interval(DEADLINE)));
    let proxy = Proxy::to(&shared_server());
    world.clients_connect_to(proxy.url());
    let far = world.client();
    let [near, far] = [(near.clone(), near), (far.clone(), far)]
        .map(|(client, same)| (client, same.leader_election(&world.name)));
    proxy.delay(calls("fenced_acquire"), SLOW);
    for _ in 0..3 {
        let leadership = within(DEADLINE, near.1.campaign()).await.unwrap();
        let term = leadership.term();
        let waiting = campaigns(&far.1);
        eventually(DEADLINE, async || {
            let heard = world.channels(&format!("*{}*", world.name)).await;
            far.0.stats().waiting == 1 && !heard.is_empty()
        })
        .await;
        leadership.resign().await.unwrap();
        let again = campaigns(&near.1);
        let won = within(DEADLINE, waiting).await.unwrap();
        assert!(won.term() > term && !again.is_finished());
        won.resign().await.unwrap();
        drop(within(DEADLINE, again).await.unwrap());
    }
    end(world).await;
}

#[tokio::test]
async fn one_who_resigns_does_not_win_again_while_another_campaigns() {
    another_wins("resigned", |builder| builder).await;
}

/// A client without a linger counts no others.
#[tokio::test]
async fn one_who_had_no_linger_won_again_while_another_campaigned() {
    another_wins("brief", |builder| builder.linger(Duration::ZERO)).await;
}

/// No poll comes before the deadline, so it would wait for ever.
#[tokio::test]
async fn one_who_is_alone_wins_again_at_once() {
    let world = world("alone").await;
    let election = world.client().leader_election(&world.name);
    for _ in 0..10 {
        let leadership = within(DEADLINE, election.campaign()).await.unwrap();
        leadership.resign().await.unwrap();
    }
    end(world).await;
}

/// The announcement of the one who resigns, and the call of the next one.
#[tokio::test]
async fn the_next_one_wins_with_one_call() {
    let mut world = world("calls").await;
    let first = world.client().leader_election(&world.name);
    let proxy = Proxy::to(&shared_server());
    world.clients_connect_to(proxy.url());
    let client = world.client();
    let leadership = first.campaign().await.unwrap();
    let waiting = campaigns(&client.leader_election(&world.name));
    eventually(DEADLINE, async || {
        let heard = world.channels(&format!("*{}*", world.name)).await;
        client.stats().waiting == 1 && !heard.is_empty()
    })
    .await;
    // Its look behind the confirmed subscription.
    proxy.wait_for_count(calls("fenced_acquire"), 2).await;
    proxy.mark();
    leadership.resign().await.unwrap();
    let won = within(DEADLINE, waiting).await.unwrap();
    assert_eq!(
        proxy
            .frames()
            .iter()
            .filter(|frame| frame.is_call())
            .count(),
        1
    );
    won.resign().await.unwrap();
    end(world).await;
}
