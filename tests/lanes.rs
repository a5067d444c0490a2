//! No new connection can be made, while those that are there work: each purpose of a connection of ours,
//! for each reason.

use std::process::Command;
use std::time::{Duration, Instant};

use futures::future::join_all;
use redis::{FromRedisValue, aio::MultiplexedConnection};
use redlock_rt::{Client, ClientBuilder, ErrorKind, LockOptions, RLockGuard, ReplicaAck, Unlocked};
use tests::{
    Cluster, DEADLINE, Driver, Matcher, Proxy, RedisServer, Replicated, Which, ask, eventually,
    lock_and_unlock, told, trace_init, within,
};
use tokio::task::block_in_place;

/// Long enough for a renewal after a third of it, where threads wait for a processor.
const LEASE: Duration = Duration::from_secs(4);
/// Those that were lost were lost by then.
const HELD: Duration = Duration::from_secs(5);
const POLL: Duration = Duration::from_millis(200);

/// Why no new connection can be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Shut {
    Full,
    Password,
    Listener,
}

impl Shut {
    const ALL: [Self; 3] = [Self::Full, Self::Password, Self::Listener];
}

/// A server, and a connection to it that was there before the door was shut.
struct Door<'a> {
    server: &'a RedisServer,
    redis: MultiplexedConnection,
}

impl<'a> Door<'a> {
    async fn of(server: &'a RedisServer) -> Self {
        trace_init();
        let redis = server.connect().await.unwrap();
        Self { server, redis }
    }

    async fn ask<T: FromRedisValue>(&self, words: &[&str]) -> T {
        ask(&self.redis, words).await
    }

    async fn set(&self, parameter: &str, value: &str) {
        let _: String = self.ask(&["CONFIG", "SET", parameter, value]).await;
    }

    async fn shut(&self, why: Shut) {
        match why {
            Shut::Full => self.set("maxclients", "1").await,
            Shut::Password => self.set("requirepass", "new").await,
            Shut::Listener => self.set("port", "0").await,
        }
    }

    async fn open(&self) {
        let port = self.server.port().to_string();
        for (parameter, value) in [("maxclients", "100"), ("requirepass", ""), ("port", &port)] {
            self.set(parameter, value).await;
        }
    }

    /// The other connections of clients, in the order in which they were made: commands, renewals, and
    /// the rest.
    async fn others(&self) -> Vec<String> {
        let own: i64 = self.ask(&["CLIENT", "ID"]).await;
        let list: String = self.ask(&["CLIENT", "LIST", "TYPE", "normal"]).await;
        let ids = list
            .lines()
            .filter_map(|line| line.split(' ').next()?.strip_prefix("id="));
        let mut ids: Vec<i64> = ids.map(|id| id.parse().unwrap()).collect();
        ids.retain(|id| *id != own);
        ids.sort_unstable();
        ids.iter().map(ToString::to_string).collect()
    }

    async fn kill(&self, id: &str) {
        let killed: usize = self.ask(&["CLIENT", "KILL", "ID", id]).await;
        assert_eq!(killed, 1, "{id}");
    }

    async fn has(&self, count: usize) -> Vec<String> {
        eventually(DEADLINE, async || {
            let others = self.others().await;
            if others.len() == count {
                Ok(others)
            } else {
                Err(format!("{others:?}"))
            }
        })
        .await
    }
}

fn builder(url: &str) -> ClientBuilder {
    Client::builder().url(url).lease(LEASE).poll_interval(POLL)
}

/// None of the guards is lost, and another lock can be had meanwhile.
async fn stay_held(client: &Client, guards: &[RLockGuard], case: &str) {
    let began = Instant::now();
    while began.elapsed() < HELD {
        for guard in guards {
            assert!(
                guard.is_valid(),
                "{case}: {:?} after {:?}",
                guard.state(),
                began.elapsed()
            );
        }
        let other = client.rlock(format!("{}:other", guards[0].name()));
        lock_and_unlock(&other).await;
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Its connection for renewals was to be made at the first renewal.
#[tokio::test]
async fn a_held_lock_was_lost_where_no_connection_for_renewals_could_be_made() {
    join_all(Shut::ALL.map(async |why| {
        let server = RedisServer::start();
        let door = Door::of(&server).await;
        let client = builder(&server.url()).connect().await.unwrap();
        let [_, renewals] = &door.has(2).await[..] else {
            panic!()
        };
        let guard = client.rlock("held").lock().await.unwrap();
        door.shut(why).await;
        let guards = [guard];
        if why == Shut::Full {
            // It was dialed when the client connected.
            stay_held(&client, &guards, "as connected").await;
        }
        door.kill(renewals).await;
        stay_held(&client, &guards, &format!("{why:?}")).await;
        door.has(1).await;
        door.open().await;
        // One of its own again, as soon as it can be had.
        door.has(2).await;
        let [guard] = guards;
        assert_eq!(guard.unlock().await.unwrap(), Unlocked::Released);
    }))
    .await;
}

/// Commands go over the connection for renewals, and renewals too.
#[tokio::test]
async fn a_lock_could_not_be_released_where_no_connection_for_commands_could_be_made() {
    join_all(Shut::ALL.map(async |why| {
        let server = RedisServer::start();
        let door = Door::of(&server).await;
        let client = builder(&server.url()).connect().await.unwrap();
        let [commands, _] = &door.has(2).await[..] else {
            panic!()
        };
        let guards = [client.rlock("held").lock().await.unwrap()];
        let dropped = client.rlock("dropped").lock().await.unwrap();
        door.shut(why).await;
        door.kill(commands).await;
        stay_held(&client, &guards, &format!("{why:?}")).await;
        drop(dropped);
        eventually(DEADLINE, async || {
            door.ask::<usize>(&["EXISTS", "dropped"]).await == 0
        })
        .await;
        let [guard] = guards;
        assert_eq!(guard.unlock().await.unwrap(), Unlocked::Released);
        door.open().await;
        let again = client.rlock("held").lock().await.unwrap();
        door.has(2).await;
        drop(again);
    }))
    .await;
}

/// The connection for renewals took the place of one that was being made when the caller had no time left.
#[tokio::test]
async fn a_lock_could_not_be_taken_while_a_connection_for_commands_was_dialed_in_vain() {
    const CONNECT: Duration = Duration::from_secs(4);
    let server = RedisServer::start();
    let (door, proxy) = (Door::of(&server).await, Proxy::to(&server));
    let builder = builder(&proxy.url()).connect_timeout(CONNECT);
    let client = builder.connect().await.unwrap();
    let [commands, _] = &door.has(2).await[..] else {
        panic!()
    };
    let gate = proxy.hold_request("INFO");
    door.kill(commands).await;
    let options = LockOptions::new().wait(CONNECT * 3 / 4);
    let guard = client.rlock("order").lock_with(options).await.unwrap();
    assert_eq!(guard.unlock().await.unwrap(), Unlocked::Released);
    gate.reached().await;
    gate.open();
}

#[tokio::test]
async fn connect_failed_where_only_the_second_connection_was_refused() {
    let server = RedisServer::start();
    let door = Door::of(&server).await;
    door.set("maxclients", "2").await;
    let began = Instant::now();
    let client = builder(&server.url()).connect().await.unwrap();
    assert!(began.elapsed() < LEASE / 2, "{:?}", began.elapsed());
    let guards = [client.rlock("held").lock().await.unwrap()];
    stay_held(&client, &guards, "from the start").await;
    // A connection that hangs is no reason either.
    let proxy = Proxy::to(&server);
    door.open().await;
    door.has(2).await;
    let hangs = Matcher::when(|frame| frame.connection == 2);
    proxy.swallow_request(hangs, 100);
    let builder = builder(&proxy.url()).connect_timeout(Duration::from_secs(1));
    let hanging = builder.connect().await.unwrap();
    stay_held(
        &hanging,
        &[hanging.rlock("hangs").lock().await.unwrap()],
        "hangs",
    )
    .await;
}

#[tokio::test]
async fn a_waiter_that_could_not_subscribe_was_not_served() {
    join_all(Shut::ALL.map(async |why| {
        let server = RedisServer::start();
        let door = Door::of(&server).await;
        let holder = builder(&server.url()).connect().await.unwrap();
        let waiting = builder(&server.url()).connect().await.unwrap();
        door.has(4).await;
        let guard = holder.rlock("a").lock().await.unwrap();
        let write = holder.read_write_lock("rw").write().await.unwrap();
        let latch = holder.count_down_latch("latch");
        assert!(latch.try_set_count(1).await.unwrap());
        door.shut(why).await;
        let wait = LockOptions::new().wait(DEADLINE);
        let lock = waiting.rlock("a");
        let waits = tokio::spawn({
            let wait = wait.clone();
            async move { lock.lock_with(wait).await.map(drop) }
        });
        let read = waiting.read_write_lock("rw").read_lock();
        let reads = tokio::spawn(async move { read.lock_with(wait).await.map(drop) });
        let latched = waiting.count_down_latch("latch");
        let opens = tokio::spawn(async move { latched.wait().await });
        eventually(DEADLINE, async || waiting.stats().subscriptions == 3).await;
        let began = Instant::now();
        guard.unlock().await.unwrap();
        write.unlock().await.unwrap();
        latch.count_down().await.unwrap();
        within(DEADLINE, waits).await.unwrap().unwrap();
        within(DEADLINE, reads).await.unwrap().unwrap();
        within(DEADLINE, opens).await.unwrap().unwrap();
        assert!(
            began.elapsed() < DEADLINE / 4,
            "{why:?}: {:?}",
            began.elapsed()
        );
    }))
    .await;
}

/// Heartbeats could not be sent: others took the second waiter out of the queue, and nobody told it.
#[tokio::test]
async fn a_fair_waiter_was_dropped_and_never_told_where_no_new_connection_could_be_made() {
    // A heartbeat every third; `long`: turns come between two of them.
    let (short, long) = (Duration::from_secs(3), Duration::from_secs(60));
    let cases = Shut::ALL.map(|why| [(why, short), (why, long)]);
    join_all(
        cases
            .concat()
            .into_iter()
            .map(async |(why, waiter_timeout)| {
                let server = RedisServer::start();
                let door = Door::of(&server).await;
                let client = || {
                    builder(&server.url())
                        .waiter_timeout(waiter_timeout)
                        .connect()
                };
                let holder = client().await.unwrap();
                let waiting = [client().await.unwrap(), client().await.unwrap()];
                let all = door.has(6).await;
                let lease = LockOptions::new().lease(5 * DEADLINE);
                let guard = holder.fair_lock("f").lock_with(lease).await.unwrap();
                door.shut(why).await;
                // What the waiters have beside the connection for commands is gone.
                for renewals in [&all[3], &all[5]] {
                    door.kill(renewals).await;
                }
                let mut waiters = Vec::new();
                for (at, client) in waiting.iter().enumerate() {
                    let lock = client.fair_lock("f");
                    waiters.push(tokio::spawn(async move {
                        let guard = lock.lock_with(LockOptions::new().wait(3 * DEADLINE)).await;
                        let served = Instant::now();
                        guard.unwrap().unlock().await.unwrap();
                        served
                    }));
                    let queued =
                        async || holder.fair_lock("f").queue_len().await.unwrap() == at as u64 + 1;
                    eventually(DEADLINE, queued).await;
                }
                let queue =
                    || door.ask::<Vec<String>>(&["LRANGE", "redisson_lock_queue:{f}", "0", "-1"]);
                let (began, queued) = (Instant::now(), queue().await);
                while began.elapsed() < 4 * short / 3 {
                    assert_eq!(queue().await, queued, "{why:?} after {:?}", began.elapsed());
                    tokio::time::sleep(POLL).await;
                }
                let released = Instant::now();
                guard.unlock().await.unwrap();
                let served = within(DEADLINE, join_all(waiters)).await;
                let served: Vec<_> = served.into_iter().map(Result::unwrap).collect();
                assert!(served[0] < served[1], "{why:?}");
                let took = served[1] - released;
                assert!(took < DEADLINE / 4, "{why:?}, {waiter_timeout:?}: {took:?}");
            }),
    )
    .await;
}

/// Its turn was announced while it could not hear it, and its first heartbeat is late.
#[tokio::test]
async fn a_fair_waiter_whose_turn_came_while_it_subscribed_in_vain_waited_for_a_heartbeat() {
    let server = RedisServer::start();
    let door = Door::of(&server).await;
    let proxy = Proxy::to(&server);
    let holder = builder(&server.url()).connect().await.unwrap();
    // A heartbeat every 30 s.
    let never = 20 * DEADLINE;
    let waiting = builder(&proxy.url())
        .poll_interval(never)
        .waiter_timeout(never);
    let waiting = waiting.connect().await.unwrap();
    door.has(4).await;
    let lease = LockOptions::new().lease(5 * DEADLINE);
    let guard = holder.fair_lock("f").lock_with(lease).await.unwrap();
    let last = Which::Connection(proxy.connections(Which::All).iter().max().unwrap() + 1);
    let subscribes = proxy.hold_request(Matcher::any().on(last));
    let lock = waiting.fair_lock("f");
    let waits = tokio::spawn(async move { lock.lock().await.map(drop) });
    subscribes.reached().await;
    eventually(DEADLINE, async || {
        holder.fair_lock("f").queue_len().await.unwrap() == 1
    })
    .await;
    proxy.refuse();
    guard.unlock().await.unwrap();
    assert_eq!(proxy.cut(last), 1);
    within(DEADLINE, waits).await.unwrap().unwrap();
}

/// A waiter finds itself out of the queue at its next heartbeat.
#[tokio::test]
async fn a_fair_waiter_that_was_taken_out_of_the_queue_enters_again() {
    let server = RedisServer::start();
    let door = Door::of(&server).await;
    let client = builder(&server.url()).connect().await.unwrap();
    let lock = client.fair_lock("f");
    let guard = lock.lock().await.unwrap();
    door.shut(Shut::Full).await;
    let waits = tokio::spawn(async move { lock.lock().await.unwrap().unlock().await });
    let queue = ["redisson_lock_queue:{f}", "redisson_lock_timeout:{f}"];
    eventually(DEADLINE, async || {
        door.ask::<usize>(&["EXISTS", queue[0]]).await == 1
    })
    .await;
    assert!(door.ask::<usize>(&["DEL", queue[0], queue[1]]).await > 0);
    eventually(DEADLINE, async || {
        door.ask::<usize>(&["EXISTS", queue[0]]).await == 1
    })
    .await;
    guard.unlock().await.unwrap();
    within(DEADLINE, waits).await.unwrap().unwrap();
}

/// No other connection takes its place: the server reads nothing behind a WAIT.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn renewals_stood_behind_wait_where_no_other_connection_was_left() {
    for why in Shut::ALL {
        let servers = Replicated::start(RedisServer::options(), 1).await;
        servers.is_counted(0, 1).await;
        let door = Door::of(servers.server(0)).await;
        let builder = builder(&door.server.url()).replica_timeout(2 * HELD);
        let client = builder.connect().await.unwrap();
        let [_, renewals] = &door.has(2).await[..] else {
            panic!()
        };
        let asking = LockOptions::new().replica_ack(ReplicaAck::AtLeast(1));
        // The connection for WAIT is made, and stands in one.
        block_in_place(|| servers.server(1).pause());
        let guards = [client.rlock("held").lock().await.unwrap()];
        let lock = client.rlock("acknowledged");
        let waits = tokio::spawn({
            let asking = asking.clone().wait(2 * HELD);
            async move { lock.lock_with(asking).await.map(drop) }
        });
        let blocked = async || {
            let list: String = door.ask(&["CLIENT", "LIST"]).await;
            list.contains("cmd=wait")
        };
        eventually(DEADLINE, blocked).await;
        door.shut(why).await;
        door.kill(renewals).await;
        stay_held(&client, &guards, &format!("{why:?}")).await;
        let error = within(DEADLINE, waits).await.unwrap().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotReplicated, "{error}");
        // Nor is one of the others used where it cannot be made.
        let all = door.others().await;
        let [_, .., acks] = &all[..] else {
            panic!("{all:?}")
        };
        door.kill(acks).await;
        let lock = client.rlock("acknowledged");
        let began = Instant::now();
        let error = lock.lock_with(asking.wait(LEASE)).await.unwrap_err();
        assert!(began.elapsed() < DEADLINE / 2, "{why:?}: {}", told(&error));
        assert_eq!(door.ask::<usize>(&["EXISTS", "acknowledged"]).await, 0);
        assert!(guards[0].is_valid(), "{why:?}");
        block_in_place(|| servers.server(1).resume());
    }
}

/// What is left in the broken connection would take the lock behind its withdrawal.
#[tokio::test]
async fn a_withdrawal_over_another_connection_overtook_its_acquisition() {
    let server = RedisServer::start();
    let door = Door::of(&server).await;
    let proxy = Proxy::to(&server);
    let response = Duration::from_secs(1);
    let builder = builder(&proxy.url()).response_timeout(response);
    let client = builder.connect().await.unwrap();
    let [commands, _] = &door.has(2).await[..] else {
        panic!()
    };
    lock_and_unlock(&client.rlock("warm")).await;
    let stuck = proxy.hold_request(Matcher::any().mentioning("stuck").on(Which::Connection(1)));
    proxy.refuse();
    proxy.mark();
    let lock = client.rlock("stuck");
    let acquires = tokio::spawn(async move { lock.lock().await.map(drop) });
    eventually(DEADLINE, async || stuck.held() == 1).await;
    acquires.abort();
    eventually(DEADLINE, async || client.stats().releases == 0).await;
    lock_and_unlock(&client.rlock("other")).await;
    let frames = proxy.frames();
    let kill = frames.iter().position(|frame| {
        frame.command() == "CLIENT" && frame.text(1) == "KILL" && frame.text(3) == *commands
    });
    let kill = kill.unwrap_or_else(|| panic!("{frames:#?}"));
    assert_eq!(frames[kill].connection, 2, "{frames:#?}");
    let withdrawn = |frame: &tests::Frame| frame.connection == 2 && frame.mentions("stuck");
    assert!(frames[kill..].iter().any(withdrawn), "{frames:#?}");
    assert!(!frames[..kill].iter().any(withdrawn), "{frames:#?}");
    stuck.open();
    lock_and_unlock(&client.rlock("stuck")).await;
    assert_eq!(door.ask::<usize>(&["EXISTS", "stuck"]).await, 0);
    assert_eq!(door.has(1).await.len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lock_in_a_cluster_was_lost_where_no_new_connection_could_be_made() {
    let cluster = block_in_place(|| Cluster::options().replicas(0).start());
    for why in Shut::ALL {
        let client = builder(&cluster.url()).connect().await.unwrap();
        let mut guards = Vec::new();
        let mut doors = Vec::new();
        for at in cluster.all() {
            let name = cluster.name_at(at, &format!("{why:?}")).await;
            guards.push(client.rlock(&name).lock().await.unwrap());
            let door = Door::of(cluster.node(at)).await;
            // Otherwise the others would name port 0 when the listener is closed.
            let port = cluster.node(at).port().to_string();
            door.set("cluster-announce-port", &port).await;
            let connections = door.has(2).await;
            door.shut(why).await;
            // Of two nodes one, and of the third nothing.
            if let Some(lost) = connections.get(at) {
                door.kill(lost).await;
            }
            doors.push(door);
        }
        stay_held(&client, &guards, &format!("{why:?}")).await;
        for guard in guards {
            assert_eq!(guard.unlock().await.unwrap(), Unlocked::Released, "{why:?}");
        }
        for door in doors {
            door.open().await;
        }
        drop(client);
    }
}

/// The limits of the process itself.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_held_lock_was_lost_where_the_process_had_no_file_descriptor_left() {
    let server = RedisServer::start();
    let door = Door::of(&server).await;
    for lost in [0, 1] {
        let driver = Driver::start(env!("CARGO_BIN_EXE_driver"));
        let lease = LEASE.as_millis();
        driver
            .ok(&format!("connect {} {lease} poll=200", server.url()))
            .await;
        let connections = door.has(2).await;
        driver.ok("lock held anna").await;
        let limit = Command::new("prlimit")
            .args([&format!("--pid={}", driver.pid()), "--nofile=3:"])
            .status();
        assert!(limit.unwrap().success());
        door.kill(&connections[lost]).await;
        let hears = driver
            .ok(&format!("lost held anna {}", HELD.as_millis()))
            .await;
        assert_eq!(hears, "false", "connection {lost}");
        driver.ok("lock other bert").await;
        assert_eq!(driver.ok("unlock other bert").await, "true");
        assert_eq!(driver.ok("unlock held anna").await, "true");
        drop(driver);
        door.has(0).await;
    }
}
