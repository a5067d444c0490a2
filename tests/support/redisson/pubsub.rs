//! Subscriptions: one per channel and client, shared by its waiters.

use std::{
    collections::BTreeMap,
    io,
    sync::{Arc, Mutex},
    time::Duration,
};

use futures::StreamExt;
use redis::{
    AsyncConnectionConfig, FromRedisValue, PushInfo, PushKind, RedisResult,
    aio::{MultiplexedConnection, PubSubSink, PubSubStream},
};
use tokio::time::{sleep, timeout};
use tokio::{
    sync::{
        Notify, Semaphore,
        mpsc::{UnboundedReceiver, unbounded_channel},
    },
    task::JoinHandle,
};

use super::Surroundings;
use crate::lock;

/// `retryDelay`: how long it waits before it connects again.
const AGAIN: Duration = Duration::from_secs(1);
/// `subscriptionTimeout`.
const SUBSCRIBE: Duration = Duration::from_millis(7500);

/// The local latch on which the waiters of a channel sleep; it keeps a message that comes while none
/// sleeps.
pub(super) type Latch = Arc<Semaphore>;

#[derive(Debug)]
pub(super) struct Subscriptions {
    shared: Arc<Shared>,
    reader: JoinHandle<()>,
}

/// With the task that reads.
#[derive(Debug)]
struct Shared {
    // Also keeps SUBSCRIBE and UNSUBSCRIBE of a channel in order.
    sink: tokio::sync::Mutex<Sink>,
    entries: Mutex<BTreeMap<String, Entry>>,
    /// Nobody answers on the connection.
    silent: Notify,
}

enum Sink {
    Plain(PubSubSink),
    /// In a cluster, for SSUBSCRIBE.
    Shard(MultiplexedConnection),
}

impl Sink {
    async fn subscribe(&mut self, channel: &str) -> RedisResult<()> {
        match self {
            Self::Plain(sink) => sink.subscribe(channel).await,
            Self::Shard(connection) => {
                let mut command = redis::cmd("SSUBSCRIBE");
                command.arg(channel).exec_async(connection).await
            }
        }
    }

    async fn unsubscribe(&mut self, channel: &str) -> RedisResult<()> {
        match self {
            Self::Plain(sink) => sink.unsubscribe(channel).await,
            Self::Shard(connection) => {
                let mut command = redis::cmd("SUNSUBSCRIBE");
                command.arg(channel).exec_async(connection).await
            }
        }
    }
}

impl Shared {
    fn new(sink: Sink) -> Arc<Self> {
        Arc::new(Self {
            sink: tokio::sync::Mutex::new(sink),
            entries: Mutex::default(),
            silent: Notify::new(),
        })
    }
}

#[derive(Debug)]
struct Entry {
    latch: Latch,
    waiters: usize,
}

impl Subscriptions {
    pub(super) async fn connect(surroundings: &Surroundings) -> RedisResult<Self> {
        let (sink, stream) = surroundings.pubsub().await?.split();
        let shared = Shared::new(Sink::Plain(sink));
        let keep = Keep {
            surroundings: surroundings.clone(),
            shared: shared.clone(),
        };
        let reader = tokio::spawn(keep.run(stream));
        Ok(Self { shared, reader })
    }

    /// To the master of a shard; `url` asks for RESP3.
    pub(super) async fn connect_to_shard(url: &str) -> RedisResult<Self> {
        let (sender, pushed) = unbounded_channel();
        let config = AsyncConnectionConfig::new().set_push_sender(sender);
        let client = redis::Client::open(url)?;
        let connection = client
            .get_multiplexed_async_connection_with_config(&config)
            .await?;
        let shared = Shared::new(Sink::Shard(connection));
        let reader = tokio::spawn(read_shard(pushed, shared.clone()));
        Ok(Self { shared, reader })
    }

    pub(super) fn channels(&self) -> Vec<String> {
        lock(&self.shared.entries).keys().cloned().collect()
    }

    /// Joins the waiters of a channel; subscribed when this returns.
    pub(super) async fn join(&self, channel: &str) -> RedisResult<Latch> {
        let mut sink = self.shared.sink.lock().await;
        let joined = {
            let mut entries = lock(&self.shared.entries);
            entries.get_mut(channel).map(|entry| {
                entry.waiters += 1;
                entry.latch.clone()
            })
        };
        if let Some(latch) = joined {
            return Ok(latch);
        }
        let latch = Latch::new(Semaphore::new(0));
        let entry = Entry {
            latch: latch.clone(),
            waiters: 1,
        };
        lock(&self.shared.entries).insert(channel.to_owned(), entry);
        let subscribed = self.in_time(sink.subscribe(channel)).await;
        if subscribed.is_err() {
            lock(&self.shared.entries).remove(channel);
        }
        subscribed.map(|()| latch)
    }

    /// Leaves the waiters of a channel; the last one unsubscribes.
    pub(super) async fn leave(&self, channel: &str) -> RedisResult<()> {
        let mut sink = self.shared.sink.lock().await;
        let last = {
            let mut entries = lock(&self.shared.entries);
            let entry = entries.get_mut(channel).expect("leaves what was joined");
            entry.waiters -= 1;
            let last = entry.waiters == 0;
            if last {
                entries.remove(channel);
            }
            last
        };
        if last {
            self.in_time(sink.unsubscribe(channel)).await
        } else {
            Ok(())
        }
    }

    async fn in_time(&self, call: impl Future<Output = RedisResult<()>>) -> RedisResult<()> {
        match timeout(SUBSCRIBE, call).await {
            Ok(answered) => answered,
            Err(_) => {
                self.shared.silent.notify_one();
                Err(io::Error::from(io::ErrorKind::TimedOut).into())
            }
        }
    }
}

impl Drop for Subscriptions {
    fn drop(&mut self) {
        self.reader.abort();
    }
}

impl std::fmt::Debug for Sink {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Sink")
    }
}

/// Reads messages; when the connection is gone, makes another that has the same subscriptions.
struct Keep {
    surroundings: Surroundings,
    shared: Arc<Shared>,
}

impl Keep {
    async fn run(self, mut stream: PubSubStream) {
        loop {
            tokio::select! {
                biased;
                () = self.shared.silent.notified() => {}
                () = read(stream, &self.shared) => {}
            }
            stream = self.again().await;
        }
    }

    async fn again(&self) -> PubSubStream {
        loop {
            sleep(AGAIN).await;
            let Ok(pubsub) = self.surroundings.pubsub().await else {
                continue;
            };
            let (mut next, stream) = pubsub.split();
            let mut sink = self.shared.sink.lock().await;
            let channels: Vec<String> = lock(&self.shared.entries).keys().cloned().collect();
            let subscribed = async {
                match channels.is_empty() {
                    true => Ok(()),
                    false => next.subscribe(&channels).await,
                }
            };
            let subscribed = timeout(SUBSCRIBE, subscribed).await;
            if subscribed.is_ok_and(|subscribed| subscribed.is_ok()) {
                *sink = Sink::Plain(next);
                return stream;
            }
        }
    }
}

async fn read(mut stream: PubSubStream, shared: &Shared) {
    while let Some(message) = stream.next().await {
        let payload = message.get_payload().ok();
        hear(shared, message.get_channel_name(), payload);
    }
}

async fn read_shard(mut pushed: UnboundedReceiver<PushInfo>, shared: Arc<Shared>) {
    while let Some(PushInfo { kind, data }) = pushed.recv().await {
        let words: Vec<String> = data
            .into_iter()
            .map(|word| String::from_redis_value(word).unwrap_or_default())
            .collect();
        if let (PushKind::SMessage, [channel, payload]) = (kind, words.as_slice()) {
            hear(&shared, channel, payload.parse().ok());
        }
    }
}

fn hear(shared: &Shared, channel: &str, payload: Option<i64>) {
    let entries = lock(&shared.entries);
    let Some(entry) = entries.get(channel) else {
        return;
    };
    // For a semaphore the number of permits, each of which wakes one waiter.
    if channel.starts_with("redisson_sc:") {
        let permits = usize::try_from(payload.unwrap_or_default()).unwrap_or_default();
        entry.latch.add_permits(permits.min(entry.waiters));
        return;
    }
    // Other payloads have no effect.
    match payload {
        Some(0) => entry.latch.add_permits(1),
        Some(1) => entry.latch.add_permits(entry.waiters),
        _ => {}
    }
}
