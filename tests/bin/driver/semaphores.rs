//! The commands of semaphores, with leases (`psem.`) and without (`sem.`).

use std::{collections::HashMap, sync::Mutex, time::Duration};

use redlock_rt::{Error, LeasedPermit, PermitOptions};
use tests::lock;

use super::{
    answer::{Failure, Outcome},
    clients::Connected,
    locks::or_nil,
};

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct SemaphoreCommand {
    leased: bool,
    name: String,
    of: Of,
}

#[derive(Debug, PartialEq, Eq)]
enum Of {
    SetPermits(u32),
    AddPermits(i32),
    /// `None`: without a limit. With a wait, the answer is whether the permits were acquired.
    Acquire {
        permits: u32,
        wait: Option<Duration>,
        bounded: bool,
    },
    Permit {
        permits: u32,
        wait: Option<Duration>,
        lease: Option<Duration>,
    },
    Release(u32),
    ReleaseId {
        id: String,
        strict: bool,
    },
    UpdateLease {
        id: String,
        lease: Duration,
    },
    Available,
    Drain,
    Permits,
    Acquired,
}

/// The permits that a client renews, by semaphore and id.
#[derive(Debug, Default)]
pub(crate) struct Permits(Mutex<HashMap<(String, String), LeasedPermit>>);

impl Permits {
    /// Drops all guards, which queues their releases.
    pub(crate) fn drop_all(&self) {
        lock(&self.0).clear();
    }
}

impl SemaphoreCommand {
    /// `None` for another command.
    pub(crate) fn parse(command: &str, args: &[&str]) -> Option<Result<Self, Failure>> {
        let (leased, verb) = match command.split_once('.')? {
            ("sem", verb) => (false, verb),
            ("psem", verb) => (true, verb),
            _ => return None,
        };
        Some(Self::parse_verb(leased, verb, args).unwrap_or_else(|| {
            let args = args.join(" ");
            Err(Failure::usage(format!("cannot be: {command} {args}")))
        }))
    }

    fn parse_verb(leased: bool, verb: &str, args: &[&str]) -> Option<Result<Self, Failure>> {
        let (name, rest) = args.split_first()?;
        let of = match (leased, verb, rest) {
            (_, "setpermits", [n]) => Of::SetPermits(count(n)?),
            (_, "addpermits", [n]) => Of::AddPermits(n.parse().ok()?),
            (false, "acquire", [n]) => Of::Acquire {
                permits: count(n)?,
                wait: None,
                bounded: false,
            },
            (false, "acquire", [n, wait]) => Of::Acquire {
                permits: count(n)?,
                wait: waiting(wait)?,
                bounded: true,
            },
            (false, "tryacquire", [n]) => Of::Acquire {
                permits: count(n)?,
                wait: Some(Duration::ZERO),
                bounded: true,
            },
            (false, "release", [n]) => Of::Release(count(n)?),
            (false, "drain", []) => Of::Drain,
            (true, "acquire", [wait, lease]) => Of::Permit {
                permits: 1,
                wait: waiting(wait)?,
                lease: millis(lease)?,
            },
            (true, "acquiren", [n, wait, lease]) => Of::Permit {
                permits: count(n)?,
                wait: waiting(wait)?,
                lease: millis(lease)?,
            },
            (true, "release" | "tryrelease", [id]) => Of::ReleaseId {
                id: (*id).to_owned(),
                strict: verb == "release",
            },
            (true, "updatelease", [id, lease]) => Of::UpdateLease {
                id: (*id).to_owned(),
                lease: millis(lease)?.unwrap_or_default(),
            },
            (_, "available", []) => Of::Available,
            (true, "permits", []) => Of::Permits,
            (true, "acquired", []) => Of::Acquired,
            _ => return None,
        };
        Some(Ok(Self {
            leased,
            name: (*name).to_owned(),
            of,
        }))
    }

    pub(crate) async fn run(self, client: &Connected, permits: &Permits) -> Outcome {
        match self.leased {
            true => self.run_leased(client, permits).await,
            false => self.run_plain(client).await,
        }
    }

    async fn run_plain(self, client: &Connected) -> Outcome {
        let semaphore = client.client.semaphore(&self.name);
        Ok(match self.of {
            Of::SetPermits(n) => semaphore.try_set_permits(n).await?.to_string(),
            Of::AddPermits(n) => done(semaphore.add_permits(n).await)?,
            Of::Acquire {
                permits,
                wait,
                bounded,
            } => {
                // The releasing process names the number, and may be another one.
                let options = PermitOptions::new().permits(permits).wait(wait);
                let taken = taken(semaphore.acquire_with(options).await)?;
                let is_taken = taken.is_some();
                taken
                    .into_iter()
                    .for_each(redlock_rt::SemaphorePermit::forget);
                match bounded {
                    true => is_taken.to_string(),
                    false => "ok".to_owned(),
                }
            }
            Of::Release(n) => done(semaphore.release(n).await)?,
            Of::Drain => semaphore.drain().await?.to_string(),
            _ => semaphore.available_permits().await?.to_string(),
        })
    }

    async fn run_leased(self, client: &Connected, permits: &Permits) -> Outcome {
        let name = self.name;
        let semaphore = client.client.permit_expirable_semaphore(&name);
        Ok(match self.of {
            Of::SetPermits(n) => semaphore.try_set_permits(n).await?.to_string(),
            Of::AddPermits(n) => done(semaphore.add_permits(n).await)?,
            Of::Permit {
                permits: n,
                wait,
                lease,
            } => {
                let options = PermitOptions::new().permits(n).wait(wait);
                let options = match lease {
                    Some(lease) => options.lease(lease).renew(false),
                    None => options,
                };
                let taken = taken(semaphore.acquire_with(options).await)?;
                let ids = taken.map(|permit| {
                    let ids = permit.ids().join(",");
                    let key = (name, permit.id().to_owned());
                    // An explicit lease is not renewed, as in Redisson.
                    match lease {
                        Some(_) => drop(permit.forget()),
                        None => drop(lock(&permits.0).insert(key, permit)),
                    }
                    ids
                });
                or_nil(ids)
            }
            Of::ReleaseId { id, strict } => {
                // By its id, since other permits of its guard may stay. A guard of one permit ends.
                let released = match strict {
                    true => done(semaphore.release(&id).await)?,
                    false => semaphore.try_release(&id).await?.to_string(),
                };
                let mut guards = lock(&permits.0);
                let key = (name, id);
                if guards.get(&key).is_some_and(|guard| guard.ids().len() == 1) {
                    drop(guards.remove(&key));
                }
                released
            }
            Of::UpdateLease { id, lease } => semaphore.update_lease(&id, lease).await?.to_string(),
            Of::Permits => semaphore.permits().await?.to_string(),
            Of::Acquired => semaphore.acquired().await?.to_string(),
            _ => semaphore.available_permits().await?.to_string(),
        })
    }
}

fn done(outcome: Result<(), Error>) -> Outcome {
    Ok(outcome.map(|()| "ok".to_owned())?)
}

fn taken<T>(outcome: Result<T, Error>) -> Result<Option<T>, Failure> {
    match outcome {
        Ok(guard) => Ok(Some(guard)),
        Err(error) if error.is_contended() => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// A number of permits; the library refuses invalid numbers.
fn count(word: &str) -> Option<u32> {
    let number: i128 = word.parse().ok()?;
    let refused = if number < 0 { 0 } else { u32::MAX };
    Some(u32::try_from(number).unwrap_or(refused))
}

/// For ever if it is negative.
fn waiting(word: &str) -> Option<Option<Duration>> {
    let ms: i64 = word.parse().ok()?;
    Some(u64::try_from(ms).ok().map(Duration::from_millis))
}

/// `None`, so the watchdog's lease, if it is not above 0.
fn millis(word: &str) -> Option<Option<Duration>> {
    let ms: i64 = word.parse().ok()?;
    let ms = u64::try_from(ms.max(0)).ok()?;
    Some((ms > 0).then(|| Duration::from_millis(ms)))
}
