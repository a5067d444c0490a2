//! Commands of dropped calls that the server reads late: they neither free nor create a newer hold.
//!
//! A command without a reply in time ends its connection, and is repeated on a new one, while the
//! first command is still in flight. Normally the server's end of the dead connection is killed before
//! the repeat; in some of these tests the server refuses that, as an ACL may do.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use redlock_rt::{Client, LockOptions, Owner, RLock, Unlocked};
use tests::{Frame, Gate, Matcher, Proxy, Which, World, eventually, shared_server};

use crate::DEADLINE;

/// After this a command counts as unanswered.
const RESPONSE: Duration = Duration::from_millis(600);

struct Stage {
    world: World,
    proxy: Proxy,
    client: Client,
    lock: RLock,
    /// The same lock through another client.
    seen: RLock,
}

impl Stage {
    async fn set(what: &str) -> Self {
        let server = shared_server();
        let mut world = World::on(&server, what).await;
        let (seen, proxy) = (world.client().rlock(&world.name), Proxy::to(&server));
        world.clients_connect_to(proxy.url());
        let client = world.client_with(|builder| builder.response_timeout(RESPONSE));
        let lock = client.rlock(&world.name);
        // Loads the scripts.
        let guard = lock.lock().await.unwrap();
        guard.reenter().await.unwrap().unlock().await.unwrap();
        guard.unlock().await.unwrap();
        Self {
            world,
            proxy,
            client,
            lock,
            seen,
        }
    }

    /// The server refuses CLIENT KILL for this client.
    fn refuse_to_kill(&self) {
        let kill = Matcher::command("CLIENT").mentioning("KILL");
        let answer = "-NOPERM this user has no permissions to run the 'client|kill' command\r\n";
        self.proxy.answer(kill, answer, 100);
    }

    /// Holds the first request of this kind, and the requests behind it; a repeat on another connection
    /// passes.
    fn hold_first(&self, kind: fn(&Frame) -> bool) -> (Gate, Arc<OnceLock<Frame>>) {
        let first: Arc<OnceLock<Frame>> = Arc::default();
        let (found, name) = (first.clone(), self.world.name.clone());
        let gate = self.proxy.hold_request(Matcher::when(move |frame| {
            frame.mentions(&name)
                && kind(frame)
                && found.get_or_init(|| frame.clone()).connection == frame.connection
        }));
        (gate, first)
    }

    /// Lets the held requests pass, if their connection still exists.
    async fn deliver(&self, gate: Gate, held: &OnceLock<Frame>) {
        let connection = held.get().unwrap().connection;

        gate.open();
        // Each is answered, or dropped with its connection, which the server has closed.
        eventually(DEADLINE, async || {
            !self.proxy.connections(Which::All).contains(&connection)
        })
        .await;
        // When this is answered, the server has run everything that it had read before.
        let _: () = self.world.redis(&["PING"]).await;
    }

    async fn settled(&self) {
        eventually(DEADLINE, async || self.client.stats().releases == 0).await;
    }

    async fn assert_clean(self) {
        self.world.assert_clean().await;
    }
}

/// The plain command, or a script, which has its publish command.
fn is_release(frame: &Frame) -> bool {
    frame.command() == "HDEL" || frame.is_call() && frame.mentions("PUBLISH")
}

/// The interleaving: a call acquires and is dropped; its compensation is late; the caller acquires
/// again; the compensation arrives.
async fn late_release_of_a_dropped_call(what: &str, options: impl Fn() -> LockOptions) {
    let stage = Stage::set(what).await;
    stage.refuse_to_kill();
    let reply = stage.proxy.hold_reply(Matcher::when(Frame::is_call));
    let (release, held) = stage.hold_first(is_release);

    let lock = stage.lock.clone();
    let first = options();
    let call = tokio::spawn(async move { lock.lock_with(first).await });
    reply.reached().await;
    let dropped = stage.seen.holder().await.unwrap().unwrap();
    call.abort();
    assert!(call.await.unwrap_err().is_cancelled());
    reply.open();
    // The lock was acquired for a dropped call, so it is released; that release is held, and repeated.
    release.reached().await;
    assert!(held.get().unwrap().mentions(dropped.as_str()));
    assert_eq!(stage.seen.holder().await.unwrap(), Some(dropped.clone()));
    let newer = stage.lock.lock_with(options()).await.unwrap();
    stage.settled().await;
    let owner = newer.hold_id().clone();
    assert_ne!(owner, dropped);

    stage.deliver(release, &held).await;
    assert_eq!(stage.seen.holder().await.unwrap(), Some(owner));
    assert!(newer.is_valid());
    assert_eq!(newer.unlock().await.unwrap(), Unlocked::Released);
    stage.assert_clean().await;
}

#[tokio::test]
async fn a_late_release_of_a_dropped_call_never_frees_a_newer_hold() {
    late_release_of_a_dropped_call("late-release", LockOptions::new).await;
}

#[tokio::test]
async fn a_late_release_of_a_dropped_call_never_frees_a_newer_hold_of_its_owner() {
    let owner = Owner::new();
    late_release_of_a_dropped_call("late-owner", || LockOptions::new().owner(&owner)).await;
}

#[tokio::test]
async fn a_late_release_of_a_dropped_unlock_never_frees_a_newer_hold() {
    let stage = Stage::set("late-unlock").await;
    stage.refuse_to_kill();
    let guard = stage.lock.lock().await.unwrap();
    let (release, held) = stage.hold_first(is_release);
    let call = tokio::spawn(guard.unlock());
    release.reached().await;
    call.abort();
    assert!(call.await.unwrap_err().is_cancelled());
    let newer = stage.lock.lock().await.unwrap();
    stage.settled().await;

    stage.deliver(release, &held).await;
    assert_eq!(
        stage.seen.holder().await.unwrap(),
        Some(newer.hold_id().clone())
    );
    assert_eq!(newer.unlock().await.unwrap(), Unlocked::Released);
    stage.assert_clean().await;
}

/// The acquisition itself is late: it runs after its own compensation, unless the server's end of
/// its connection was killed before.
#[tokio::test]
async fn a_late_acquisition_of_a_dropped_call_takes_nothing() {
    let stage = Stage::set("late-acquisition").await;
    let (acquisition, held) = stage.hold_first(Frame::is_call);
    let lock = stage.lock.clone();
    let call = tokio::spawn(async move { lock.lock().await });
    acquisition.reached().await;
    call.abort();
    assert!(call.await.unwrap_err().is_cancelled());
    eventually(DEADLINE, async || stage.client.stats().releases == 1).await;
    stage.settled().await;
    assert!(!stage.seen.is_locked().await.unwrap());

    stage.deliver(acquisition, &held).await;
    assert!(!stage.seen.is_locked().await.unwrap());
    stage.assert_clean().await;
}

#[tokio::test]
async fn a_late_reentry_of_a_dropped_call_brings_nothing_back() {
    let stage = Stage::set("late-reentry").await;
    stage.refuse_to_kill();
    let guard = stage.lock.lock().await.unwrap();
    let (reentry, held) = stage.hold_first(Frame::is_call);
    {
        let mut call = Box::pin(guard.reenter());
        assert!(futures::poll!(&mut call).is_pending());
        reentry.reached().await;
    }
    // Repeated on another connection, and undone there.
    stage.settled().await;
    assert_eq!(stage.seen.hold_count().await.unwrap(), 1);
    assert_eq!(guard.unlock().await.unwrap(), Unlocked::Released);
    stage.settled().await;
    assert!(!stage.seen.is_locked().await.unwrap());

    stage.deliver(reentry, &held).await;
    assert!(!stage.seen.is_locked().await.unwrap());
    stage.assert_clean().await;
}

/// The server cannot be reached until the lease would be over, and reads the acquisition only then.
#[tokio::test]
async fn a_dropped_call_took_the_lock_when_the_server_read_it_after_its_lease() {
    const LEASE: Duration = Duration::from_secs(1);
    let stage = Stage::set("late-lease").await;
    let (acquisition, held) = stage.hold_first(Frame::is_call);
    let (lock, options) = (stage.lock.clone(), LockOptions::new().lease(LEASE));
    let call = tokio::spawn(async move { lock.lock_with(options).await });
    acquisition.reached().await;
    stage.proxy.refuse();
    let late = held.get().unwrap().connection;
    for other in stage.proxy.connections(Which::All) {
        if other != late {
            stage.proxy.cut(Which::Connection(other));
        }
    }
    call.abort();
    assert!(call.await.unwrap_err().is_cancelled());
    // The client gives a lease a second more.
    tokio::time::sleep(LEASE + Duration::from_secs(2)).await;
    stage.proxy.accept();
    stage.settled().await;

    stage.deliver(acquisition, &held).await;
    assert!(!stage.seen.is_locked().await.unwrap());
    stage.assert_clean().await;
}
