//! What Redis has under names, of this crate and of Redisson.

use std::future::ready;

use futures::{Stream, StreamExt, TryStreamExt, stream};

use super::Client;
use crate::clock;
use crate::engine::{Handle, Repeat};
use crate::error::{Error, ErrorKind};
use crate::name::{HoldId, LockName};
use crate::wire::{
    ClientIdentity, Inspection, Named, Slot, identity, inspect, name_page, pattern_in, scan,
};

const SCAN: &str = "scan locks";
/// The cursor of the first page.
const START: &str = "0";
/// How many names of a page are asked about at a time.
const AT_ONCE: usize = 16;

impl Client {
    /// Returns what Redis has under a name: a lock of any kind, a semaphore or a latch, of this crate or of
    /// Redisson; `None` if there is nothing.
    ///
    /// Commands on the way to Redis, such as the release of a dropped guard, have no effect yet. The parts
    /// of a [`MultiLock`](crate::MultiLock) are separate locks.
    ///
    /// # Round trips
    ///
    /// One.
    ///
    /// # Errors
    ///
    /// [`WrongType`](crate::ErrorKind::WrongType) if the key is something else,
    /// [`BadInput`](crate::ErrorKind::BadInput), [`Denied`](crate::ErrorKind::Denied) without the right to
    /// read the keys, [`Unavailable`](crate::ErrorKind::Unavailable),
    /// [`ShutDown`](crate::ErrorKind::ShutDown).
    ///
    /// # Examples
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), redlock_rt::Error> {
    /// use redlock_rt::{Client, FoundKind};
    ///
    /// let client = Client::embedded();
    /// assert!(client.inspect("order:7").await?.is_none());
    /// let guard = client.rlock("order:7").lock().await?;
    /// let found = client.inspect("order:7").await?.expect("it is held");
    /// assert_eq!(found.kind, FoundKind::Lock);
    /// assert_eq!(found.holders[0].id, *guard.hold_id());
    /// # Ok(())
    /// # }
    /// ```
    pub async fn inspect(&self, name: impl AsRef<str>) -> Result<Option<Inspection>, Error> {
        let name = name.as_ref();
        let key = self.engine.name(Named::Fair, name)?;
        let read = |reply| Inspection::decode(name, reply);
        self.engine.ask("inspect", &key, inspect(&key), read).await
    }

    /// Returns the identity that the client of this hold reports. `None` for clients of Redisson, clients
    /// without an [identity](crate::ClientBuilder::identity) or with too long a namespace for its key, and
    /// clients that held no lock for long enough to renew it.
    ///
    /// # Round trips
    ///
    /// One.
    ///
    /// # Errors
    ///
    /// [`Denied`](crate::ErrorKind::Denied) without the right to read the key
    /// `redlock_client:{<uuid>}` in the client's namespace,
    /// [`WrongType`](crate::ErrorKind::WrongType), [`Unavailable`](crate::ErrorKind::Unavailable),
    /// [`ShutDown`](crate::ErrorKind::ShutDown), [`BadInput`](crate::ErrorKind::BadInput).
    pub async fn identity_of(&self, hold: &HoldId) -> Result<Option<ClientIdentity>, Error> {
        let Some(key) = self.engine.client_key(hold.client()) else {
            return Ok(None);
        };
        let call = identity(&key);
        self.engine
            .ask("identify", &key, call, ClientIdentity::decode)
            .await
    }

    /// Returns all locks, semaphores and latches in the client's namespace whose names match a pattern of
    /// Redis (`order:*`), in no order, as [`inspect`](Self::inspect) shows them.
    ///
    /// An object that is there from the first poll to the end is returned at least once. Others may or may
    /// not be returned. If a server is replaced or restarted meanwhile, the scan begins again. In a cluster a
    /// slot that moves meanwhile may be missed. Without a
    /// [namespace](crate::ClientBuilder::namespace) the scan also looks at the keys of other programs, and
    /// returns their numbers as [`Number`](crate::FoundKind::Number).
    ///
    /// # Round trips
    ///
    /// One for about 200 keys of the server, and one for each name, 16 at a time; each master of a cluster
    /// is asked in turn. After each page the stream pauses for as long as the page took. Nothing is sent
    /// while it is not polled. The user of the client needs the rights `+scan` and `+type`.
    ///
    /// # Cancel safety
    ///
    /// Nothing is left in Redis if the stream is dropped.
    ///
    /// # Errors
    ///
    /// Those of [`inspect`](Self::inspect), but keys of other types are left out. The stream ends after an
    /// error.
    ///
    /// # Examples
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), redlock_rt::Error> {
    /// use futures::TryStreamExt;
    ///
    /// let client = redlock_rt::Client::embedded();
    /// let _guard = client.rlock("order:7").lock().await?;
    /// let found: Vec<_> = client.scan("order:*").try_collect().await?;
    /// assert_eq!(found[0].name, "order:7");
    /// # Ok(())
    /// # }
    /// ```
    pub fn scan(
        &self,
        pattern: &str,
    ) -> impl Stream<Item = Result<Inspection, Error>> + Send + use<> {
        let (client, pattern) = (self.clone(), pattern.to_owned());
        let pages = stream::try_unfold(Pages::new(&self.engine, pattern), Pages::next);
        pages
            .map_ok(move |names| {
                let client = client.clone();
                let found = stream::iter(names).map(move |name| client.clone().found(name));
                found.buffer_unordered(AT_ONCE)
            })
            .try_flatten()
            // The stream ends after an error, also if its page has more names.
            .scan(false, |is_over, found| {
                let ended = std::mem::replace(is_over, found.is_err());
                ready((!ended).then_some(found))
            })
            .try_filter_map(async |found| Ok(found))
    }

    async fn found(self, name: String) -> Result<Option<Inspection>, Error> {
        match self.inspect(name).await {
            // The name of a key that is no lock, and cannot be one.
            Err(error) if matches!(error.kind(), ErrorKind::WrongType | ErrorKind::BadInput) => {
                Ok(None)
            }
            found => found,
        }
    }
}

/// The pages of a scan, over all servers.
struct Pages {
    engine: Handle,
    /// The caller's pattern, without the client's namespace.
    pattern: String,
    /// A slot of each server; `None`: not known yet.
    servers: Option<Vec<Slot>>,
    /// How many servers have been read.
    read: usize,
    /// The process that gave the cursor.
    process: Option<String>,
    cursor: String,
}

impl Pages {
    fn new(engine: &Handle, pattern: String) -> Self {
        Self {
            engine: engine.clone(),
            pattern,
            servers: None,
            read: 0,
            process: None,
            cursor: START.to_owned(),
        }
    }

    /// The names on the next page.
    async fn next(mut self) -> Result<Option<(Vec<String>, Self)>, Error> {
        let namespace = self.engine.config.namespace.as_deref();
        let name = LockName::new(namespace, &self.pattern)?;
        let servers = match &self.servers {
            Some(servers) => servers,
            None => {
                let servers = self.engine.slots_of_servers(SCAN, &name).await?;
                self.servers.insert(servers)
            }
        };
        let Some(server) = servers.get(self.read).copied() else {
            return Ok(None);
        };
        let began = clock::now();
        let call = scan(&self.cursor, &pattern_in(namespace, &self.pattern));
        let engine = &self.engine;
        let to = engine.to_slot(server);
        let page = engine.send_to(to, SCAN, &name, call, Repeat::Read, name_page);
        let page = page.await?;
        let before = self.process.replace(page.process);
        let is_another = before.is_some() && before != self.process;
        let next = page.next.filter(|_| !is_another);
        if next.is_none() {
            // To another process the cursor means other keys. A slot that stands for a server may be at another one now.
            let is_changed = is_another || *servers != engine.slots_of_servers(SCAN, &name).await?;
            self.read = if is_changed { 0 } else { self.read + 1 };
            self.servers = self.servers.filter(|_| !is_changed);
            self.process = None;
        }
        self.cursor = next.unwrap_or_else(|| START.to_owned());
        let now = clock::now();
        // The server can serve other clients for as long.
        clock::sleep_until(clock::after(now, now - began)).await;
        let start = namespace.map_or(0, |namespace| namespace.len() + 1);
        let own = |name: String| name.get(start..).map(str::to_owned);
        Ok(Some((
            page.names.into_iter().filter_map(own).collect(),
            self,
        )))
    }
}
