//! Users with few rights: `Client::acl_rule` names what each kind needs and no more, and a refused call returns an
//! error and takes nothing.

mod cluster;
mod hosted;
mod namespace;
mod regained;
mod roads;

use std::time::Duration;

use futures::{StreamExt, TryStreamExt};
use redlock_rt::{
    AclKind, Client, Error, ErrorKind, Fire, FoundKind, LockOptions, LostReason, Owner,
    PermitOptions, Shutdown, Unlocked,
};
use tests::{DEADLINE, Proxy, RedisServer, World, eventually, is_renewed, unique, within};

/// Short, since waiters without announcements poll.
const POLL: Duration = Duration::from_millis(50);
/// Of what is to end by itself. Renewals come after a third of it, under longer leases.
const LEASE: Duration = Duration::from_millis(600);

const KINDS: [AclKind; 11] = [
    AclKind::Semaphore,
    AclKind::PermitExpirableSemaphore,
    AclKind::CountDownLatch,
    AclKind::Once,
    AclKind::Barrier,
    AclKind::FairLock,
    AclKind::ReadWriteLock,
    AclKind::FencedLock,
    AclKind::Steal,
    AclKind::Inspect,
    AclKind::PlainCommands,
];
const COUNTED: [AclKind; 3] = [
    AclKind::CountDownLatch,
    AclKind::Semaphore,
    AclKind::PermitExpirableSemaphore,
];

/// The commands in the rule for these kinds.
fn rights(kinds: &[AclKind]) -> Vec<String> {
    commands(&Client::embedded(), kinds)
}

fn commands(client: &Client, kinds: &[AclKind]) -> Vec<String> {
    let mut words = words(client, kinds);
    words.retain(|word| word.starts_with('+'));
    words
}

/// The words of the rule for these kinds.
fn words(client: &Client, kinds: &[AclKind]) -> Vec<String> {
    let rule = client.acl_rule(kinds.iter().copied());
    rule.split(' ').map(str::to_owned).collect()
}

struct Stage {
    /// Kept running.
    _server: RedisServer,
    /// The way of all clients.
    proxy: Proxy,
    world: World,
    /// The user of the last client.
    user: String,
}

impl Stage {
    async fn open(what: &str) -> Self {
        let server = RedisServer::start();
        let proxy = Proxy::to(&server);
        let world = World::on(&server, what).await;
        Self {
            _server: server,
            proxy,
            world,
            user: String::new(),
        }
    }

    /// A client of a user with these rights, by default on all keys and on the channels of Redisson.
    async fn client(&mut self, rights: &[String]) -> Client {
        let user = unique("user").replace(':', "-");
        self.user.clone_from(&user);
        let mut words = vec!["ACL", "SETUSER", &user, "on", ">pw"];
        if !rights.iter().any(|right| right.starts_with('~')) {
            words.push("~*");
        }
        if !rights.iter().any(|right| right == "resetchannels") {
            words.push("&redisson_*");
        }
        words.extend(rights.iter().map(String::as_str));
        // From Redis 7.2 on.
        let known: Vec<String> = self.world.redis(&["ACL", "CAT", "connection"]).await;
        if known.iter().any(|command| command == "client|setinfo") {
            words.push("+client|setinfo");
        }
        let _: () = self.world.redis(&words).await;
        let login = format!("redis://{user}:pw@");
        let url = self.proxy.url().replace("redis://", &login);
        self.world.clients_connect_to(url);
        self.world
            .client_with(|builder| builder.poll_interval(POLL))
    }

    /// Sets a right of the user of the last client.
    async fn set(&self, right: &str) {
        let _: () = self
            .world
            .redis(&["ACL", "SETUSER", &self.user, right])
            .await;
    }

    /// What the user of the last client was refused.
    async fn refused(&self) -> Vec<String> {
        let log = self.world.redis(&["ACL", "LOG", "1000"]).await;
        refused(log, &self.user)
    }

    /// Removes keys that expire, and the semaphore.
    async fn sweep(&self) {
        let keys: Vec<String> = self
            .world
            .redis(&["KEYS", &format!("*{}*", self.world.name)])
            .await;
        for key in keys {
            let ttl: i64 = self.world.redis(&["PTTL", &key]).await;
            assert!(ttl > 0 || key == self.world.name, "{key} stays");
            let _: bool = self.world.redis(&["DEL", &key]).await;
        }
    }

    /// The end of a test that leaves keys without a TTL: those of semaphores.
    async fn clear(self) {
        let pattern = format!("*{}*", self.world.name);
        let keys: Vec<String> = self.world.redis(&["KEYS", &pattern]).await;
        for key in keys {
            let _: bool = self.world.redis(&["DEL", &key]).await;
        }
        self.world.assert_clean().await;
    }

    async fn end(self) {
        self.sweep().await;
        self.world.assert_clean().await;
    }
}

/// What this user was refused, of the entries of ACL LOG.
fn refused(log: Vec<redis::Value>, user: &str) -> Vec<String> {
    let mut refused = Vec::new();
    for entry in log {
        let words: Vec<(String, redis::Value)> = redis::from_redis_value(entry).unwrap();
        let word = |name: &str| {
            let found = words.iter().find(|(key, _)| key == name).unwrap();
            redis::from_redis_value::<String>(found.1.clone()).unwrap()
        };
        if word("username") == user {
            refused.push(word("object"));
        }
    }
    refused
}

async fn plain(client: &Client, name: &str) -> Result<(), Error> {
    let semaphore = client.semaphore(name).limit(2);
    let guard = semaphore.acquire_many(2).await?;
    let waiter = tokio::spawn({
        let semaphore = semaphore.clone();
        async move { semaphore.acquire().await }
    });
    eventually(DEADLINE, async || client.stats().waiting == 1).await;
    assert_eq!(guard.release().await?, Unlocked::Released);
    drop(within(DEADLINE, waiter).await.unwrap()?);
    eventually(DEADLINE, async || client.stats().names == 0).await;
    assert_eq!(semaphore.available_permits().await?, 2);
    semaphore.acquire().await?.forget();
    semaphore.release(1).await?;
    semaphore.add_permits(-1).await?;
    eventually(DEADLINE, async || client.stats().names == 0).await;
    assert_eq!(semaphore.drain().await?, 1);
    assert!(!semaphore.try_set_permits(3).await?);
    Ok(())
}

async fn leased(client: &Client, name: &str) -> Result<(), Error> {
    let semaphore = client.permit_expirable_semaphore(name);
    assert!(semaphore.try_set_permits(2).await?);
    let options = PermitOptions::new().permits(2).renew(LEASE / 3);
    let both = semaphore.acquire_with(options).await?;
    let waiter = tokio::spawn({
        let semaphore = semaphore.clone();
        async move { semaphore.acquire().await }
    });
    eventually(DEADLINE, async || client.stats().waiting == 1).await;
    is_renewed(LEASE, || both.state()).await;
    both.extend(6 * DEADLINE).await?;
    assert_eq!(both.release().await?, Unlocked::Released);
    let permit = within(DEADLINE, waiter).await.unwrap()?;
    assert!(semaphore.update_lease(permit.id(), DEADLINE).await?);
    semaphore.release(permit.id()).await?;
    drop(permit);
    let brief = PermitOptions::new().lease(LEASE);
    let ids = semaphore.acquire_with(brief).await?.forget();
    assert_eq!(ids.len(), 1);
    // Until its lease is over and it is swept.
    let both = semaphore.acquire_many(2).await?;
    assert_eq!(
        (
            semaphore.available_permits().await?,
            semaphore.permits().await?
        ),
        (0, 2)
    );
    both.release().await?;
    semaphore.add_permits(1).await?;
    semaphore.set_permits(4).await?;
    let other = format!("{name}:ttl");
    let other = client.permit_expirable_semaphore(&other).limit(1);
    other.acquire().await?.release().await?;
    Ok(())
}

async fn fair(client: &Client, name: &str) -> Result<(), Error> {
    let lock = client.fair_lock(name);
    let guard = lock.lock().await?;
    let waiters: Vec<_> = (0..2)
        .map(|_| {
            let lock = lock.clone();
            tokio::spawn(async move { lock.lock().await?.unlock().await })
        })
        .collect();
    eventually(DEADLINE, async || lock.queue_len().await.unwrap() == 2).await;
    let again = guard.reenter().await?;
    assert!(lock.holder().await?.is_some());
    let owner = Owner::new();
    let waits = lock.lock_with(LockOptions::new().owner(&owner));
    let seen = eventually(DEADLINE, async || {
        lock.position(&owner).await.is_ok_and(|at| at == Some(2))
    });
    tokio::select! {
        () = seen => {}
        _ = waits => unreachable!("the lock is held"),
    }
    again.unlock().await?;
    guard.unlock().await?;
    for waiter in waiters {
        within(DEADLINE, waiter).await.unwrap()?;
    }
    let cancelled = lock.lock().await?;
    let waiter = lock.lock_with(LockOptions::new().wait(POLL)).await;
    // The latter if the reply is late.
    assert!(waiter.is_err_and(|error| error.is_timed_out() || error.is_unavailable()));
    lock.force_unlock().await?;
    drop(cancelled);
    let brief = LockOptions::new().min_hold(POLL);
    lock.lock_with(brief).await?.unlock().await?;
    Ok(())
}

/// A fire that is begun twice, and then done.
async fn once(client: &Client, name: &str) -> Result<(), Error> {
    let fire = client.once(name, std::time::UNIX_EPOCH).keep(DEADLINE * 6);
    for wanted in [false, true] {
        match fire.start().await? {
            Fire::Run(guard) if wanted => guard.done().await?,
            Fire::Run(guard) => assert_eq!(guard.unlock().await?, Unlocked::Released),
            other => panic!("{other:?}"),
        }
    }
    assert!(matches!(fire.start().await?, Fire::Done(_)));
    Ok(())
}

/// Parties pass, leave, and are sent away.
async fn barrier(client: &Client, name: &str) -> Result<(), Error> {
    let barrier = client.cyclic_barrier(name, 2);
    let wait = || {
        let barrier = barrier.clone();
        tokio::spawn(async move { barrier.wait().await })
    };
    let first = wait();
    barrier.wait().await?;
    within(DEADLINE, first).await.unwrap()?;
    let alone = barrier.wait_with(2 * POLL).await.unwrap_err();
    assert!(alone.is_timed_out() || alone.is_unavailable(), "{alone}");
    // If its reply was late, it leaves in the background.
    eventually(DEADLINE, async || client.stats().releases == 0).await;
    let first = wait();
    eventually(DEADLINE, async || barrier.reset().await.unwrap()).await;
    let error = within(DEADLINE, first).await.unwrap().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::BarrierReset, "{error}");
    let double = client.double_barrier(name, 1).lease(5 * LEASE);
    let inside = double.enter().await?;
    // During a renewal.
    tokio::time::sleep(2 * LEASE).await;
    inside.leave().await
}

async fn latch(client: &Client, name: &str) -> Result<(), Error> {
    let latch = client.count_down_latch(name).ttl(DEADLINE);
    assert!(latch.try_set_count(4).await?);
    let waiter = tokio::spawn({
        let latch = latch.clone();
        async move { latch.wait().await }
    });
    eventually(DEADLINE, async || client.stats().waiting == 1).await;
    assert_eq!(latch.count_down().await?, 3);
    assert_eq!(latch.count().await?, 3);
    latch.count_down_guard()?.count_down().await?;
    drop(latch.count_down_guard()?);
    eventually(DEADLINE, async || client.stats().releases == 0).await;
    assert_eq!(latch.count_down().await?, 0);
    within(DEADLINE, waiter).await.unwrap()?;
    assert!(latch.try_set_count(1).await?);
    assert!(latch.delete().await?);
    let error = latch.wait().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::LatchDeleted, "{error}");
    let brief = client.count_down_latch(name).ttl(Duration::from_millis(50));
    assert!(brief.try_set_count(1).await?);
    let error = brief.wait().await.unwrap_err();
    match error.kind() {
        ErrorKind::LatchExpired => Ok(()),
        _ => Err(error),
    }
}

/// The front page has this text.
fn assert_said(text: &str) {
    let page = include_str!("../../redlock-rt/src/lib.rs").replace("//!", "");
    let page = page.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(page.contains(text), "the page does not say {text:?}");
}

async fn fenced(client: &Client, name: &str) -> Result<(), Error> {
    fenced_with(client, name, &format!("{{{name}}}:value")).await
}

/// `value`: the key of a value, which has no namespace.
async fn fenced_with(client: &Client, name: &str, value: &str) -> Result<(), Error> {
    let fenced = client.fenced_lock(name).lock().await?;
    let value = client.fenced_value(value);
    value.set("a", fenced.token()).await?;
    let _leader = client.leader_election(name).leader().await?;
    fenced.unlock().await.map(drop)
}

async fn read_write(client: &Client, name: &str) -> Result<(), Error> {
    let rw = client.read_write_lock(name).prefer_writers(true);
    let read = rw.read().await?;
    let write = rw.write_with(LockOptions::new().wait(2 * POLL)).await;
    assert!(write.is_err_and(|error| error.is_timed_out() || error.is_unavailable()));
    let write = read
        .try_upgrade()
        .await
        .map_err(|refused| refused.into_error())?;
    let read = write
        .downgrade()
        .await
        .map_err(|refused| refused.into_error())?;
    // The last of many readers.
    let mut readers = Vec::new();
    for _ in 0..9 {
        readers.push(rw.read().await?);
    }
    read.unlock().await?;
    for reader in readers {
        reader.unlock().await?;
    }
    rw.write().await?.unlock().await.map(drop)
}

async fn steal(client: &Client, name: &str) -> Result<(), Error> {
    let lock = client.rlock(name);
    let guard = lock.lock().await?;
    let stolen = lock.steal("stuck").await?;
    let reason = guard.reenter().await.unwrap_err().lost_reason();
    assert!(matches!(reason, Some(LostReason::Stolen(_))), "{reason:?}");
    stolen.unlock().await.map(drop)
}

async fn inspect(client: &Client, name: &str) -> Result<(), Error> {
    leased(client, name).await?;
    let permit = client.permit_expirable_semaphore(name).acquire().await?;
    let _fair = client.fair_lock(format!("{name}:fair")).lock().await?;
    let scan = client.scan(&format!("{name}*"));
    let found: Vec<_> = scan.try_collect().await?;
    assert!(!found.is_empty());
    permit.release().await.map(drop)
}

async fn free_lock(client: &Client, name: &str) -> Result<(), Error> {
    client.rlock(name).lock().await?.unlock().await.map(drop)
}

async fn use_of(kind: AclKind, client: &Client, name: &str) -> Result<(), Error> {
    match kind {
        AclKind::Semaphore => plain(client, name).await,
        AclKind::PermitExpirableSemaphore => leased(client, name).await,
        AclKind::CountDownLatch => latch(client, name).await,
        AclKind::Once => once(client, name).await,
        AclKind::Barrier => barrier(client, name).await,
        AclKind::FairLock => fair(client, name).await,
        AclKind::ReadWriteLock => read_write(client, name).await,
        AclKind::FencedLock => fenced(client, name).await,
        AclKind::Steal => steal(client, name).await,
        AclKind::Inspect => inspect(client, name).await,
        _ => free_lock(client, name).await,
    }
}

/// What is looked at, too.
fn seen(kind: AclKind) -> &'static [AclKind] {
    match kind {
        AclKind::Inspect => &[AclKind::PermitExpirableSemaphore, AclKind::FairLock],
        _ => &[],
    }
}

#[tokio::test]
async fn the_rule_of_a_kind_is_enough_and_all_of_it_is_needed() {
    let mut stage = Stage::open("listed").await;
    let words = |kinds: &[AclKind]| words(&Client::embedded(), kinds);
    for kind in KINDS {
        let seen = seen(kind);
        let (base, all) = (words(seen), words(&[seen, &[kind]].concat()));
        let client = stage.client(&all).await;
        let name = format!("{}:{kind:?}", stage.world.name);
        use_of(kind, &client, &name).await.unwrap();
        let refused = stage.refused().await;
        // Without the right, one try to take a lock by a plain command.
        let other = refused.iter().filter(|word| *word != "restore");
        assert_eq!(other.count(), 0, "{kind:?}: {refused:?}");
        // Used for a semaphore with a TTL, a token ahead of the server's clock, a queue with waiters of Redisson,
        // a crowd of readers, and the reason of a theft: other tests have these.
        let rare = match kind {
            AclKind::FairLock => "+zrange",
            AclKind::ReadWriteLock => "+hrandfield",
            AclKind::PermitExpirableSemaphore => "+persist",
            AclKind::Steal => "+get",
            _ => "+incr",
        };
        let needed = |word: &&String| !base.contains(word) && *word != rare;
        for less in all.iter().filter(needed) {
            let fewer: Vec<_> = all.iter().filter(|word| *word != less).cloned().collect();
            let client = stage.client(&fewer).await;
            let name = format!("{name}:{}", &less[1..]);
            let right = less[1..].trim_end_matches('*');
            // It may succeed in another way, fail, panic, or wait.
            let tried = tokio::spawn({
                let client = client.clone();
                async move {
                    for round in 0.. {
                        let (client, name) = (client.clone(), format!("{name}:{round}"));
                        let one = async move { use_of(kind, &client, &name).await };
                        let _ = tokio::spawn(one).await;
                    }
                }
            });
            eventually(DEADLINE, async || {
                let refused = stage.refused().await;
                let found = refused.iter().any(|word| word.starts_with(right));
                found
                    .then_some(())
                    .ok_or_else(|| format!("{kind:?} without {less}: {refused:?}"))
            })
            .await;
            tried.abort();
            // What it could not release, and waiters that it has left behind.
            stage.set("+@all").await;
            client.shutdown(Shutdown::ReleaseAll).await.unwrap();
        }
    }
    stage.clear().await;
}

/// Without the right to read the note the lock is lost all the same.
#[tokio::test]
async fn thieves_and_holders_need_a_right_each() {
    let mut stage = Stage::open("steals").await;
    let name = stage.world.name.clone();
    let all = rights(&[AclKind::Steal]);
    let without = |right: &str| -> Vec<String> {
        let some = all.iter().filter(|some| *some != right);
        some.cloned().collect()
    };
    let holds = stage.client(&without("+set")).await;
    let blind = stage.client(&without("+get")).await;
    let thief = stage.client(&without("+get")).await;
    for (client, told) in [(&holds, true), (&blind, false)] {
        let lock = client.rlock(&name);
        let guard = lock.lock().await.unwrap();
        let stolen = thief.rlock(&name).steal("stuck").await.unwrap();
        let reason = guard.reenter().await.unwrap_err().lost_reason();
        let stole = matches!(reason, Some(LostReason::Stolen(_)));
        assert_eq!(stole, told, "{reason:?}");
        // Nothing is taken by one who may not say so.
        assert_denied(holds.rlock(&name).steal("stuck").await, &name);
        stolen.reenter().await.unwrap().unlock().await.unwrap();
        stolen.unlock().await.unwrap();
    }
    stage.end().await;
}

/// In time: no renewal is due before the deadline of the test.
#[tokio::test]
async fn losses_are_told_to_users_with_the_listed_rights() {
    let mut stage = Stage::open("told").await;
    let tracks = Client::builder().url("redis://localhost").tracking(true);
    let mut listed = commands(&tracks.build().unwrap(), &[]);
    listed.push("&__redis__:invalidate".to_owned());
    // Its world has the user from here on.
    drop(stage.client(&listed).await);
    let long = Duration::from_secs(600);
    let client = stage
        .world
        .client_with(|builder| builder.tracking(true).lease(long));
    let guard = client.rlock(&stage.world.name).lock().await.unwrap();
    eventually(DEADLINE, async || {
        let stats: String = stage.world.redis(&["INFO", "stats"]).await;
        stats.contains("tracking_total_keys:1\r\n")
    })
    .await;
    assert!(client.health().await.told_of_losses);
    let _: bool = stage.world.redis(&["DEL", &stage.world.name]).await;
    within(DEADLINE, guard.lost()).await;
    drop(guard);
    stage.end().await;
}

#[tokio::test]
async fn what_is_there_is_told_to_users_with_the_listed_rights() {
    let mut stage = Stage::open("seen").await;
    let name = stage.world.name.clone();
    let owner = stage.world.client();
    let permits = owner.permit_expirable_semaphore(&name);
    permits.try_set_permits(2).await.unwrap();
    let permit = permits.acquire().await.unwrap();
    let prefer = LockOptions::new().wait(Duration::from_millis(1));
    let lock = format!("{name}:lock");
    let reader = owner
        .read_write_lock(&lock)
        .prefer_writers(true)
        .read()
        .await
        .unwrap();
    let writer = owner
        .read_write_lock(&lock)
        .prefer_writers(true)
        .write_with(prefer)
        .await;
    assert!(writer.is_err());
    let listed = rights(&[AclKind::Inspect]);
    let client = stage.client(&listed).await;
    let found = client.inspect(&name).await.unwrap().unwrap();
    assert_eq!(found.holders[0].id.as_str(), permit.id());
    let found: Vec<_> = client
        .scan(&format!("{name}*"))
        .try_collect()
        .await
        .unwrap();
    let mut kinds: Vec<_> = found.iter().map(|one| (one.kind, one.listening)).collect();
    kinds.sort_by_key(|(kind, _)| *kind != FoundKind::ReadWriteLock);
    assert_eq!(kinds[0].0, FoundKind::ReadWriteLock);
    assert_eq!(kinds[1], (FoundKind::PermitExpirableSemaphore, Some(0)));
    stage.set("-pubsub").await;
    let found = client.inspect(&name).await.unwrap().unwrap();
    assert_eq!(found.listening, None);
    stage.set("-type").await;
    assert_denied(client.inspect(&name).await, &name);
    // It has several names, and ends with the first error.
    let mut found: Vec<_> = client.scan(&format!("{name}*")).collect().await;
    let error = found.pop().unwrap().unwrap_err();
    assert!(
        error.kind() == ErrorKind::Denied && found.is_empty(),
        "{error} {found:?}"
    );
    stage.set("-scan").await;
    let found: Result<Vec<_>, Error> = client.scan(&name).try_collect().await;
    assert_denied(found, &name);
    permit.release().await.unwrap();
    reader.unlock().await.unwrap();
    stage.end().await;
}

/// Without announcements everything is found by polling, and nothing is lost.
#[tokio::test]
async fn nothing_is_lost_without_the_rights_to_publish_and_subscribe() {
    let mut stage = Stage::open("mute").await;
    let less = [
        "resetchannels".to_owned(),
        "-publish".to_owned(),
        "-subscribe".to_owned(),
    ];
    let client = stage.client(&[&rights(&COUNTED)[..], &less].concat()).await;
    plain(&client, &stage.world.name).await.unwrap();
    stage.sweep().await;
    leased(&client, &stage.world.name).await.unwrap();
    let other = format!("{}:ttl", stage.world.name);
    let _: bool = stage.world.redis(&["DEL", &other]).await;
    stage.sweep().await;
    latch(&client, &stage.world.name).await.unwrap();
    stage.end().await;
}

#[track_caller]
fn assert_denied<T>(outcome: Result<T, Error>, name: &str) {
    let Err(error) = outcome else {
        panic!("it was not refused");
    };
    assert_eq!(error.kind(), ErrorKind::Denied, "{error}");
    assert_eq!(error.name(), Some(name), "{error}");
}

#[tokio::test]
async fn permits_are_taken_also_without_the_right_to_persist() {
    let mut stage = Stage::open("persist").await;
    let name = stage.world.name.clone();
    let leases = format!("{{{name}}}:timeout");
    let entitled = rights(&[AclKind::PermitExpirableSemaphore]);
    let mut others = entitled.clone();
    others.retain(|right| right != "+persist");
    for (rights, rest) in [(&others, 0), (&entitled, -1)] {
        let client = stage.client(rights).await;
        let semaphore = client.permit_expirable_semaphore(&name);
        let _: () = stage
            .world
            .redis(&["SET", &name, "2", "PX", "600000"])
            .await;
        let first = semaphore.acquire().await.unwrap();
        let _: () = stage.world.redis(&["PERSIST", &name]).await;
        let second = semaphore.acquire().await.unwrap();
        let ttl: i64 = stage.world.redis(&["PTTL", &leases]).await;
        assert_eq!(ttl.min(0), rest, "{ttl}");
        first.release().await.unwrap();
        second.release().await.unwrap();
        let _: () = stage.world.redis(&["DEL", &name]).await;
    }
    stage.end().await;
}

/// Without the right to write the note, the operation has no effect.
#[tokio::test]
async fn without_the_notes_everything_is_denied_and_nothing_changed() {
    let mut stage = Stage::open("no-notes").await;
    let name = stage.world.name.clone();
    let all = rights(&COUNTED);
    let keys = [
        format!("~{name}"),
        format!("~{{{name}}}:timeout"),
        format!("~redlock_sem:{{{name}}}"),
        format!("~redlock_latch_end:{{{name}}}"),
    ];
    let client = stage.client(&[&all[..], &keys].concat()).await;
    let refused = stage.user.clone();
    let (plain, leased) = (
        client.semaphore(&name).limit(9),
        client.permit_expirable_semaphore(&name).limit(9),
    );
    assert_denied(plain.try_set_permits(5).await, &name);
    assert_denied(plain.acquire().await, &name);
    let exists: bool = stage.world.redis(&["EXISTS", &name]).await;
    assert!(!exists, "nothing is made");

    let _: () = stage.world.redis(&["SET", &name, "5"]).await;
    assert_denied(plain.acquire().await, &name);
    assert_denied(plain.try_acquire().await, &name);
    assert_denied(plain.release(1).await, &name);
    assert_denied(plain.add_permits(1).await, &name);
    assert_denied(plain.drain().await, &name);
    assert_denied(leased.acquire().await, &name);
    let entitled = stage.client(&all).await;
    let permit = entitled.permit_expirable_semaphore(&name).acquire().await;
    let permit = permit.unwrap();
    assert_denied(leased.release(permit.id()).await, &name);
    assert!(permit.is_valid());
    assert_eq!(leased.acquired().await.unwrap(), 1);
    permit.release().await.unwrap();
    let number: String = stage.world.redis(&["GET", &name]).await;
    assert_eq!(number, "5");

    let latch = client.count_down_latch(&name);
    assert_denied(latch.count_down().await, &name);
    assert_denied(latch.count_down_guard().unwrap().count_down().await, &name);
    let number: String = stage.world.redis(&["GET", &name]).await;
    assert_eq!(number, "5");
    let _: bool = stage.world.redis(&["DEL", &name]).await;
    assert_denied(latch.try_set_count(2).await, &name);
    // The guard's count is sent until it is allowed.
    stage.user = refused;
    stage.set("allkeys").await;
    stage.end().await;
}

/// A script with a refused command in the middle leaves nothing.
#[tokio::test]
async fn without_one_right_what_needs_it_is_denied_and_takes_nothing() {
    let mut stage = Stage::open("one-less").await;
    let name = stage.world.name.clone();
    let all = rights(&COUNTED);
    for less in ["-decrby", "-hset", "-zadd"] {
        let _: () = stage.world.redis(&["SET", &name, "5"]).await;
        let rights = [&all[..], &[less.to_owned()]].concat();
        let client = stage.client(&rights).await;
        let (plain, leased) = (
            client.semaphore(&name),
            client.permit_expirable_semaphore(&name),
        );
        if less != "-zadd" {
            assert_denied(plain.acquire_many(2).await, &name);
        }
        if less != "-hset" {
            assert_denied(leased.acquire().await, &name);
        }
        eventually(DEADLINE, async || client.stats().names == 0).await;
        let number: String = stage.world.redis(&["GET", &name]).await;
        assert_eq!(number, "5", "{less}");
        let pattern = format!("*{{{name}}}*");
        let keys: Vec<String> = stage.world.redis(&["KEYS", &pattern]).await;
        let others = keys.iter().filter(|key| !key.starts_with("redlock_op"));
        assert_eq!(others.count(), 0, "{less}: {keys:?}");
    }
    stage.end().await;
}
