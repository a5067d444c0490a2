//! What a client hears from its beats.

use redlock_rt::{LockOptions, Owner};
use tests::{Proxy, RedisServer, Which};

use crate::{
    scripts::calls,
    stage::{NEVER, Stage, pass, wait},
};

/// The subscription was confirmed while a beat was under way. What was announced before is found
/// by a beat that is sent after it, and none was sent before the next was due, 30 s later.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_beat_asked_for_while_one_was_under_way_was_forgotten() {
    let server = RedisServer::start();
    let proxy = Proxy::to(&server);
    let mut stage = Stage::on(&server, "fair-asked").await;
    let others = stage.client().fair_lock(&stage.name);
    let first = others.lock().await.unwrap();
    let second = wait(&others, &Owner::new(), LockOptions::new());
    stage.queued(1).await;
    stage.url = proxy.url();
    let client = stage.client_with(|builder| builder.waiter_timeout(NEVER).response_timeout(NEVER));
    let ours = client.fair_lock(&stage.name);
    // The beat that follows the subscription finds that another client is next.
    let under_way = proxy.hold_reply(calls!("fair_beat"));
    let third = wait(&ours, &Owner::new(), LockOptions::new());
    stage.queued(2).await;
    under_way.reached().await;
    // Its turn is announced while it is not subscribed.
    proxy.refuse();
    proxy.cut(Which::Subscribers);
    first.unlock().await.unwrap();
    pass(second).await;
    proxy.mark();
    proxy.accept();
    proxy.wait_for_answer("PSUBSCRIBE").await;
    // The client has read what came before this.
    assert!(!ours.is_locked().await.unwrap());
    under_way.open();
    pass(third).await;
    stage.assert_clean().await;
}
