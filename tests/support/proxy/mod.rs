//! A TCP proxy in front of a server that counts request frames and injects faults.

mod frame;
mod gate;
mod link;
mod listen;
mod loss;
mod replies;
pub mod resp;
mod state;

use std::{
    collections::BTreeMap,
    net::{SocketAddr, TcpListener},
    sync::Arc,
    time::Duration,
};

use bytes::Bytes;
use tokio_rustls::TlsAcceptor;

pub(crate) use self::{
    frame::CALLS,
    resp::{take_frame, words},
};
pub use self::{
    frame::{CALL, Frame, Matcher, Which},
    gate::Gate,
    loss::Loss,
};
use self::{
    listen::Listening,
    state::{Action, Phase, Progress, State},
};
use crate::{DEADLINE, RedisServer, port::ReservedPort};

/// A proxy that understands RESP2 and RESP3, on a port of 127.0.0.1 and a thread of its own.
///
/// When a call that sets a fault returns, the fault applies to every frame that is not decided yet.
/// If several faults match a frame, they apply in the order in which they were set. Frames of one
/// connection stay in order: frames behind a held frame wait with it. Towards the server it speaks no
/// TLS.
#[derive(Debug)]
pub struct Proxy {
    url: String,
    port: Arc<ReservedPort>,
    state: Arc<State>,
    listening: Listening,
}

impl Drop for Proxy {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            self.assert_met();
        }
    }
}

impl Proxy {
    /// A proxy in front of this server, also while the server restarts.
    pub fn to(server: &RedisServer) -> Self {
        let mut proxy = Self::to_address(server.address());
        proxy.url = server.url_at(proxy.address());
        proxy
    }

    /// A proxy whose clients speak TLS, with the certificate of this server, which must have one.
    pub fn with_tls(server: &RedisServer) -> Self {
        let tls = Some(server.tls_acceptor());
        let mut proxy = Self::start(server.address(), tls);
        proxy.url = server.tls_url_at(proxy.address().port());
        proxy
    }

    /// A proxy at the port that this node of a cluster announces.
    pub(crate) fn announced_by(server: &RedisServer) -> Self {
        let port = server.announced_port().expect("it announces another one");
        let listener = TcpListener::bind(port.address()).expect("the port is free");
        Self::listening((Arc::clone(port), listener), server.address(), None)
    }

    /// A proxy in front of this address.
    pub fn to_address(upstream: SocketAddr) -> Self {
        Self::start(upstream, None)
    }

    fn start(upstream: SocketAddr, tls: Option<TlsAcceptor>) -> Self {
        let (port, listener) = loop {
            let port = ReservedPort::pick();
            // A process outside the harness may have taken the port meanwhile.
            if let Ok(listener) = TcpListener::bind(port.address()) {
                break (Arc::new(port), listener);
            }
        };
        Self::listening((port, listener), upstream, tls)
    }

    fn listening(
        (port, listener): (Arc<ReservedPort>, TcpListener),
        upstream: SocketAddr,
        tls: Option<TlsAcceptor>,
    ) -> Self {
        let state = Arc::new(State::default());
        let listening = Listening::start(listener, (upstream, tls), state.clone());
        let url = format!("redis://{}", port.address());
        Self {
            url,
            port,
            state,
            listening,
        }
    }

    /// A proxy whose faults are drawn: they may meet nothing.
    pub fn by_chance(self) -> Self {
        self.state.excuse();
        self
    }

    /// Asserts that each gate held something, and that each [loss](Self::lose) lost something: a test in which they did
    /// not has shown nothing.
    pub(crate) fn assert_met(&self) {
        let unmet = self.state.unmet();
        assert!(
            unmet.is_empty(),
            "nothing of this was there to hold or to lose: {unmet:#?}"
        );
    }

    /// The URL of the server through the proxy.
    pub fn url(&self) -> String {
        self.url.clone()
    }

    /// The address on which the proxy listens.
    pub fn address(&self) -> SocketAddr {
        self.port.address()
    }

    // The log.

    /// Forgets all frames so far: later counts start at zero.
    pub fn mark(&self) {
        self.state.clear_log();
    }

    /// The request frames since the last mark, including swallowed ones.
    pub fn frames(&self) -> Vec<Frame> {
        self.state.frames()
    }

    /// The number of request frames of each command since the last mark.
    pub fn counts(&self) -> BTreeMap<String, usize> {
        let mut counts = BTreeMap::new();
        for frame in self.frames() {
            *counts.entry(frame.command()).or_insert(0) += 1;
        }
        counts
    }

    /// The number of matching requests that were passed to the server since the last mark.
    pub fn count(&self, matcher: impl Into<Matcher>) -> usize {
        self.state.count(&matcher.into(), Progress::Forwarded)
    }

    /// Waits until a matching request has been passed to the server since the last mark.
    pub async fn wait_for(&self, matcher: impl Into<Matcher>) {
        self.wait_for_count(matcher, 1).await;
    }

    /// Waits until `count` matching requests have been passed to the server since the last mark.
    pub async fn wait_for_count(&self, matcher: impl Into<Matcher>, count: usize) {
        self.wait(matcher.into(), Progress::Forwarded, count).await;
    }

    /// Waits until the whole answer to a matching request since the last mark has been passed to
    /// the client. (An answer that was swallowed does not count, nor one that says NOSCRIPT.)
    pub async fn wait_for_answer(&self, matcher: impl Into<Matcher>) {
        self.wait(matcher.into(), Progress::Answered, 1).await;
    }

    /// The numbers of these open connections, the oldest first.
    pub fn connections(&self, which: Which) -> Vec<u64> {
        self.state.links(which)
    }

    // Cut connections.

    /// Cuts every connection at once; new ones are accepted.
    pub fn cut_all(&self) -> usize {
        self.cut(Which::All)
    }

    /// Cuts these connections at once, and returns how many there were.
    pub fn cut(&self, which: Which) -> usize {
        self.state.cut(which)
    }

    /// Swallows the next matching request and cuts its connection: the server never sees it.
    pub fn cut_before_request(&self, matcher: impl Into<Matcher>) {
        self.add(Phase::Request, matcher, Action::Cut, 1);
    }

    /// Cuts the connection of the next matching request when the server has answered it: the command
    /// has run, the reply is lost.
    pub fn cut_after_request(&self, matcher: impl Into<Matcher>) {
        self.add(Phase::Reply, matcher, Action::Cut, 1);
    }

    /// Refuses new connections; open ones stay.
    pub fn refuse(&self) {
        self.listening.refuse();
    }

    /// Accepts connections again, on the same port.
    pub fn accept(&self) {
        self.listening.accept();
    }

    // Lose frames; the connection stays open, and carries nothing more in that direction but messages.

    /// Swallows the `count` next matching requests: the server never sees them.
    pub fn swallow_request(&self, matcher: impl Into<Matcher>, count: usize) {
        self.add(Phase::Request, matcher, Action::Swallow, count);
    }

    /// Swallows the replies to the `count` next matching requests, which run.
    pub fn swallow_reply(&self, matcher: impl Into<Matcher>, count: usize) {
        self.add(Phase::Reply, matcher, Action::Swallow, count);
    }

    /// Swallows the `count` next matching messages to subscribers.
    pub fn swallow_message(&self, matcher: impl Into<Matcher>, count: usize) {
        self.add(Phase::Message, matcher, Action::Swallow, count);
    }

    /// Answers the `count` next matching requests with this RESP frame, for instance
    /// `"-LOADING Redis is loading the dataset in memory\r\n"`; the server never sees them.
    pub fn answer(&self, matcher: impl Into<Matcher>, reply: impl Into<Bytes>, count: usize) {
        let action = Action::Answer(reply.into());
        self.add(Phase::Request, matcher, action, count);
    }

    // Hold frames.

    /// Holds matching requests back from the server until the gate opens.
    pub fn hold_request(&self, matcher: impl Into<Matcher>) -> Gate {
        self.hold(Phase::Request, matcher.into())
    }

    /// Holds the replies to matching requests, which run, until the gate opens.
    pub fn hold_reply(&self, matcher: impl Into<Matcher>) -> Gate {
        self.hold(Phase::Reply, matcher.into())
    }

    /// Holds matching messages to subscribers until the gate opens.
    pub fn hold_message(&self, matcher: impl Into<Matcher>) -> Gate {
        self.hold(Phase::Message, matcher.into())
    }

    /// Delays every matching request on its way to the server: a slow link, not a way to force an
    /// order, for which there is [`hold_request`](Self::hold_request).
    pub fn delay(&self, matcher: impl Into<Matcher>, duration: Duration) {
        let delay = Action::Delay(duration);
        self.state
            .add_rule(Phase::Request, matcher.into(), delay, None, false);
    }

    /// Continues to accept and to read, but forwards nothing in either direction: half-open
    /// connections.
    ///
    /// As on a real link that is down for a while, nothing is lost until a connection is closed:
    /// [`resume`](Self::resume) delivers all bytes that were sent meanwhile.
    pub fn go_silent(&self) {
        self.go_silent_on(Which::All);
    }

    /// As [`go_silent`](Self::go_silent), for some of the connections.
    pub fn go_silent_on(&self, which: Which) {
        self.state.set_silent(Some(which));
    }

    /// Ends the silence.
    pub fn resume(&self) {
        self.state.set_silent(None);
    }

    /// Removes all faults, opens all gates, ends silence and refusal.
    pub fn clear(&self) {
        self.state.clear_rules();
        self.resume();
        self.accept();
    }

    fn hold(&self, phase: Phase, matcher: Matcher) -> Gate {
        let (gate, state) = Gate::new();
        self.state
            .add_rule(phase, matcher, Action::Hold(state), None, true);
        gate
    }

    /// A fault for so many frames, which none has to meet.
    fn add(&self, phase: Phase, matcher: impl Into<Matcher>, action: Action, count: usize) {
        self.state
            .add_rule(phase, matcher.into(), action, Some(count), false);
    }

    async fn wait(&self, matcher: Matcher, least: Progress, count: usize) {
        let mut logged = self.state.logged.subscribe();
        let all = async {
            while self.state.count(&matcher, least) < count {
                logged.changed().await.expect("the proxy owns the sender");
            }
        };
        if tokio::time::timeout(DEADLINE, all).await.is_err() {
            panic!(
                "not {count} of {matcher:?} within {DEADLINE:?}, only: {:#?}",
                self.frames()
            );
        }
    }
}
