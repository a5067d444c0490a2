//! What goes wrong during a call.

use std::{cell::Cell, collections::BTreeSet, rc::Rc};

use redlock_rt::embedded::Engine;
use tests::{CALL, Frame, Matcher, Proxied, Proxy, Which};

use crate::stage::{Event, Stage};

/// Where the locks are.
pub(crate) enum Backend {
    /// With a runtime of one thread that runs one task between two polls, and a paused clock.
    Engine(Engine),
    /// Real servers, of which nothing is faked.
    Redis(Box<Proxied>),
}

impl Backend {
    /// None before the engine.
    pub(crate) fn proxies(&self) -> impl Iterator<Item = &Proxy> {
        let servers = match self {
            Self::Engine(_) => None,
            Self::Redis(servers) => Some(servers),
        };
        servers.into_iter().flat_map(|servers| servers.proxies())
    }
}

impl Stage {
    /// Cuts the connections on which the client calls scripts, and returns how many there were.
    fn cut_scripts(&self) -> usize {
        match &*self.backend {
            Backend::Engine(_) => self.wires.cut(Which::Scripts),
            Backend::Redis(servers) => {
                let ours = |frame: &Frame| frame.mentions(self.client.uuid());
                let cut = servers.proxies().map(|proxy| {
                    let frames = proxy.frames().into_iter().filter(ours);
                    let ours: BTreeSet<u64> = frames.map(|frame| frame.connection).collect();
                    let cut = |number: u64| proxy.cut(Which::Connection(number));
                    ours.into_iter().map(cut).sum::<usize>()
                });
                cut.sum()
            }
        }
    }

    /// The client's calls of scripts.
    fn scripts(&self) -> Matcher {
        Matcher::command(CALL).mentioning(self.client.uuid())
    }

    /// Cuts the subscribing connection when the client is subscribed and has tried again; the result
    /// says later whether that happened.
    pub(crate) fn then_cut_subscriber(&mut self) -> Rc<Cell<bool>> {
        let (wires, done) = (self.wires.clone(), Rc::new(Cell::new(false)));
        let later = done.clone();
        let event = match &*self.backend {
            Backend::Engine(_) => {
                let sent = wires.count();
                let due = {
                    let wires = wires.clone();
                    move || has_tried_again(&wires.frames(sent))
                };
                let cut = move || later.set(wires.cut(Which::Subscribers) > 0);
                Event::When(Box::new(due), Box::new(cut))
            }
            Backend::Redis(servers) => {
                servers.proxies().for_each(Proxy::mark);
                let (backend, uuid) = (self.backend.clone(), self.client.uuid().to_owned());
                let due = {
                    let backend = backend.clone();
                    move || {
                        backend.proxies().any(|proxy| {
                            let mut frames = proxy.frames();
                            frames.retain(|frame| !frame.is_call() || frame.mentions(&uuid));
                            has_tried_again(&frames)
                        })
                    }
                };
                let cut = move || {
                    let cut = backend.proxies().map(|proxy| proxy.cut(Which::Subscribers));
                    later.set(cut.sum::<usize>() > 0);
                };
                Event::When(Box::new(due), Box::new(cut))
            }
        };
        self.events.push_back(event);
        done
    }

    /// Cuts the connection for commands; a new one is refused for a while.
    pub(crate) fn cut_off(&mut self) {
        self.wires.refuse();
        self.backend.proxies().for_each(Proxy::refuse);
        assert!(self.cut_scripts() > 0);
        self.then_time_passes(2);
        let (backend, wires) = (self.backend.clone(), self.wires.clone());
        self.then(move || {
            wires.accept();
            backend.proxies().for_each(Proxy::accept);
        });
        self.then_time_passes(2);
    }

    /// The call's first command at each server runs, and its reply is lost with the connection.
    pub(crate) fn lose_reply(&mut self) {
        match &*self.backend {
            Backend::Engine(_) => {
                let (wires, sent) = (self.wires.clone(), self.wires.count());
                let due = {
                    let wires = wires.clone();
                    move || wires.count() > sent
                };
                let cut = move || assert!(wires.cut(Which::Scripts) > 0);
                self.events
                    .push_back(Event::When(Box::new(due), Box::new(cut)));
            }
            Backend::Redis(servers) => {
                let scripts = self.scripts();
                servers
                    .proxies()
                    .for_each(|proxy| proxy.cut_after_request(scripts.clone()));
            }
        }
    }

    /// The call's first command at each server is lost with the connection, before the server has it.
    pub(crate) fn lose_request(&self) {
        match &*self.backend {
            Backend::Engine(_) => self.wires.lose_next(CALL),
            Backend::Redis(servers) => {
                let scripts = self.scripts();
                servers
                    .proxies()
                    .for_each(|proxy| proxy.cut_before_request(scripts.clone()));
            }
        }
    }
}

/// Whether a script was called after the client had subscribed.
fn has_tried_again(frames: &[Frame]) -> bool {
    // An earlier call's UNSUBSCRIBE may come late.
    let subscribes = |frame: &Frame| matches!(&*frame.command(), "SUBSCRIBE" | "SSUBSCRIBE");
    let subscribed = frames.iter().rposition(subscribes);
    subscribed.is_some() && frames.iter().rposition(Frame::is_call) > subscribed
}
