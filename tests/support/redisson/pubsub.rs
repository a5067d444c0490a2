//! Subscriptions: one per channel and client, shared by its waiters.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use futures::StreamExt;
use redis::{
    RedisResult,
    aio::{PubSubSink, PubSubStream},
};
use tokio::{sync::Semaphore, task::JoinHandle};

/// The local latch on which the waiters of a channel sleep; it keeps a message that comes while none
/// sleeps.
pub(super) type Latch = Arc<Semaphore>;

#[derive(Debug)]
pub(super) struct Subscriptions {
    // Also keeps SUBSCRIBE and UNSUBSCRIBE of a channel in order.
    sink: tokio::sync::Mutex<Sink>,
    entries: Arc<Mutex<BTreeMap<String, Entry>>>,
    reader: JoinHandle<()>,
}

struct Sink(PubSubSink);

#[derive(Debug)]
struct Entry {
    latch: Latch,
    waiters: usize,
}

impl Subscriptions {
    pub(super) async fn connect(client: &redis::Client) -> RedisResult<Self> {
        let (sink, stream) = client.get_async_pubsub().await?.split();
        let entries = Arc::new(Mutex::default());
        let reader = tokio::spawn(read(stream, entries.clone()));
        Ok(Self {
            sink: tokio::sync::Mutex::new(Sink(sink)),
            entries,
            reader,
        })
    }

    pub(super) fn channels(&self) -> Vec<String> {
        lock(&self.entries).keys().cloned().collect()
    }

    /// Joins the waiters of a channel; subscribed when this returns.
    pub(super) async fn join(&self, channel: &str) -> RedisResult<Latch> {
        let mut sink = self.sink.lock().await;
        let joined = {
            let mut entries = lock(&self.entries);
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
        lock(&self.entries).insert(channel.to_owned(), entry);
        let subscribed = sink.0.subscribe(channel).await;
        if subscribed.is_err() {
            lock(&self.entries).remove(channel);
        }
        subscribed.map(|()| latch)
    }

    /// Leaves the waiters of a channel; the last one unsubscribes.
    pub(super) async fn leave(&self, channel: &str) -> RedisResult<()> {
        let mut sink = self.sink.lock().await;
        let last = {
            let mut entries = lock(&self.entries);
            let entry = entries.get_mut(channel).expect("leaves what was joined");
            entry.waiters -= 1;
            let last = entry.waiters == 0;
            if last {
                entries.remove(channel);
            }
            last
        };
        if last {
            sink.0.unsubscribe(channel).await
        } else {
            Ok(())
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

async fn read(mut stream: PubSubStream, entries: Arc<Mutex<BTreeMap<String, Entry>>>) {
    while let Some(message) = stream.next().await {
        let entries = lock(&entries);
        let Some(entry) = entries.get(message.get_channel_name()) else {
            continue;
        };
        // For a semaphore the number of permits, each of which wakes one waiter.
        if message.get_channel_name().starts_with("redisson_sc:") {
            let permits = message.get_payload::<i64>().unwrap_or_default();
            let permits = usize::try_from(permits).unwrap_or_default();
            entry.latch.add_permits(permits.min(entry.waiters));
            continue;
        }
        // Other payloads have no effect.
        match message.get_payload::<i64>() {
            Ok(0) => entry.latch.add_permits(1),
            Ok(1) => entry.latch.add_permits(entry.waiters),
            _ => {}
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
