//! `redlock show`: everything about one lock.

use std::collections::HashMap;
use std::fmt::Write as _;

use clap::Args;
use redlock_rt::{Client, ClientIdentity, Holding, Inspection, Shutdown};
use serde_json::{Value, json};

use crate::exit::{Code, Failure};
use crate::found::{kind, library, object, short};
use crate::nodes::{Node, masters};
use crate::output::{Output, plain};
use crate::server::Server;

/// Shows a lock: who holds it and from where, how often, for how long, who queues, the last token
///
/// Exits with 1 if there is nothing of this name.
#[derive(Debug, Args)]
pub(crate) struct Show {
    /// The lock, semaphore or latch
    key: String,
}

/// The most holders whose identity is read.
const MOST_ASKED: usize = 20;

/// Facts that the library does not read.
#[derive(Default)]
struct More {
    /// Waiters of a fair lock, in their order.
    queue: Vec<String>,
    /// Addresses of clients by their UUIDs.
    addresses: HashMap<String, String>,
    /// The identities that clients report, by their UUIDs.
    identities: HashMap<String, ClientIdentity>,
}

pub(crate) async fn perform(show: Show, server: &Server, output: Output) -> Result<Code, Failure> {
    let client = server.client().await?;
    let found = client.inspect(&show.key).await?;
    let identities = match &found {
        Some(found) => identities(&client, found).await,
        None => HashMap::new(),
    };
    client.shutdown(Shutdown::ReleaseAll).await?;
    let key = server.full_name(&show.key);
    let Some(found) = found else {
        let object = json!({ "key": key, "kind": null, "holders": [] });
        output.say(&object, format!("{key} is free"))?;
        return Ok(Code::NO);
    };
    let mut more = More::of(server, &key).await;
    more.identities = identities;
    let mut object = object(server, &found);
    object["queue"] = json!(more.queue);
    if let Some(holders) = object["holders"].as_array_mut() {
        for (shown, holding) in holders.iter_mut().zip(&found.holders) {
            let client = holding.id.client();
            shown["address"] = json!(more.addresses.get(client));
            shown["identity"] = json!(more.identities.get(client).map(object_of));
        }
    }
    output.say_lines(&object, text(&key, &found, &more))?;
    Ok(Code::DONE)
}

impl More {
    /// As far as the user may ask.
    async fn of(server: &Server, key: &str) -> Self {
        let mut more = Self::default();
        let queue = match key.contains('{') {
            true => format!("redisson_lock_queue:{key}"),
            false => format!("redisson_lock_queue:{{{key}}}"),
        };
        for node in masters(server).await.unwrap_or_default() {
            // Another master of a cluster may have it.
            let there: Vec<String> = node
                .ask(&["LRANGE", &queue, "0", "99"])
                .await
                .unwrap_or_default();
            more.queue.extend(there);
            more.addresses.extend(addresses(&node).await);
        }
        more
    }
}

/// As far as the user may read it.
async fn identities(client: &Client, found: &Inspection) -> HashMap<String, ClientIdentity> {
    let mut identities = HashMap::new();
    for holding in found.holders.iter().take(MOST_ASKED) {
        let uuid = holding.id.client();
        // The id of a permit names no client.
        if identities.contains_key(uuid) || uuid == holding.id.as_str() {
            continue;
        }
        match client.identity_of(&holding.id).await {
            Ok(Some(identity)) => drop(identities.insert(uuid.to_owned(), identity)),
            Ok(None) => {}
            Err(_) => break,
        }
    }
    identities
}

fn object_of(identity: &ClientIdentity) -> Value {
    json!({
        "name": identity.name,
        "host": identity.host,
        "pid": identity.pid,
        "since": identity.since,
        "version": identity.version,
    })
}

/// The connections of redlock-rt, whose names contain the UUIDs of their clients.
async fn addresses(node: &Node) -> HashMap<String, String> {
    let list: String = node.ask(&["CLIENT", "LIST"]).await.unwrap_or_default();
    let connections = list.lines().filter_map(|line| {
        let field = |name: &str| line.split(' ').find_map(|field| field.strip_prefix(name));
        let client = field("name=")?.strip_prefix("redlock-rt:")?;
        Some((client.to_owned(), field("addr=")?.to_owned()))
    });
    connections.collect()
}

fn text(key: &str, found: &Inspection, more: &More) -> String {
    let mut text = format!("{}: {}", plain(key), kind(found.kind));
    // A String takes all that is written to it.
    let mut line = |name: &str, value: &str| {
        let _ = write!(text, "\n  {name:10}{}", plain(value));
    };
    for holding in &found.holders {
        line(
            if holding.is_writer {
                "writer"
            } else {
                "holder"
            },
            &holder(holding, more),
        );
    }
    if let Some(count) = found.count {
        line("count", &count.to_string());
    }
    if found.ttl.is_some() {
        line("ttl", &short(found.ttl));
    }
    if let Some(token) = &found.token {
        line("token", token);
    }
    for (place, waiter) in more.queue.iter().enumerate() {
        line("queue", &format!("{}. {waiter}", place + 1));
    }
    if more.queue.is_empty() && found.queued > 0 {
        line("queue", &format!("{} waiters", found.queued));
    }
    match found.listening {
        Some(0) => {}
        Some(number) => line("listening", &format!("{number} clients")),
        None => line("listening", "not known (+pubsub)"),
    }
    text
}

fn holder(holding: &Holding, more: &More) -> String {
    let id = holding.id.as_str();
    let from = more.addresses.get(holding.id.client());
    let from = from.map_or(String::new(), |address| format!(" at {address}"));
    let identity = more.identities.get(holding.id.client());
    let named = identity.map_or(String::new(), |of| {
        format!(", {} on {}, process {}", of.name, of.host, of.pid)
    });
    let times = match holding.count {
        0 => ", ended, kept for its shortest hold".to_owned(),
        1 => String::new(),
        count => format!(", {count} times"),
    };
    format!(
        "{id} ({}{from}{named}){times}, lease {}",
        library(holding),
        short(holding.ttl)
    )
}
