//! Plain commands in place of scripts: the same keys, and the same outcomes where they fail.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use redlock_rt::{Client, ErrorKind, LockOptions, LostReason, Unlocked};
use tests::{
    CALL, DEADLINE, Proxy, RedisServer, RedissonClient, RedissonRLock, Replicated, World, calls,
    eventually, within,
};
use tokio::task::JoinHandle;

/// Longer than a test.
const LEASE: Duration = Duration::from_secs(600);
const FOR_EVER: usize = usize::MAX;
/// So often does a client ask whether the server carries out HDEL.
const ASKED: usize = 1;

struct Stage {
    server: RedisServer,
    proxy: Proxy,
    world: World,
    client: Client,
}

impl Stage {
    async fn open(what: &str) -> Self {
        let server = RedisServer::start();
        let proxy = Proxy::to(&server);
        let mut world = World::on(&server, what).await;
        world.clients_connect_to(proxy.url());
        let client = world.client_with(|builder| builder.lease(LEASE));
        Self {
            server,
            proxy,
            world,
            client,
        }
    }

    /// A client whose user may do all but this.
    async fn client_of_user_without(&mut self, rights: &[&str]) -> Client {
        let user = ["ACL", "SETUSER", "few", "on", ">pw", "~*", "&*", "+@all"];
        let _: () = self.world.redis(&[&user, rights].concat()).await;
        let url = self.proxy.url().replace("redis://", "redis://few:pw@");
        self.world.clients_connect_to(url);
        self.world.client_with(|builder| builder.lease(LEASE))
    }

    fn name(&self) -> &str {
        &self.world.name
    }

    /// The type, the encoding and the content of the lock, and whether it has the lease.
    async fn key(&self) -> (String, String, BTreeMap<String, String>, bool) {
        let name = self.name();
        let ttl: i64 = self.world.redis(&["PTTL", name]).await;
        let lease = i64::try_from(LEASE.as_millis()).unwrap();
        (
            self.world.redis(&["TYPE", name]).await,
            self.world.redis(&["OBJECT", "ENCODING", name]).await,
            self.world.redis(&["HGETALL", name]).await,
            (lease - 5000..=lease).contains(&ttl),
        )
    }

    fn sent(&self, command: &str) -> usize {
        self.proxy.count(command)
    }

    /// The first thread waits for the lock; whether it gets it.
    async fn waits(&self, theirs: &RedissonRLock) -> JoinHandle<bool> {
        let lock = theirs.clone();
        let waiter = tokio::spawn(async move { lock.lock(1, Some(DEADLINE)).await.unwrap() });
        self.world.subscribed_to(&theirs.channel(), 1).await;
        waiter
    }

    async fn end(self) {
        self.world.assert_clean().await;
        drop(self.server);
    }
}

#[tokio::test]
async fn a_lock_is_the_same_key_by_either_road() {
    let stage = Stage::open("same").await;
    let lock = stage.client.rlock(stage.name());
    let mut keys = Vec::new();
    for restores in [true, false] {
        if !restores {
            let unknown = "-ERR unknown command 'RESTORE'\r\n";
            stage.proxy.answer("RESTORE", unknown, FOR_EVER);
        }
        stage.proxy.mark();
        let guard = lock.lock().await.unwrap();
        assert_eq!(stage.sent("EVALSHA") == 0, restores);
        let (kind, encoding, fields, leased) = stage.key().await;
        assert_eq!(fields.into_values().collect::<Vec<_>>(), ["1"]);
        keys.push((kind, encoding, leased));
        assert_eq!(guard.unlock().await.unwrap(), Unlocked::Released);
    }
    assert_eq!(keys[0], keys[1]);
    assert!(keys[0].2, "with the lease");
    stage.end().await;
}

#[tokio::test]
async fn a_client_without_plain_commands_sends_scripts_only() {
    let stage = Stage::open("scripts").await;
    let client = stage
        .world
        .client_with(|builder| builder.plain_commands(false));
    stage.proxy.mark();
    for drops in [false, true, true] {
        let guard = client.rlock(stage.name()).lock().await.unwrap();
        match drops {
            true => drop(guard),
            false => assert_eq!(guard.unlock().await.unwrap(), Unlocked::Released),
        }
        let lock = client.rlock(stage.name());
        eventually(DEADLINE, async || !lock.is_locked().await.unwrap()).await;
    }
    for (command, sent) in [("RESTORE", 0), ("PUBLISH", 0), ("HDEL", ASKED)] {
        assert_eq!(stage.sent(command), sent, "{command}");
    }
    assert!(stage.sent("EVALSHA") >= 6);
    stage.end().await;
}

#[tokio::test]
async fn a_repeat_of_a_creation_whose_reply_was_lost_finds_its_own_lock() {
    let stage = Stage::open("repeat").await;
    stage.proxy.cut_after_request("RESTORE");
    let guard = within(DEADLINE, stage.client.rlock(stage.name()).lock())
        .await
        .unwrap();
    assert_eq!(
        (stage.sent("RESTORE"), stage.sent("EVALSHA") > 0),
        (2, true)
    );
    let (.., fields, leased) = stage.key().await;
    assert_eq!(fields.into_values().collect::<Vec<_>>(), ["1"]);
    assert!(leased);
    assert_eq!(guard.unlock().await.unwrap(), Unlocked::Released);
    stage.end().await;
}

#[tokio::test]
async fn a_lock_of_another_is_neither_taken_nor_released() {
    let stage = Stage::open("other").await;
    let java = RedissonClient::connect(&stage.server.url()).await.unwrap();
    let theirs = java.rlock(stage.name());
    assert!(theirs.try_lock(1, Some(LEASE)).await.unwrap());
    let lock = stage.client.rlock(stage.name());
    assert!(lock.try_lock().await.unwrap().is_none());
    assert!(theirs.is_held_by(1).await.unwrap());
    theirs.unlock(1).await.unwrap();

    // Ours is deleted, and then it is theirs.
    let guard = lock.lock().await.unwrap();
    let _: u8 = stage.world.redis(&["DEL", stage.name()]).await;
    assert!(theirs.try_lock(1, Some(LEASE)).await.unwrap());
    stage.proxy.mark();
    let gone = guard.unlock().await;
    assert_eq!((stage.sent("HDEL"), stage.sent("EVALSHA") > 0), (1, true));
    assert!(!matches!(gone, Ok(Unlocked::Released)), "{gone:?}");
    assert!(theirs.is_held_by(1).await.unwrap());
    theirs.unlock(1).await.unwrap();
    stage.end().await;
}

#[tokio::test]
async fn a_lock_that_restore_made_is_renewed_and_awaited_by_redisson() {
    let stage = Stage::open("awaited").await;
    let url = stage.server.url();
    let java = RedissonClient::connect_with_watchdog(&url, 2 * LEASE).await;
    let java = java.unwrap();
    let guard = stage.client.rlock(stage.name()).lock().await.unwrap();
    assert_eq!((stage.sent("RESTORE"), stage.sent("EVALSHA")), (1, 0));

    // As if Redisson had the lock, under our id and number.
    let holds = [(stage.name(), guard.hold_id().to_string())];
    assert_eq!(java.renew_fields(&holds).await.unwrap(), [true]);
    let ttl = stage.world.ttl().await.unwrap();
    assert!(ttl > LEASE && ttl <= 2 * LEASE, "{ttl:?}");

    let theirs = java.rlock(stage.name());
    let waiter = stage.waits(&theirs).await;
    assert!(!waiter.is_finished());
    assert_eq!(guard.unlock().await.unwrap(), Unlocked::Released);
    assert_eq!((stage.sent("HDEL"), stage.sent("EVALSHA")), (ASKED + 1, 0));
    assert!(within(DEADLINE, waiter).await.unwrap(), "it was woken");
    assert!(theirs.is_held_by(1).await.unwrap());
    theirs.unlock(1).await.unwrap();
    stage.end().await;
}

#[tokio::test]
async fn a_lock_that_restore_made_is_freed_by_redisson_and_its_guard_is_told() {
    let stage = Stage::open("freed").await;
    let java = RedissonClient::connect(&stage.server.url()).await.unwrap();
    // The next renewal finds out.
    let short = Duration::from_secs(2);
    let client = stage.world.client_with(|builder| builder.lease(short));
    let guard = client.rlock(stage.name()).lock().await.unwrap();
    assert_eq!((stage.sent("RESTORE"), stage.sent("EVALSHA")), (1, 0));
    assert!(java.rlock(stage.name()).force_unlock().await.unwrap());
    assert!(!stage.world.is_there().await);
    let told = within(DEADLINE, guard.lost()).await;
    assert_eq!(told, LostReason::Deleted);
    assert_eq!(guard.unlock().await.unwrap(), Unlocked::AlreadyExpired);
    stage.end().await;
}

/// A waiter of Redisson sleeps for the lease that it was told, so a release that is not announced
/// holds it up.
#[tokio::test]
async fn a_release_that_was_cut_before_its_announcement_is_announced_by_the_repeat() {
    let stage = Stage::open("cut").await;
    let java = RedissonClient::connect(&stage.server.url()).await.unwrap();
    let guard = stage.client.rlock(stage.name()).lock().await.unwrap();
    let theirs = java.rlock(stage.name());
    let waiter = stage.waits(&theirs).await;
    // HDEL reaches the server, and PUBLISH does not.
    stage.proxy.cut_after_request("HDEL");
    assert_eq!(
        within(DEADLINE, guard.unlock()).await.unwrap(),
        Unlocked::Released
    );
    assert_eq!(stage.sent("HDEL"), ASKED + 2);
    assert!(within(DEADLINE, waiter).await.unwrap(), "it was woken");
    theirs.unlock(1).await.unwrap();
    stage.end().await;
}

#[tokio::test]
async fn a_dropped_guard_of_a_user_without_the_right_is_released() {
    let mut stage = Stage::open("rights").await;
    let client = stage.client_of_user_without(&["-restore", "-hdel"]).await;
    let lock = client.rlock(stage.name());
    for _ in 0..5 {
        drop(lock.lock().await.unwrap());
        eventually(DEADLINE, async || client.stats().names == 0).await;
        let left: u8 = stage.world.redis(&["EXISTS", stage.name()]).await;
        assert_eq!(left, 0);
        lock.lock().await.unwrap().unlock().await.unwrap();
    }
    assert_eq!((stage.sent("RESTORE"), stage.sent("HDEL")), (1, ASKED));
    stage.end().await;
}

/// Only a caller that waited for a release showed that the server carries out its command, so a client
/// that only drops guards sent scripts for ever.
#[tokio::test]
async fn a_client_that_only_drops_guards_releases_by_plain_commands() {
    let stage = Stage::open("dropped").await;
    let lock = stage.client.rlock(stage.name());
    let drops = async |times| {
        for _ in 0..times {
            drop(lock.lock().await.unwrap());
            eventually(DEADLINE, async || stage.client.stats().names == 0).await;
            let left: u8 = stage.world.redis(&["EXISTS", stage.name()]).await;
            assert_eq!(left, 0);
        }
    };
    drops(1).await;
    stage.proxy.mark();
    drops(3).await;
    assert_eq!((stage.sent("EVALSHA"), stage.sent("HDEL")), (0, 3));
    stage.end().await;
}

#[tokio::test]
async fn dropped_guards_of_a_user_who_may_only_create_try_the_deletion_once() {
    let mut stage = Stage::open("create").await;
    let client = stage.client_of_user_without(&["-hdel"]).await;
    let lock = client.rlock(stage.name());
    for _ in 0..5 {
        drop(lock.lock().await.unwrap());
        eventually(DEADLINE, async || client.stats().names == 0).await;
    }
    assert_eq!(stage.sent("HDEL"), ASKED);
    stage.end().await;
}

/// The second reply woke the task of the cancelled `unlock`, so the release ended only when the replies
/// were looked for.
#[tokio::test]
async fn a_cancelled_unlock_whose_replies_come_apart_ends_with_the_second() {
    let stage = Stage::open("apart").await;
    let client = stage
        .world
        .client_with(|builder| builder.lease(LEASE).response_timeout(LEASE));
    let lock = client.rlock(stage.name());
    lock.lock().await.unwrap().unlock().await.unwrap();
    let guard = lock.lock().await.unwrap();
    let (first, second) = (
        stage.proxy.hold_reply("HDEL"),
        stage.proxy.hold_reply("PUBLISH"),
    );
    let unlock = tokio::spawn(async move { guard.unlock().await });
    first.reached().await;
    unlock.abort();
    assert!(unlock.await.unwrap_err().is_cancelled());
    first.open();
    second.reached().await;
    // Meanwhile the client reads the first reply alone.
    for _ in 0..100 {
        let _: String = stage.world.redis(&["PING"]).await;
    }
    second.open();
    eventually(DEADLINE, async || client.stats().names == 0).await;
    stage.end().await;
}

/// A refusal that passes is not taken for one that lasts.
#[tokio::test]
async fn a_busy_server_is_asked_by_plain_commands_afterwards() {
    let stage = Stage::open("busy").await;
    let busy = "-BUSY Redis is busy running a script.\r\n";
    let lock = stage.client.rlock(stage.name());
    stage.proxy.answer("RESTORE", busy, 1);
    let guard = within(DEADLINE, lock.lock()).await.unwrap();
    stage.proxy.answer("HDEL", busy, 1);
    assert_eq!(
        within(DEADLINE, guard.unlock()).await.unwrap(),
        Unlocked::Released
    );
    assert_eq!((stage.sent("RESTORE"), stage.sent("HDEL")), (2, ASKED + 2));
    assert_eq!(stage.sent("EVALSHA"), 0);
    stage.end().await;
}

/// It was taken for a missing right: the lock was Released, and the waiter slept until its next poll. The
/// first refusal comes behind the HDEL that ends the hold, the second behind the one that finds it gone.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_was_busy_between_a_release_and_its_announcement_left_the_waiter_asleep() {
    let stage = Stage::open("unheard").await;
    let patient = Client::builder().url(&stage.server.url()).lease(LEASE);
    let patient = patient.poll_interval(2 * DEADLINE).build().unwrap();
    for (at, busy, dropped) in [
        (0, "-BUSY Redis is busy running a script.\r\n", false),
        (1, "-BUSY Redis is busy running a script.\r\n", true),
        (2, "-MASTERDOWN Link with MASTER is down\r\n", false),
    ] {
        let name = format!("{}:{at}", stage.name());
        let guard = stage.client.rlock(&name).lock().await.unwrap();
        let waiter = tokio::spawn({
            let lock = patient.rlock(&name);
            async move { lock.lock().await.unwrap().unlock().await.unwrap() }
        });
        let channel = format!("redisson_lock__channel:{{{name}}}");
        stage.world.subscribed_to(&channel, 1).await;
        // After the waiter's try that follows its subscription, which was refused.
        for _ in 0..3 {
            assert!(patient.rlock(&name).is_locked().await.unwrap());
        }
        stage.proxy.mark();
        stage.proxy.answer("PUBLISH", busy, 2);
        match dropped {
            true => drop(guard),
            false => {
                let unlocked = within(DEADLINE, guard.unlock()).await.unwrap();
                assert_eq!(unlocked, Unlocked::Released);
            }
        }
        assert_eq!(within(DEADLINE, waiter).await.unwrap(), Unlocked::Released);
        // The release of a dropped guard may still be under way, where the waiter looked by itself.
        eventually(DEADLINE, async || stage.sent("PUBLISH") == 3).await;
    }
    stage.end().await;
}

#[tokio::test]
async fn a_key_of_another_type_is_refused_as_by_the_script() {
    let stage = Stage::open("type").await;
    let lock = stage.client.rlock(stage.name());
    let _: () = stage.world.redis(&["SET", stage.name(), "text"]).await;
    let error = lock.lock().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::WrongType, "{error}");
    let _: u8 = stage.world.redis(&["DEL", stage.name()]).await;

    // A holder that does not notice.
    let guard = lock.lock().await.unwrap();
    let _: () = stage.world.redis(&["SET", stage.name(), "text"]).await;
    let error = guard.unlock().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::WrongType, "{error}");
    let text: String = stage.world.redis(&["GET", stage.name()]).await;
    assert_eq!(text, "text");
    let _: u8 = stage.world.redis(&["DEL", stage.name()]).await;
    stage.end().await;
}

/// The reply to RESTORE comes after its caller has gone: the lock is released.
#[tokio::test]
async fn a_cancelled_creation_is_undone() {
    let stage = Stage::open("cancel").await;
    for command in [calls("rlock_acquire"), CALL.into()] {
        let lock = stage.client.rlock(stage.name());
        let gate = stage.proxy.hold_reply(command);
        {
            let acquire = std::pin::pin!(lock.lock());
            tokio::select! {
                biased;
                _ = acquire => panic!("it has no reply"),
                () = gate.reached() => {}
            }
        }
        drop(gate);
        let is_free = async || {
            let left: u8 = stage.world.redis(&["EXISTS", stage.name()]).await;
            left == 0 && stage.client.stats().names == 0
        };
        eventually(DEADLINE, is_free).await;
        stage.proxy.mark();
    }
    stage.end().await;
}

/// The lock is found taken by the plain command, and its caller goes before the script has answered.
#[tokio::test]
async fn a_caller_that_goes_between_the_plain_command_and_the_script_leaves_nothing() {
    let stage = Stage::open("between").await;
    let _: u8 = stage
        .world
        .redis(&["HSET", stage.name(), "somebody:1", "1"])
        .await;
    let lock = stage.client.rlock(stage.name());
    let gate = stage.proxy.hold_request("EVALSHA");
    {
        let acquire = std::pin::pin!(lock.lock());
        tokio::select! {
            biased;
            _ = acquire => panic!("it has no reply"),
            () = gate.reached() => {}
        }
    }
    // It is free when the script runs, which takes it for nobody.
    let _: u8 = stage.world.redis(&["DEL", stage.name()]).await;
    drop(gate);
    let is_free = async || {
        let left: u8 = stage.world.redis(&["EXISTS", stage.name()]).await;
        left == 0 && stage.client.stats().names == 0
    };
    eventually(DEADLINE, is_free).await;
    stage.end().await;
}

/// With a wait of zero there is one try, though it takes two commands.
#[tokio::test]
async fn a_wait_of_zero_is_told_that_the_lock_is_taken() {
    let stage = Stage::open("zero").await;
    let _: u8 = stage
        .world
        .redis(&["HSET", stage.name(), "somebody:1", "1"])
        .await;
    let lock = stage.client.rlock(stage.name());
    let zero = LockOptions::new().wait(Duration::ZERO);
    let error = lock.lock_with(zero).await.unwrap_err();
    assert!(error.is_contended(), "{error}");
    let _: u8 = stage.world.redis(&["DEL", stage.name()]).await;
    stage.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replica_gets_the_lock_with_its_lease() {
    let servers = Replicated::start(RedisServer::options(), 1).await;
    let url = servers.server(0).url();
    let client = Client::builder().url(&url).lease(LEASE).build().unwrap();
    let before = Instant::now();
    let guard = client.rlock("replicated").lock().await.unwrap();
    let arrived = async || {
        let left: i64 = servers.command(1, &["PTTL", "replicated"]).await;
        left > 0
    };
    eventually(DEADLINE, arrived).await;
    let ttl: i64 = servers.command(1, &["PTTL", "replicated"]).await;
    let lease = i64::try_from(LEASE.as_millis()).unwrap();
    let late = i64::try_from(before.elapsed().as_millis()).unwrap();
    assert!((lease - late - 1000..=lease).contains(&ttl), "{ttl}");
    guard.unlock().await.unwrap();
    let gone = async || servers.command::<i64>(1, &["PTTL", "replicated"]).await == -2;
    eventually(DEADLINE, gone).await;
}
