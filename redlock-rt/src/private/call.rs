//! A call of a function under the attribute, up to where its body may run.

use std::time::{Duration, SystemTime};

use super::ACTION;
use super::guard::Guard;
use super::key::Key;
use super::run::Entering;
use super::session::{BodyTerms, LockedBody, OnLost};
use crate::client::{Client, default_client};
use crate::error::{Error, ErrorKind};
use crate::sync::{Fire, LockOptions, MultiLock, Part, PermitOptions, Renew};

/// A kind of lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs, reason = "they are called what the options are called")]
pub enum LockKind {
    Reentrant,
    Fair,
    Read,
    Write,
    Fenced,
    Spin,
}

/// The primitive of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Primitive {
    /// A lock, or several.
    Lock(LockKind),
    /// Permits of a semaphore.
    Semaphore {
        /// The number of permits of the semaphore.
        limit: u32,
        /// The number of permits to acquire.
        take: u32,
    },
    /// A job that is done once for this nominal time.
    Once(SystemTime),
}

/// Returns the given client, or the default client.
///
/// # Errors
///
/// If there is neither.
pub fn client(explicit: Option<&Client>) -> Result<Client, Error> {
    match explicit {
        Some(client) => Ok(client.clone()),
        None => default_client().ok_or_else(|| {
            Error::bad_input(
                ACTION,
                "no client: name one with `client = ..`, or call set_default_client first (in a test: with_default_client)",
            )
        }),
    }
}

/// A span, `true` or `false`.
pub fn renew(renew: impl Into<Renew>) -> Renew {
    renew.into()
}

/// A nominal time.
pub fn fire(time: impl Into<SystemTime>) -> SystemTime {
    time.into()
}

/// One call, with the options of its function.
#[derive(Debug)]
#[must_use]
pub struct AttributeCall {
    label: &'static str,
    key: Result<Key, Error>,
    client: Result<Client, Error>,
    /// `None`: the client's.
    wait: Option<Option<Duration>>,
    options: LockOptions,
    on_lost: OnLost,
}

impl AttributeCall {
    /// A call with these options. `label` is the name of the function.
    pub fn new(
        label: &'static str,
        key: Result<Key, Error>,
        client: Result<Client, Error>,
        options: LockOptions,
    ) -> Self {
        Self {
            label,
            key,
            client,
            wait: None,
            options,
            on_lost: OnLost::Cancel,
        }
    }

    /// Sets the wait; `None`: no limit.
    pub fn wait(mut self, wait: Option<Duration>) -> Self {
        self.wait = Some(wait);
        self
    }

    /// Sets what happens after a loss.
    pub fn on_lost(mut self, on_lost: OnLost) -> Self {
        self.on_lost = on_lost;
        self
    }

    /// Acquires the lock of this kind.
    pub fn enter(self, kind: Primitive) -> Entering {
        Entering::new(self.acquire(kind))
    }

    /// Continues without a lock.
    pub fn without() -> Entering {
        let terms = BodyTerms {
            label: "",
            client: None,
            on_lost: OnLost::Finish,
        };
        Entering::new(std::future::ready(Ok(LockedBody::new(terms, None))))
    }

    async fn acquire(self, kind: Primitive) -> Result<LockedBody, Error> {
        let (client, key) = (self.client?, self.key?);
        let wait = self.wait.unwrap_or_else(|| client.default_wait());
        let options = self.options.label(self.label).wait(wait).for_body();
        let guard = match (kind, key) {
            (Primitive::Semaphore { limit, take }, Key::One(name)) => {
                if take > limit {
                    let why = format!("{take} permits of at most {limit}");
                    return Err(Error::bad_input(ACTION, why).named(&name.into()));
                }
                let options = PermitOptions::of(take, options);
                let semaphore = client.permit_expirable_semaphore(name).limit(limit);
                Guard::Permit(semaphore.acquire_with(options).await?)
            }
            (Primitive::Once(fire), Key::One(name)) => {
                let once = client.once(&name, fire).options(options);
                let Fire::Run(guard) = once.start().await? else {
                    return Err(Error::new(ErrorKind::Contended, ACTION).named(&name.into()));
                };
                Guard::Once(guard)
            }
            (Primitive::Lock(kind), Key::One(name)) => one(&client, kind, &name, options).await?,
            (Primitive::Lock(kind), Key::All(names)) => {
                let parts = names.iter().map(|name| part(&client, kind, name));
                let lock = MultiLock::new(parts);
                Guard::Multi(lock.lock_with(options).await?)
            }
            (_, Key::All(_)) => unreachable!("the attribute takes several keys for locks only"),
        };
        let terms = BodyTerms {
            label: self.label,
            client: Some(client),
            on_lost: self.on_lost,
        };
        Ok(LockedBody::new(terms, Some(guard)))
    }
}

async fn one(
    client: &Client,
    kind: LockKind,
    name: &str,
    options: LockOptions,
) -> Result<Guard, Error> {
    Ok(match kind {
        LockKind::Reentrant => Guard::Reentrant(client.rlock(name).lock_with(options).await?),
        LockKind::Fair => Guard::Fair(client.fair_lock(name).lock_with(options).await?),
        LockKind::Fenced => Guard::Fenced(client.fenced_lock(name).lock_with(options).await?),
        LockKind::Spin => Guard::Spin(client.spin_lock(name).lock_with(options).await?),
        LockKind::Read => Guard::Read(client.read_write_lock(name).read_with(options).await?),
        LockKind::Write => Guard::Write(client.read_write_lock(name).write_with(options).await?),
    })
}

fn part(client: &Client, kind: LockKind, name: &str) -> Part {
    match kind {
        LockKind::Reentrant => client.rlock(name).into(),
        LockKind::Fair => client.fair_lock(name).into(),
        LockKind::Fenced => client.fenced_lock(name).into(),
        LockKind::Spin => client.spin_lock(name).into(),
        LockKind::Read => client.read_write_lock(name).read_lock().into(),
        LockKind::Write => client.read_write_lock(name).write_lock().into(),
    }
}
