//! The receivers of an announcement, and its cost. No beat comes within a test here, so a waiter wakes
//! only by an announcement.

use std::collections::BTreeSet;

use bytes::Bytes;
use futures::StreamExt;
use tests::{RedisServer, RedissonClient, Which, calls, eventually, within};

use crate::stage::{DEADLINE, NEVER, Stage, pass, pass_all, waiter};

/// The number of the oldest waiters of a name that have separate channels beside Redisson's waiters.
const HEADS: usize = 4;

/// The channels of our waiters.
async fn channels_of_waiters(stage: &Stage, uuid: &str) -> BTreeSet<String> {
    let pattern = format!("redisson_lock__channel:{{{}}}:{uuid}:*", stage.name);
    let channels: Vec<String> = stage.redis(&["PUBSUB", "CHANNELS", &pattern]).await;
    channels.into_iter().collect()
}

/// Waits until some queued waiters have a channel each, no more than allowed.
async fn some_have_channels(stage: &Stage, uuid: &str) {
    let channel = |owner: String| format!("redisson_lock__channel:{{{}}}:{owner}", stage.name);
    let queue: BTreeSet<String> = stage.queue().await.into_iter().map(channel).collect();
    let ours = queue
        .iter()
        .filter(|channel| channel.contains(uuid))
        .count();
    eventually(DEADLINE, async || {
        let channels = channels_of_waiters(stage, uuid).await;
        if channels.len() == ours.min(HEADS) && channels.is_subset(&queue) {
            Ok(())
        } else {
            Err(format!("{channels:?} of {queue:?}"))
        }
    })
    .await;
}

/// Once, each name had a pattern, with which the server compared every published message.
#[tokio::test]
async fn each_fair_lock_that_was_waited_for_cost_every_publish() {
    const NAMES: usize = 300;
    let server = RedisServer::start();
    let stage = Stage::on(&server, "fair-names").await;
    let (ours, others) = (stage.client(), stage.client());
    let lock = |client: &redlock_rt::Client, at| client.fair_lock(format!("{}:{at}", stage.name));
    let mut guards = Vec::new();
    let mut waiting = Vec::new();
    for at in 0..NAMES {
        guards.push(lock(&others, at).lock().await.unwrap());
        waiting.push(waiter(&lock(&ours, at)));
    }
    for at in 0..NAMES {
        let lock = lock(&ours, at);
        eventually(DEADLINE, async || lock.queue_len().await.unwrap() == 1).await;
    }
    // The channel of the client, and those of the heads.
    eventually(DEADLINE, async || ours.stats().subscriptions == NAMES + 1).await;
    for guard in guards {
        guard.unlock().await.unwrap();
    }
    pass_all(waiting).await;
    let stats: String = stage.redis(&["INFO", "commandstats"]).await;
    assert!(stats.contains("cmdstat_subscribe:"), "{stats}");
    assert!(!stats.contains("psubscribe"), "{stats}");
    stage.assert_clean().await;
}

#[tokio::test]
async fn a_client_hears_on_its_channel_which_waiter_is_next_for_which_lock() {
    let stage = Stage::open("fair-channel").await;
    let never = |builder: redlock_rt::ClientBuilder| builder.waiter_timeout(NEVER);
    let ours = stage.client_with(|builder| never(builder).namespace("svc"));
    let others = stage.client_with(|builder| never(builder).namespace("svc"));
    let guard = others.fair_lock(&stage.name).lock().await.unwrap();
    let waiting = waiter(&ours.fair_lock(&stage.name));
    eventually(DEADLINE, async || ours.stats().subscriptions == 2).await;
    let whole = format!("svc:{}", stage.name);
    let queue = format!("redisson_lock_queue:{{{whole}}}");
    let owner: String = stage.redis(&["LINDEX", &queue, "0"]).await;
    let (client, number) = owner.rsplit_once(':').unwrap();
    let listening = redis::Client::open(&*stage.url).unwrap();
    let mut heard = listening.get_async_pubsub().await.unwrap();
    heard.psubscribe("red*_*").await.unwrap();
    guard.unlock().await.unwrap();
    let mut messages = heard.on_message();
    let message = loop {
        let message = within(DEADLINE, messages.next()).await.unwrap();
        if message.get_channel_name().contains(client) {
            break message;
        }
    };
    assert_eq!(message.get_channel_name(), format!("redlock_wake:{client}"));
    let payload: String = message.get_payload().unwrap();
    assert_eq!(payload, format!("{number} {whole}"));
    pass(waiting).await;
    stage.assert_clean().await;
}

/// Redisson announces a turn on the channel of the waiter, whichever kind of client it has.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_java_release_wakes_ours_however_long_the_queue() {
    const TURNS: u64 = 3 * HEADS as u64;
    let stage = Stage::open("fair-alternate").await;
    let client = stage.client_with(|builder| builder.waiter_timeout(NEVER));
    let ours = client.fair_lock(&stage.name);
    let java = RedissonClient::connect(&stage.url).await.unwrap();
    let theirs = java.fair_lock(&stage.name);
    assert!(theirs.lock(0, None).await.unwrap());
    let mut waiting = Vec::new();
    for turn in 1..=TURNS {
        waiting.push(waiter(&ours));
        stage.queued(waiting.len() * 2 - 1).await;
        assert!(theirs.attempt(turn, None).await.unwrap().is_some());
    }
    let last = waiter(&ours);
    stage.queued(waiting.len() * 2 + 1).await;
    some_have_channels(&stage, client.uuid()).await;
    for (turn, task) in (0..).zip(waiting) {
        theirs.unlock(turn).await.unwrap();
        pass(task).await;
        assert!(theirs.attempt(turn + 1, None).await.unwrap().is_none());
        // The set of channels moves with the queue.
        some_have_channels(&stage, client.uuid()).await;
    }
    theirs.unlock(TURNS).await.unwrap();
    pass(last).await;
    some_have_channels(&stage, client.uuid()).await;
    stage.assert_clean().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn where_java_is_not_only_the_head_listens_for_it() {
    let (proxy, mut stage) = Stage::behind_a_proxy("fair-alone").await;
    stage.url = proxy.url();
    let client = stage.client_with(|builder| builder.waiter_timeout(NEVER));
    let lock = client.fair_lock(&stage.name);
    let guard = lock.lock().await.unwrap();
    let waiting = stage.queue_up(&lock, 2 * HEADS).await;
    guard.unlock().await.unwrap();
    pass_all(waiting).await;
    let counts = proxy.counts();
    assert_eq!(counts.get("SUBSCRIBE"), Some(&2), "{counts:?}");
    stage.assert_clean().await;
}

/// An announcement before the confirmation of the subscription is found afterwards.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_turn_that_java_announces_before_ours_listen_is_found() {
    let (proxy, mut stage) = Stage::behind_a_proxy("fair-early").await;
    let java = RedissonClient::connect(&stage.url).await.unwrap();
    let elsewhere = format!("{}:elsewhere", stage.name);
    let holder = stage.client_with(|builder| builder.waiter_timeout(NEVER));
    let guard = holder.fair_lock(&elsewhere).lock().await.unwrap();
    stage.url = proxy.url();
    let client = stage.client_with(|builder| builder.waiter_timeout(NEVER));
    let theirs = java.fair_lock(&stage.name);
    assert!(theirs.lock(1, None).await.unwrap());
    // The client is subscribed to its channel.
    let other = waiter(&client.fair_lock(&elsewhere));
    proxy.wait_for_answer(calls("fair_beat")).await;
    proxy.mark();
    let late = proxy.hold_request(tests::Matcher::command("SUBSCRIBE").mentioning("redisson_"));
    let ours = client.fair_lock(&stage.name);
    let waiting = waiter(&ours);
    late.reached().await;
    // The first beat finds the lock held.
    let name = stage.name.clone();
    let of_this =
        calls("fair_beat").and(move |frame| frame.args.contains(&Bytes::from(name.clone())));
    proxy.wait_for_answer(of_this).await;
    theirs.unlock(1).await.unwrap();
    late.open();
    pass(waiting).await;
    guard.unlock().await.unwrap();
    pass(other).await;
    stage.assert_clean().await;
}

/// A second name needs no further subscription to be heard by ours.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_waiter_for_another_name_is_heard_at_once() {
    let (proxy, mut stage) = Stage::behind_a_proxy("fair-second").await;
    let holder = stage.client_with(|builder| builder.waiter_timeout(NEVER));
    let second = format!("{}:second", stage.name);
    let first_guard = holder.fair_lock(&stage.name).lock().await.unwrap();
    let second_guard = holder.fair_lock(&second).lock().await.unwrap();
    stage.url = proxy.url();
    let client = stage.client_with(|builder| builder.waiter_timeout(NEVER));
    let first = waiter(&client.fair_lock(&stage.name));
    proxy.wait_for_answer(calls("fair_beat")).await;
    proxy.mark();
    let beat = proxy.hold_request(calls("fair_beat").mentioning(second.clone()));
    let lock = client.fair_lock(&second);
    let waiting = waiter(&lock);
    eventually(DEADLINE, async || lock.queue_len().await.unwrap() == 1).await;
    beat.reached().await;
    second_guard.unlock().await.unwrap();
    pass(waiting).await;
    assert!(proxy.count("SUBSCRIBE") <= 1, "that of the head");
    beat.open();
    first_guard.unlock().await.unwrap();
    pass(first).await;
    stage.assert_clean().await;
}

/// The names `a` and `{a}` have one queue: a release of one may wake a waiter of the other.
#[tokio::test]
async fn a_turn_announced_for_the_name_in_braces_is_heard() {
    let stage = Stage::open("fair-twin").await;
    let client = stage.client_with(|builder| builder.waiter_timeout(NEVER));
    let plain = client.fair_lock(&stage.name);
    let braced = client.fair_lock(format!("{{{}}}", stage.name));
    let (one, other) = (plain.lock().await.unwrap(), braced.lock().await.unwrap());
    let first = waiter(&plain);
    stage.queued(1).await;
    let second = waiter(&braced);
    stage.queued(2).await;
    other.unlock().await.unwrap();
    one.unlock().await.unwrap();
    pass_all([first, second]).await;
    stage.assert_clean().await;
}

/// After an outage its channel is confirmed anew, and the client asks.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn turns_of_several_names_announced_while_nobody_listened_are_found() {
    let (proxy, mut stage) = Stage::behind_a_proxy("fair-cut").await;
    let holder = stage.client_with(|builder| builder.waiter_timeout(NEVER));
    let names = [stage.name.clone(), format!("{}:b", stage.name)];
    let mut guards = Vec::new();
    for name in &names {
        guards.push(holder.fair_lock(name).lock().await.unwrap());
    }
    stage.url = proxy.url();
    let client = stage.client_with(|builder| builder.waiter_timeout(NEVER));
    let mut waiting = Vec::new();
    for name in &names {
        let lock = client.fair_lock(name);
        waiting.push(waiter(&lock));
        eventually(DEADLINE, async || lock.queue_len().await.unwrap() == 1).await;
    }
    proxy.wait_for_answer(calls("fair_beat")).await;
    proxy.refuse();
    proxy.cut(Which::Subscribers);
    for guard in guards {
        guard.unlock().await.unwrap();
    }
    proxy.accept();
    pass_all(waiting).await;
    stage.assert_clean().await;
}
