//! What makes a server a node of a cluster: it knows which node has which slot, and answers what is
//! about a slot of another one before the engine sees it, as Redis does.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};

use super::copying::Copying;
use super::net::Net;
use super::questions::{read, write};
use super::server::{Server, is_script};
use crate::cluster::{SLOTS, slot_of};
use crate::history::{Heard, Ms, Redirection};
use crate::proxy::{take_frame, words};

/// The port of the first node; its number is added.
pub(super) const PORT: u16 = 7000;

/// The port of a node.
pub(super) fn port(node: usize) -> usize {
    usize::from(PORT) + node
}

/// Commands about one key, beside those that calls are made of.
const OF_A_KEY: [&str; 3] = ["HGET", "PTTL", "PEXPIRE"];
/// With this one a client asks any node what it may do; to be sent elsewhere is an answer.
const RIGHTS_KEY: &str = "redlock_probe";
const SPLIT: &str = "-TRYAGAIN Multiple keys request during rehashing of slot\r\n";
const NOT_LOCAL: &str = "-ERR Script attempted to access a non local key in a cluster node\r\n";
const DOWN: &str = "-CLUSTERDOWN The cluster is down\r\n";
const REPLICA: &str = "-READONLY You can't write against a read only replica.\r\n";

/// Which node has which slot, as of an epoch.
#[derive(Clone)]
pub(super) struct View {
    pub(super) epoch: u64,
    owners: Arc<[usize]>,
    /// The nodes that have slots.
    masters: Arc<BTreeSet<usize>>,
}

impl View {
    /// The slots shared evenly by the first nodes.
    pub(super) fn even(masters: usize) -> Self {
        let all = usize::from(SLOTS);
        Self::new(1, (0..all).map(|slot| slot * masters / all).collect())
    }

    fn new(epoch: u64, owners: Arc<[usize]>) -> Self {
        let masters = Arc::new(owners.iter().copied().collect());
        Self {
            epoch,
            owners,
            masters,
        }
    }

    pub(super) fn owner(&self, slot: u16) -> usize {
        self.owners[usize::from(slot)]
    }

    /// The same with other owners, one epoch later.
    pub(super) fn with(&self, owner: impl Fn(u16, usize) -> usize) -> Self {
        let owners = (0..).zip(self.owners.iter());
        let owners = owners.map(|(slot, of)| owner(slot, *of)).collect();
        Self::new(self.epoch + 1, owners)
    }
}

/// A node's part of it.
pub(super) struct Slots {
    pub(super) me: usize,
    pub(super) view: View,
    /// Whether it is a node of a cluster, and not of the servers that sentinels watch: there the master has
    /// all slots, and nobody asks for them.
    clustered: bool,
    /// Slots on their way to another node, with the keys that have left.
    pub(super) leaving: BTreeMap<u16, (usize, usize)>,
    /// Slots on their way here.
    pub(super) coming: BTreeSet<u16>,
    /// Another master is away.
    pub(super) is_down: bool,
    pub(super) redirections: Vec<Redirection>,
    /// To which process it told of which epoch, and when.
    pub(super) told: Vec<(Ms, u32, u64)>,
    /// Which owners were named in calls that it ran.
    pub(super) heard: Vec<Heard>,
}

impl Slots {
    pub(super) fn new(me: usize, view: View, clustered: bool) -> Self {
        Self {
            me,
            view,
            clustered,
            leaving: BTreeMap::new(),
            coming: BTreeSet::new(),
            is_down: false,
            redirections: Vec::new(),
            told: Vec::new(),
            heard: Vec::new(),
        }
    }

    pub(super) fn is_master(&self) -> bool {
        self.view.masters.contains(&self.me)
    }

    /// What a replica answers to what writes.
    fn as_replica(&self, request: &[Bytes]) -> Option<Cow<'static, str>> {
        (!self.is_master() && is_script(request)).then(|| REPLICA.into())
    }

    /// As the reply to CLUSTER SLOTS.
    fn layout(&self) -> String {
        let owners = &self.view.owners;
        let mut ranges = Vec::new();
        let mut first = 0;
        for part in owners.chunk_by(|one, next| one == next) {
            ranges.push((first, first + part.len() - 1, part[0]));
            first += part.len();
        }
        let mut text = format!("*{}\r\n", ranges.len());
        for (first, last, node) in ranges {
            let (host, port) = (format!("n{node}"), port(node));
            let _ = write!(
                text,
                "*3\r\n:{first}\r\n:{last}\r\n*3\r\n${}\r\n{host}\r\n:{port}\r\n$2\r\nid\r\n",
                host.len()
            );
        }
        text
    }

    fn state(&self) -> String {
        let state = if self.is_down { "fail" } else { "ok" };
        bulk(&format!(
            "cluster_state:{state}\r\ncluster_current_epoch:{}\r\n",
            self.view.epoch
        ))
    }
}

pub(super) fn bulk(text: &str) -> String {
    format!("${}\r\n{text}\r\n", text.len())
}

fn redirect(word: &str, slot: u16, node: usize) -> String {
    format!("-{word} {slot} n{node}:{}\r\n", port(node))
}

/// Who asks, and when.
#[derive(Clone, Copy)]
pub(super) struct Asker {
    pub(super) process: u32,
    pub(super) now: Ms,
}

impl Server {
    /// What a node of a cluster answers in place of the engine; `asks`: ASKING came before.
    pub(super) fn as_node(
        &mut self,
        asks: &mut bool,
        by: Asker,
        request: &[Bytes],
    ) -> Option<Cow<'static, str>> {
        let clustered = self.slots.as_ref()?.clustered;
        let asked = std::mem::take(asks);
        let word = |place: usize| {
            let word = request.get(place);
            word.map(|word| String::from_utf8_lossy(word).to_ascii_uppercase())
        };
        let command = word(0).unwrap_or_default();
        match &*command {
            "ASKING" => {
                *asks = true;
                return Some("+OK\r\n".into());
            }
            "INFO" => return Some(self.node_info(&word(1).unwrap_or_default()).into()),
            "ROLE" if !clustered => return Some(self.role().into()),
            "CLUSTER" => {
                let slots = self.slots.as_mut()?;
                if word(1).as_deref() == Some("INFO") {
                    return Some(slots.state().into());
                }
                slots.told.push((by.now, by.process, slots.view.epoch));
                return Some(slots.layout().into());
            }
            _ => {}
        }
        let keys = match &*command {
            "EVAL" | "EVALSHA" => {
                let count = word(2).and_then(|count| count.parse().ok()).unwrap_or(0);
                request.get(3..3 + count).unwrap_or_default()
            }
            _ if is_script(request) || OF_A_KEY.contains(&&*command) => request.get(1..2)?,
            _ => return None,
        };
        let refusal = match clustered {
            true => self.elsewhere(keys, asked),
            false => self.slots.as_ref()?.as_replica(request),
        };
        let slots = self.slots.as_mut()?;
        if let Some(text) = &refusal
            && text.starts_with("-MOVED")
            && is_script(request)
            && keys[0] != RIGHTS_KEY
        {
            slots.redirections.push(Redirection {
                at: by.now,
                process: by.process,
                node: slots.me,
                slot: slot_of(&String::from_utf8_lossy(&keys[0])),
                epoch: slots.view.epoch,
            });
        }
        if refusal.is_none() && slots.view.epoch > 1 && command == "EVALSHA" {
            let text = |word: &Bytes| String::from_utf8_lossy(word).into_owned();
            slots.heard.push(Heard {
                at: by.now,
                node: slots.me,
                words: request[3..].iter().map(text).collect(),
            });
        }
        refusal
    }

    /// Why this node does not run a command about these keys.
    fn elsewhere(&self, keys: &[Bytes], asked: bool) -> Option<Cow<'static, str>> {
        let slots = self.slots.as_ref()?;
        let names: Vec<Cow<'_, str>> = keys
            .iter()
            .map(|key| String::from_utf8_lossy(key))
            .collect();
        let slot = slot_of(names.first()?);
        if names.iter().any(|name| slot_of(name) != slot) {
            return Some("-CROSSSLOT Keys in request don't hash to the same slot\r\n".into());
        }
        if slots.is_down {
            return Some(DOWN.into());
        }
        let there = names.iter().filter(|name| self.has(name)).count();
        let (all, none) = (there == names.len(), there == 0);
        let owner = slots.view.owner(slot);
        if owner != slots.me {
            let runs = asked && slots.coming.contains(&slot);
            return match (runs, all || names.len() == 1) {
                (true, true) => None,
                (true, false) => Some(SPLIT.into()),
                (false, _) => Some(redirect("MOVED", slot, owner).into()),
            };
        }
        let (to, left) = *slots.leaving.get(&slot)?;
        if none {
            return Some(redirect("ASK", slot, to).into());
        }
        if !all {
            return Some(SPLIT.into());
        }
        // Scripts of these read keys that they do not declare.
        let reads_more = ["rw:", "permits:"]
            .iter()
            .any(|kind| names[0].contains(kind));
        (reads_more && left > 0).then(|| NOT_LOCAL.into())
    }

    fn has(&self, key: &str) -> bool {
        &*self.ask(&["EXISTS", key]) == b":1\r\n"
    }

    fn node_info(&self, section: &str) -> String {
        let Some(slots) = &self.slots else {
            return bulk("");
        };
        let info = self.ask(&["INFO", section]);
        let info = String::from_utf8_lossy(&info);
        let (_, info) = info.split_once("\r\n").unwrap_or_default();
        let info = info.trim_end();
        let info = match slots.clustered {
            true => info.replace("mode:standalone", "mode:cluster"),
            false => info.to_owned(),
        };
        let replicas = self.copying.as_ref().map_or(0, Copying::replicas);
        let counted = format!("connected_slaves:{replicas}");
        bulk(&match slots.is_master() {
            true => info.replace("connected_slaves:0", &counted),
            false => info.replace("role:master", "role:slave"),
        })
    }

    fn role(&self) -> &'static str {
        match self.slots.as_ref().is_some_and(Slots::is_master) {
            true => "*3\r\n$6\r\nmaster\r\n:0\r\n*0\r\n",
            false => "*1\r\n$5\r\nslave\r\n",
        }
    }

    /// Whether a key is, or would be, here.
    pub(super) fn shows(&self, key: &str) -> bool {
        let Some(slots) = &self.slots else {
            return true;
        };
        let slot = slot_of(key);
        match slots.view.owner(slot) == slots.me {
            true => !slots.leaving.contains_key(&slot) || self.has(key),
            false => slots.coming.contains(&slot) && self.has(key),
        }
    }

    /// What was published here since this was asked last: channels and messages, for the other nodes.
    pub(super) fn published(&mut self) -> Vec<(Bytes, Bytes)> {
        if self.slots.as_ref().is_none_or(|slots| !slots.clustered) {
            return Vec::new();
        }
        let engine = self.engine().clone();
        let bus = self.bus.get_or_insert_with(|| {
            let mut bus = engine.connect();
            write(&mut bus, b"PSUBSCRIBE *\r\n");
            read(&mut bus);
            bus
        });
        let mut bytes = BytesMut::from(&*read(bus).unwrap_or_default());
        let mut all = Vec::new();
        while let Ok(Some(frame)) = take_frame(&mut bytes) {
            if let [_, _, channel, message] = &words(&frame)[..] {
                all.push((channel.clone(), message.clone()));
            }
        }
        all
    }

    /// Tells the subscribers here what was published at another node.
    pub(super) fn publish(&mut self, net: &mut Net, all: &[(Bytes, Bytes)]) {
        for (channel, message) in all {
            self.ask_bytes(&[b"PUBLISH", channel, message]);
        }
        self.published();
        self.send(net);
    }
}
