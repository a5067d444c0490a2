//! Every option, in every form, without a warning.

#![deny(
    warnings,
    unused,
    future_incompatible,
    let_underscore,
    nonstandard_style,
    rust_2018_idioms,
    rust_2021_compatibility,
    rust_2024_compatibility,
    elided_lifetimes_in_paths,
    keyword_idents,
    macro_use_extern_crate,
    missing_debug_implementations,
    missing_docs,
    single_use_lifetimes,
    trivial_casts,
    trivial_numeric_casts,
    unnameable_types,
    unreachable_pub,
    unused_extern_crates,
    unused_import_braces,
    unused_lifetimes,
    unused_qualifications,
    unused_results,
    variant_size_differences,
    clippy::all,
    clippy::pedantic,
    clippy::nursery
)]
#![forbid(unsafe_code)]
#![allow(
    clippy::missing_errors_doc,
    clippy::unused_async,
    reason = "what these examples leave out, not what the attribute makes"
)]
#![allow(
    clippy::significant_drop_tightening,
    reason = "it takes the session of a guard, which is moved into the run, for one that is dropped"
)]

use std::time::Duration;

use redlock_rt::{Client, Error, Fsync, Owner, Renew, ReplicaAck, distributed_lock};

const LEASE: Duration = Duration::from_secs(30);

/// What the functions here use.
#[derive(Debug)]
pub struct Shop {
    locks: Client,
    owner: Owner,
    tenant: String,
    limit: u32,
}

/// An error of its own.
#[derive(Debug)]
pub struct Refused(
    /// Why.
    pub String,
);

impl Shop {
    /// Literals.
    #[distributed_lock(
        key = "order:<self.tenant>:<id:08>",
        kind = fenced,
        wait = "1s",
        lease = "30s",
        renew = "5s",
        max_hold = "1m",
        min_hold = "1s",
        replica_ack = majority,
        fsync = replicas,
        client = self.locks,
        owner = self.owner,
        on_timeout = skip,
        on_unavailable = value(Ok(id)),
        on_lost = error_after,
        map_err = |error| Refused(error.to_string()),
        guard = held,
        token = fence,
        name = "place",
        crate = redlock_rt
    )]
    pub async fn place(&self, id: u64, items: &mut Vec<String>) -> Result<u64, Refused> {
        items.clear();
        Ok(if held.is_valid() { fence } else { id })
    }

    /// Expressions.
    #[distributed_lock(
        keys = ["from:<from>", format!("to:{to}"), self.tenant],
        kind = fair,
        wait = LEASE / 3,
        lease = LEASE,
        renew = Renew::Every(LEASE / 10),
        max_hold = 2 * LEASE,
        replica_ack = ReplicaAck::AtLeast(2),
        fsync = Fsync::All,
        client = self.locks,
        owner = self.owner,
        on_timeout = call(Self::refuse),
        on_unavailable = error,
        on_lost = finish,
        when = from != to
    )]
    pub async fn transfer(&self, from: u64, to: u64, amount: String) -> Result<String, Error> {
        std::future::ready(()).await;
        Ok(amount)
    }

    /// What is called instead.
    pub async fn refuse(&self, from: u64, to: u64, _amount: String) -> Result<String, Error> {
        std::future::ready(()).await;
        Ok(format!("{from} {to}"))
    }

    /// Permits.
    #[distributed_lock(
        key = self.tenant,
        kind = semaphore(limit = self.limit, take = self.limit - 1),
        wait = forever,
        renew = true,
        replica_ack = 1,
        fsync = all,
        guard = permit,
        client = self.locks
    )]
    pub async fn print(&self) -> Result<usize, Error> {
        Ok(permit.ids().len())
    }

    /// A list of keys, and what is not used.
    #[distributed_lock(
        keys = ids.iter().map(|id| format!("id:{id}")),
        kind = write,
        on_lost = cancel,
        on_timeout = call(Self::list_nothing)
    )]
    pub async fn list(self: Box<Self>, ids: Vec<u64>) -> Result<Vec<u64>, Error> {
        Ok(ids)
    }

    async fn list_nothing(self: Box<Self>, _: Vec<u64>) -> Result<Vec<u64>, Error> {
        Ok(Vec::new())
    }
}

/// Several of them.
#[distributed_lock(key = "a", kind = read)]
#[distributed_lock(key = "b", kind = spin, renew = false, on_timeout = skip)]
#[distributed_lock(key = "c", kind = reentrant, on_unavailable = skip)]
pub async fn several() -> Result<(), Error> {
    Ok(())
}

fn main() {}
