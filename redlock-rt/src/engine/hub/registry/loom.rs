//! Callers attach and detach while the task runs and its connection breaks, in every interleaving.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use ::loom::sync::Arc;
use ::loom::sync::atomic::{AtomicBool, Ordering};
use ::loom::thread;

use super::{Effect, Registry, SubscriptionEnd};
use crate::shim::{Mutex, lock, model};

type Listener = Arc<AtomicBool>;
type Shared = Arc<Mutex<Registry<Listener>>>;

const CHANNEL: &str = "c";

/// The server's side of one connection, and the commands in flight to it.
#[derive(Default)]
struct Server {
    wire: Vec<Effect>,
    subscribed: HashSet<String>,
}

impl Server {
    /// One turn of the task: sends the commands, and processes one confirmation.
    fn turn(&mut self, shared: &Shared) {
        let mut registry = lock(shared);
        self.wire
            .extend(std::iter::from_fn(|| registry.next_effect()));
        drop(registry);
        if self.wire.is_empty() {
            return;
        }
        let effect = self.wire.remove(0);
        if effect.subscribe {
            self.subscribed.insert(effect.channel.clone());
        } else {
            self.subscribed.remove(&effect.channel);
        }
        let told = lock(shared).confirmed(&effect);
        for listener in told {
            listener.store(true, Ordering::Release);
        }
    }

    fn settle(&mut self, shared: &Shared) {
        for _ in 0..4 {
            self.turn(shared);
        }
    }

    fn reconnect(&mut self, shared: &Shared) {
        lock(shared).disconnected();
        *self = Self::default();
        lock(shared).connected();
    }
}

fn live() -> Shared {
    // No linger: the last listener that detaches ends the subscription, and the next one meets
    // that.
    let mut registry = Registry::new(Duration::ZERO);
    registry.connected();
    Arc::new(Mutex::new(registry))
}

/// Attaches; answers whether the channel was confirmed or the listener was told by the end.
fn attach(shared: &Shared) -> (Listener, bool) {
    let listener = Listener::default();
    let (_, confirmed) = lock(shared).attach(CHANNEL, Arc::clone(&listener));
    (listener, confirmed)
}

#[test]
fn a_listener_that_attaches_during_the_last_detach_gets_a_confirmation() {
    model(None, || {
        let shared = live();
        let mut server = Server::default();
        let (old, _) = lock(&shared).attach(CHANNEL, Listener::default());
        server.settle(&shared);
        let now = Instant::now();
        let detach = {
            let shared = Arc::clone(&shared);
            thread::spawn(move || {
                drop(lock(&shared).detach(CHANNEL, old, SubscriptionEnd::Later, now))
            })
        };
        let attach = {
            let shared = Arc::clone(&shared);
            thread::spawn(move || attach(&shared))
        };
        server.turn(&shared);
        detach.join().unwrap();
        let (listener, confirmed) = attach.join().unwrap();
        server.settle(&shared);
        assert!(confirmed || listener.load(Ordering::Acquire));
        assert!(lock(&shared).is_confirmed(CHANNEL));
        assert!(server.subscribed.contains(CHANNEL));
    });
}

#[test]
fn a_listener_that_attaches_during_a_break_gets_the_new_connection() {
    model(None, || {
        let shared = live();
        let mut server = Server::default();
        let attach = {
            let shared = Arc::clone(&shared);
            thread::spawn(move || attach(&shared))
        };
        server.turn(&shared);
        server.reconnect(&shared);
        server.turn(&shared);
        let (listener, confirmed) = attach.join().unwrap();
        server.settle(&shared);
        assert!(confirmed || listener.load(Ordering::Acquire));
        assert!(server.subscribed.contains(CHANNEL));
    });
}
