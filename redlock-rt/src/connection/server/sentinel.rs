//! Asking sentinels for the master.
//!
//! All are asked at the same time. As among the sentinels, the answer with the highest configuration
//! epoch counts: a sentinel that was cut off from the others may name an old master.
//!
//! The highest epoch counts once a majority has answered, or a short time after the first answer. The
//! names from sentinels are limited: a host has 1 to 255 bytes of letters, digits and `.-_:%[]`.

use std::io;
use std::time::Duration;

use super::gather::{all_failed, gather};
use super::greeting::ask;
use crate::connection::address::Address;
use crate::connection::dial::{BoxStream, Dialer, Service, Target};
use crate::connection::fault::Fault;
use crate::wire::{ServerError, Value};

/// The answer of one sentinel.
#[derive(Debug, PartialEq, Eq)]
struct SentinelAnswer {
    master: Address,
    /// `None` if an ACL forbids the question.
    epoch: Option<u64>,
}

/// Asks for the address of the master. `reached`: whether there was a connection to a master before,
/// so the configuration is, or was, correct.
pub(super) async fn locate<F>(
    dialer: &Dialer,
    service: &Service,
    reached: bool,
    within: Duration,
    open: &impl Fn(Target) -> F,
) -> Result<Address, Fault>
where
    F: Future<Output = io::Result<BoxStream>>,
{
    let sentinels = &service.sentinels;
    let asked = sentinels.iter().map(|sentinel| {
        let told = question(dialer, service, reached, sentinel, open);
        (sentinel.place(), told)
    });
    let majority = sentinels.len() / 2 + 1;
    let found = gather(asked, within, |told: &[SentinelAnswer]| {
        told.len() >= majority
    });
    let (answers, faults) = found.await;
    // The first of those with the highest epoch.
    let best = answers.into_iter().rev().max_by_key(|told| told.epoch);
    match best {
        Some(told) => Ok(told.master),
        None => {
            let what = format!("no sentinel names the master of {:?}", service.name);
            Err(all_failed(&what, &faults, reached))
        }
    }
}

async fn question<F>(
    dialer: &Dialer,
    service: &Service,
    reached: bool,
    sentinel: &Address,
    open: &impl Fn(Target) -> F,
) -> Result<SentinelAnswer, Fault>
where
    F: Future<Output = io::Result<BoxStream>>,
{
    let mut commands = dialer.sentinel_login();
    let needed = commands.len();
    for subcommand in [GET_MASTER, "MASTER"] {
        let question = commands.cmd("SENTINEL");
        question.arg(subcommand).arg(&service.name);
    }
    let target = Some(sentinel.clone());
    let (_, replies) = ask(&commands, needed, target, reached, open).await?;
    let (logged_in, told) = replies.split_at(needed);
    if let Some(Value::Error(error)) = logged_in.first() {
        return Err(refused(error.clone()));
    }
    let [master, details] = told else {
        return Err(Fault::not_redis());
    };
    Ok(SentinelAnswer {
        master: master_of(master, sentinel)?,
        epoch: epoch_of(details),
    })
}

const GET_MASTER: &str = "GET-MASTER-ADDR-BY-NAME";

/// The address in the reply of one sentinel.
fn master_of(reply: &Value, sentinel: &Address) -> Result<Address, Fault> {
    match reply {
        Value::Error(error) => Err(refused(error.clone())),
        Value::List(parts) => {
            let text = |at: usize| parts.get(at).and_then(Value::text);
            let port = text(1).and_then(|port| port.parse().ok());
            match (text(0), port) {
                (Some(host), Some(port)) => {
                    let master = sentinel.elsewhere(&host, port);
                    master.ok_or_else(|| Fault::passing("it names a master that is no host".into()))
                }
                _ => Err(Fault::not_redis()),
            }
        }
        Value::Nil => Err(Fault::misconfigured(io::Error::other(
            "it watches no such service",
        ))),
        _ => Err(Fault::not_redis()),
    }
}

/// A list of names and values.
fn epoch_of(reply: &Value) -> Option<u64> {
    let Value::List(parts) = reply else {
        return None;
    };
    let (pairs, _) = parts.as_chunks::<2>();
    let is_epoch = |name: &Value| name.text().is_some_and(|name| name == "config-epoch");
    let (_, epoch) = pairs
        .iter()
        .map(|[name, value]| (name, value))
        .find(|(name, _)| is_epoch(name))?;
    epoch.text()?.parse().ok()
}

/// A sentinel's refusal of a login or a question.
pub(super) fn refused(error: ServerError) -> Fault {
    if error.detail().contains("unknown command") {
        let why = "it is no sentinel: it does not know the command";
        return Fault::misconfigured(io::Error::other(why));
    }
    Fault::from_server(error)
        .while_dialing()
        .of_credentials("sentinels have users of their own: ClientBuilder::sentinel_credentials")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bulk(text: &str) -> Value {
        Value::Text(text.into())
    }

    fn at(port: u16) -> Address {
        Address::tcp("h", port)
    }

    #[test]
    fn replies_of_sentinels_are_read() {
        let named = Value::List(vec![bulk("h"), bulk("7000")]);
        assert_eq!(master_of(&named, &at(1)).unwrap(), at(7000));
        let says = |reply: &Value| master_of(reply, &at(1)).unwrap_err().reason();
        assert!(says(&Value::Nil).contains("no such service"));
        assert!(says(&Value::List(vec![bulk("h")])).contains("does not speak"));
        let details = ["name", "m", "config-epoch", "12", "num-slaves", "2"].map(bulk);
        assert_eq!(epoch_of(&Value::List(details.into())), Some(12));
        assert_eq!(epoch_of(&Value::Nil), None);
    }
}
