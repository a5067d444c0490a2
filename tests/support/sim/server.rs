//! The server's side: embedded engines, fed with what arrives.
//!
//! An engine has no task and no timer of its own, so there is no runtime here: a message is run at
//! the moment at which it arrives, and what it brings about is sent back at once.

use std::borrow::Cow;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Poll;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use redlock_rt::embedded::{Engine, Session};

use super::copying::{Copying, Wait};
use super::net::{Item, Net};
use super::plan::{Place, Refusal};
use super::questions::{poll_read, read, write};
use super::sentinel::Sentinel;
use super::slots::{Asker, Slots};
use crate::history::Ms;
use crate::proxy::{CALLS, take_frame, words};

/// When the simulation begins, since the Unix epoch.
pub(super) const EPOCH: Ms = 1_700_000_000_000;

const NO_LOGIN: &str = "-NOAUTH Authentication required.\r\n";

/// All engines that answer, or did, at the one address.
#[derive(Default)]
pub(super) struct Server {
    time: Arc<AtomicU64>,
    engines: Vec<Engine>,
    seed: u64,
    pub(super) sessions: BTreeMap<u64, Connection>,
    /// What each host is refused, and all.
    pub(super) refusals: Vec<(Option<usize>, Refusal)>,
    /// The newest engine that each process was answered by, and when first.
    newest: BTreeMap<u32, (usize, Ms)>,
    /// Since when each engine has been there.
    since: Vec<Ms>,
    /// Processes that asked an engine later than they should have, and when.
    pub(super) outdated: Vec<(u32, Ms)>,
    /// It refuses the plain commands in place of scripts.
    pub(super) only_scripts: bool,
    /// For how long a process may go on to ask an engine after it was answered by a newer one.
    pub(super) may_ask: Ms,
    /// By how many in a hundred thousand its clock is fast.
    skew: i64,
    /// By how much its clock was set forward.
    set: i64,
    /// Names of scripts by their digests, as far as they were loaded.
    scripts: BTreeMap<String, String>,
    /// Whether anything may have been written since this was last looked at.
    pub(super) changed: bool,
    /// How many calls for locks it has run.
    pub(super) calls: usize,
    /// The words of those that it has run since this was last taken.
    pub(super) ran: Vec<Vec<String>>,
    /// For questions that come past the network.
    pub(super) past: RefCell<Option<Session>>,
    /// Where it is a node of a cluster, or a master or a replica that sentinels watch.
    pub(super) slots: Option<Slots>,
    /// Where it is a sentinel.
    pub(super) sentinel: Option<Sentinel>,
    /// Where it is a master with replicas that copy from it, or one of these.
    pub(super) copying: Option<Copying>,
    /// Hears what is published here, for the other nodes.
    pub(super) bus: Option<Session>,
}

pub(super) struct Connection {
    /// Which of the engines it leads to.
    engine: usize,
    pub(super) session: Session,
    /// A part of a request.
    rest: BytesMut,
    fresh: bool,
    /// It has logged in with a password that was no longer right.
    stranger: bool,
    /// The next command comes after ASKING.
    asks: bool,
    /// The number of its last write, and whether it waits for replicas that have it.
    pub(super) mark: u64,
    pub(super) waits: Option<Wait>,
}

/// What the server tells whoever writes the time line.
pub(super) type Tell<'a> = dyn FnMut(usize, String) + 'a;

impl Server {
    pub(super) fn new(seed: u64, skew: i64) -> Self {
        let mut server = Self {
            time: Arc::new(AtomicU64::new(EPOCH)),
            seed,
            may_ask: Ms::MAX,
            skew,
            ..Self::default()
        };
        server.replace();
        server
    }

    /// Sets the clock.
    pub(super) fn at(&self, now: Ms) {
        let skewed = i64::try_from(now).unwrap_or(i64::MAX);
        let skewed = skewed + skewed * self.skew / 100_000 + self.set;
        self.time
            .store(EPOCH.saturating_add_signed(skewed), Ordering::Relaxed);
    }

    /// Sets the clock forward, or back.
    pub(super) fn set_clock(&mut self, by: i64) {
        self.set += by;
        self.changed = true;
    }

    /// Puts another, empty engine behind the address.
    pub(super) fn replace(&mut self) {
        let time = Arc::clone(&self.time);
        let now = move || Duration::from_millis(time.load(Ordering::Relaxed));
        let seed = self.seed.wrapping_add(self.engines.len() as u64 * 7919);
        self.engines.push(Engine::simulated(seed, now));
        self.since.push(self.time.load(Ordering::Relaxed));
        *self.past.get_mut() = None;
        self.changed = true;
    }

    pub(super) fn engine(&self) -> &Engine {
        self.engines.last().expect("there is one from the start")
    }

    /// The engines that were replaced are gone; answers which connections led there.
    pub(super) fn end_old(&mut self) -> Vec<u64> {
        let newest = self.engines.len() - 1;
        let old = self.sessions.iter().filter(|(_, one)| one.engine < newest);
        let old: Vec<u64> = old.map(|(id, _)| *id).collect();
        for id in &old {
            self.sessions.remove(id);
        }
        old
    }

    /// All connections end at the server; who is connected is told of it elsewhere.
    pub(super) fn crash(&mut self, keeps: bool) {
        self.sessions.clear();
        self.engine().restart();
        *self.past.get_mut() = None;
        self.bus = None;
        if !keeps {
            self.ask(&["FLUSHALL"]);
        }
        self.changed = true;
    }

    /// The server's clock.
    pub(super) fn time(&self) -> Ms {
        self.time.load(Ordering::Relaxed)
    }

    /// Runs one message that has arrived; answers whether there was one.
    pub(super) fn run_one(&mut self, net: &mut Net, tell: &mut Tell<'_>) -> bool {
        let Some((id, item)) = net.next_up() else {
            return false;
        };
        self.take(net, id, item, tell);
        self.send(net);
        true
    }

    /// A connection ends at the server.
    pub(super) fn disconnect(&mut self, id: u64) {
        self.sessions.remove(&id);
    }

    fn take(&mut self, net: &mut Net, id: u64, item: Item, tell: &mut Tell<'_>) {
        let Some(link) = net.links.get(&id) else {
            return;
        };
        let (host, process) = (link.host, link.process);
        let Item::Data(bytes) = item else {
            self.sessions.remove(&id);
            net.forget(id);
            return;
        };
        let connection = match self.sessions.remove(&id) {
            Some(connection) => connection,
            // A connection that was there before the server crashed.
            None if net.links.get(&id).is_some_and(|link| link.known) => {
                net.reply(id, Item::Reset);
                return;
            }
            None => Connection {
                engine: self.engines.len() - 1,
                session: self.engine().connect(),
                rest: BytesMut::new(),
                fresh: true,
                stranger: self.refuses(host, Refusal::Login),
                asks: false,
                mark: 0,
                waits: None,
            },
        };
        if let Some(link) = net.links.get_mut(&id) {
            link.known = true;
        }
        let newest = self.newest.get(&process).copied();
        let (newest, since) = newest.unwrap_or((connection.engine, net.now));
        if connection.engine < newest && net.now > since.saturating_add(self.may_ask) {
            self.outdated.push((process, net.now));
        }
        match cut(net, host) {
            None => {
                if let Some(connection) =
                    self.feed(net, (id, host, process), connection, &bytes, tell)
                {
                    self.sessions.insert(id, connection);
                }
            }
            Some(place) => {
                tell(
                    host,
                    format!("   # connection {id} is cut {place:?} a message"),
                );
                net.cut.push((host, 0));
                let until = match place {
                    Place::Before => 0,
                    Place::Middle => bytes.len() / 2,
                    Place::After | Place::Reply => bytes.len(),
                };
                let known = self.newest.get(&process).copied();
                let fed = self.feed(net, (id, host, process), connection, &bytes[..until], tell);
                // The reply that would tell the process of this server is cut.
                match known {
                    Some(known) => self.newest.insert(process, known),
                    None => self.newest.remove(&process),
                };
                if place == Place::Reply
                    && let Some(mut connection) = fed
                    && let Some(reply) = read(&mut connection.session)
                {
                    net.reply(id, Item::Data(reply.slice(..reply.len() / 2)));
                }
                net.reply(id, Item::Reset);
            }
        }
    }

    /// Gives a connection its bytes, request by request; `None` where it was turned away.
    pub(super) fn feed(
        &mut self,
        net: &mut Net,
        (id, host, process): (u64, usize, u32),
        mut connection: Connection,
        bytes: &[u8],
        tell: &mut Tell<'_>,
    ) -> Option<Connection> {
        connection.rest.extend_from_slice(bytes);
        while connection.waits.is_none()
            && let Ok(Some(frame)) = take_frame(&mut connection.rest)
        {
            let request = words(&frame);
            self.learn(&request);
            tell(host, format!("   {id}> {}", self.readable(&request)));
            let fresh = std::mem::replace(&mut connection.fresh, false);
            let stranger = connection.stranger.then_some(NO_LOGIN);
            let refusal = stranger.or_else(|| self.refusal(host, fresh, &request));
            let now = net.now;
            let by = Asker { process, now };
            let mut answer = refusal.map(Cow::Borrowed);
            match self.waits(&request, now).filter(|_| answer.is_none()) {
                Some(Ok(wait)) => {
                    connection.waits = Some(wait);
                    continue;
                }
                Some(Err(refused)) => answer = Some(refused.into()),
                None => {}
            }
            let answer = answer.or_else(|| self.as_sentinel(id, by, &request));
            match answer.or_else(|| self.as_node(&mut connection.asks, by, &request)) {
                Some(text) => {
                    tell(host, format!("   {id}< {}", text.trim_end()));
                    // What was asked before is answered before.
                    if let Some(reply) = read(&mut connection.session) {
                        net.reply(id, Item::Data(reply));
                    }
                    net.reply(id, Item::Data(Bytes::from(text.to_string())));
                    if text.contains("max number") {
                        net.reply(id, Item::End);
                        return None;
                    }
                }
                None => {
                    self.answered(process, &connection, &request, net.now);
                    let call = is_script(&request);
                    self.changed |= call;
                    self.calls += usize::from(call);
                    if call && self.knows_script(&request) {
                        let words = request.iter().map(|word| String::from_utf8_lossy(word));
                        self.ran.push(words.map(Cow::into_owned).collect());
                    }
                    write(&mut connection.session, &frame);
                    if call {
                        self.keep_mark(net, id, &mut connection, &request);
                    }
                }
            }
        }
        Some(connection)
    }

    fn refuses(&self, host: usize, what: Refusal) -> bool {
        let mut all = self.refusals.iter();
        all.any(|(of, refusal)| *refusal == what && of.is_none_or(|of| of == host))
    }

    fn refusal(&self, host: usize, fresh: bool, request: &[Bytes]) -> Option<&'static str> {
        let command = request.first().map_or(&b""[..], |word| word);
        let is = |name: &str| command.eq_ignore_ascii_case(name.as_bytes());
        if self.only_scripts && (is("RESTORE") || is("HDEL")) {
            return Some("-NOPERM this user has no permissions to run the 'restore' command\r\n");
        }
        let script = is_script(request);
        let mut all = self.refusals.iter();
        all.find_map(|(of, refusal)| {
            if of.is_some_and(|of| of != host) {
                return None;
            }
            match refusal {
                Refusal::Busy if !is("SUBSCRIBE") => Some(
                    "-BUSY Redis is busy running a script. You can only call SCRIPT KILL or \
                          SHUTDOWN NOSAVE.\r\n",
                ),
                Refusal::Loading => Some("-LOADING Redis is loading the dataset in memory\r\n"),
                Refusal::OutOfMemory if script => {
                    Some("-OOM command not allowed when used memory > 'maxmemory'.\r\n")
                }
                Refusal::Kill if is("CLIENT") && kills(request) => Some(
                    "-NOPERM this user has no permissions to run the 'client|kill' command\r\n",
                ),
                Refusal::MaxClients if fresh => Some("-ERR max number of clients reached\r\n"),
                Refusal::Forbidden if script => {
                    Some("-NOPERM this user has no permissions to run the 'evalsha' command\r\n")
                }
                _ => None,
            }
        })
    }

    /// Sends what the engines have to say, to whomever.
    pub(super) fn send(&mut self, net: &mut Net) {
        let mut over = Vec::new();
        for (id, connection) in &mut self.sessions {
            // The end of a stream comes behind what was said before it.
            while let Poll::Ready(bytes) = poll_read(&mut connection.session) {
                if bytes.is_empty() {
                    over.push(*id);
                    break;
                }
                net.reply(*id, Item::Data(bytes));
            }
        }
        for id in over {
            self.sessions.remove(&id);
            net.reply(id, Item::End);
        }
    }

    /// Keeps which engine a process was told the name of.
    fn answered(&mut self, process: u32, by: &Connection, request: &[Bytes], now: Ms) {
        let named = request
            .first()
            .is_some_and(|word| word.eq_ignore_ascii_case(b"INFO"));
        let known = self.newest.get(&process);
        if named && known.is_none_or(|(newest, _)| *newest < by.engine) {
            // Two took each other's place during one dial: which is the newer one is not told.
            let lasted = self.since[by.engine] - self.since[by.engine.saturating_sub(1)];
            let is_told = by.engine < 2 || lasted > self.may_ask;
            let now = if is_told { now } else { Ms::MAX };
            self.newest.insert(process, (by.engine, now));
        }
    }

    /// The process stood still, and reads now what it was told meanwhile.
    pub(super) fn goes_on(&mut self, process: u32, now: Ms) {
        if let Some((_, since)) = self.newest.get_mut(&process) {
            *since = now.max(*since);
        }
    }

    /// Keeps what a script is called: by its first line, which says what it is for.
    fn learn(&mut self, request: &[Bytes]) {
        if let [script, load, text] = request
            && script.eq_ignore_ascii_case(b"SCRIPT")
            && load.eq_ignore_ascii_case(b"LOAD")
        {
            let digest = sha1_smol::Sha1::from(text).digest().to_string();
            let text = String::from_utf8_lossy(text);
            let mut lines = text.lines().map(|line| line.trim_start_matches(['-', ' ']));
            let name = lines.find(|line| !line.is_empty());
            let name = name.unwrap_or_default();
            self.scripts.insert(digest, format!("[{name}]"));
        }
    }

    /// Whether a call is not answered NOSCRIPT.
    fn knows_script(&self, request: &[Bytes]) -> bool {
        let is_digest = request[0].eq_ignore_ascii_case(b"EVALSHA");
        !is_digest
            || self
                .ask_bytes(&[b"SCRIPT", b"EXISTS", &request[1]])
                .ends_with(b":1\r\n")
    }

    /// What the script of a call is called.
    pub(super) fn name_of(&self, request: &[Bytes]) -> Option<&str> {
        let digest = std::str::from_utf8(request.get(1)?).ok()?;
        self.scripts.get(digest).map(|name| &**name)
    }

    fn readable(&self, request: &[Bytes]) -> String {
        let mut text = String::new();
        for (place, word) in request.iter().enumerate() {
            let word = String::from_utf8_lossy(word);
            let word = match place {
                1 => self.scripts.get(&*word).map_or(&*word, |name| name),
                _ => &word,
            };
            let short = word.lines().next().unwrap_or_default();
            match short.char_indices().nth(60) {
                Some((end, _)) => text.push_str(&short[..end]),
                None => text.push_str(short),
            }
            text.push(' ');
        }
        text
    }
}

fn kills(request: &[Bytes]) -> bool {
    let action = request.get(1);
    action.is_some_and(|action| action.eq_ignore_ascii_case(b"KILL"))
}

pub(super) fn is_script(request: &[Bytes]) -> bool {
    let command = request.first().map_or(&b""[..], |word| word);
    CALLS
        .iter()
        .any(|call| command.eq_ignore_ascii_case(call.as_bytes()))
}

/// Whether the connection of this message is to be cut now, and where.
fn cut(net: &mut Net, host: usize) -> Option<Place> {
    let cuts = &mut net.paths[host].cuts;
    for (after, _) in cuts.iter_mut() {
        *after = after.saturating_sub(1);
    }
    let due = cuts.iter().position(|(after, _)| *after == 0)?;
    Some(cuts.remove(due).1)
}
