//! The test harness: real servers that can be killed and paused, a proxy that injects faults, a
//! Redisson player, drivers in other processes, and the checks at the end of a test.
//!
//! It knows Redis and the wire, and of redlock-rt only the counts of a client, so that its checks do
//! not depend on the code under test. Every wait has a deadline, and every fault is forced rather
//! than timed.
//!
//! | piece | for |
//! | --- | --- |
//! | [`RedisServer`], [`shared_server`] | real servers: kill, restart, pause, AOF, password, TLS, unix socket |
//! | [`Replicated`], [`Sentinels`] | a master with replicas, and the sentinels that watch them |
//! | [`Cluster`], [`shared_cluster`] | a Redis Cluster: kill, pause, failover, slots that move |
//! | [`Postgres`], [`shared_postgres`] | a PostgreSQL cluster: stop, restart |
//! | [`Proxy`] | counted frames; cut, lost, held and delayed ones; silence; refusal |
//! | [`Place`], [`Proxied`] | the same faults in front of one server, with TLS, behind a sentinel, in a cluster |
//! | [`Wires`] | in-process or slow connections: frames in one order over all of them, cuts, refusal |
//! | [`SlowServer`] | a server that takes its time, on a clock that stands still |
//! | [`ask`] | a command to a server, past the client under test |
//! | [`Monitor`] | the commands that a server has received |
//! | [`RedissonClient`] | a Redisson client, played from its wire format |
//! | [`Driver`] | redlock-rt in another process, to be killed or paused |
//! | [`Contender`] | a process whose tasks take turns, to be killed |
//! | [`Backend`], [`World`] | the same test on a real server and on the embedded engine |
//! | [`ENDS`] | all operations that end a wait of the same client |
//! | [`LeakCheck`] | nothing is left at the end of a test |
//! | [`History`], [`Turns`] | no two holders at once, over several processes |
//! | [`history`] | the rules by which what several clients did is right |
//! | [`sim`] | the library on a simulated network, in simulated time |
//! | [`step_clock`] | a child process whose time of day jumps |
//! | [`at_every_await`], [`polled`] | a call dropped at each of its awaits |
//! | [`eventually`], [`within`], [`is_renewed`] | waiting under a deadline |

// The harness fails a test by panicking, so a section about it in each item would say nothing.
#![allow(clippy::missing_panics_doc)]

mod ask;
mod backend;
mod clock;
mod cluster;
mod contender;
mod driver;
mod each_seed;
mod ends;
mod eventually;
mod every_await;
mod executor;
pub mod history;
mod leak;
mod lock;
mod log;
mod monitor;
mod names;
mod over;
mod place;
mod port;
mod postgres;
mod process;
mod proxy;
mod random;
mod reaper;
mod redisson;
mod scripts;
mod sentinels;
mod server;
pub mod sim;
mod slow;
mod step;
mod told;
mod trace;
mod turn;
mod wires;
mod world;

pub use self::{
    ask::ask,
    backend::{Backend, Embedded, OneMaster, RealServers, Redis, Tls, Watched},
    clock::{monotonic, processor_time},
    cluster::{Cluster, ClusterOptions, Migration, shared_cluster, slot_of},
    contender::Contender,
    driver::{Answer, Driver, DriverError, Pending},
    each_seed::each_seed,
    ends::{ENDS, End},
    eventually::{
        DEADLINE, Verdict, assert_held, eventually, is_renewed, valid_until, waits, within,
    },
    every_await::{at_every_await, polled, settle, stepping_runtime},
    executor::block_on,
    history::{Overlap, Turn, TurnLog as History, Turns},
    leak::{LeakCheck, assert_clean, assert_clean_in, in_use},
    lock::lock,
    log::Log,
    monitor::{Monitor, MonitorLine},
    names::unique,
    over::{client_over, connection_over, connection_over_tls, connection_to, patient},
    place::{Place, Proxied},
    port::ReservedPort,
    postgres::{Postgres, shared_postgres},
    process::{ChildProcess, is_alive, stdin_is_closed},
    proxy::{CALL, Frame, Gate, Loss, Matcher, Proxy, Which, resp},
    random::Random,
    redisson::{
        RedissonClient, RedissonCountDownLatch, RedissonFairLock, RedissonFencedLock,
        RedissonModeLock, RedissonPermits, RedissonRLock, RedissonReadWriteLock, RedissonSemaphore,
        RedissonSpinLock, RedissonStream, RedissonUnlock, Surroundings,
    },
    scripts::{calls, script_text},
    sentinels::{Replicated, SERVICE, SentinelOptions, Sentinels},
    server::{RedisServer, ServerOptions, SharedServer, shared_server},
    slow::SlowServer,
    step::{has_clocks, step_clock, with_clock},
    told::{assert_error, told},
    trace::trace_init,
    turn::lock_and_unlock,
    wires::Wires,
    world::World,
};

/// The README's code compiles and runs.
#[cfg(doctest)]
#[doc = include_str!("../../README.md")]
struct Readme;

/// The code of docs/cookbook.md, to be compiled and run.
#[cfg(doctest)]
#[doc = include_str!("../../docs/cookbook.md")]
pub struct Cookbook;

/// The examples on the attribute's page.
#[cfg(doctest)]
#[doc = include_str!("../../redlock-macros/docs/distributed_lock.md")]
struct Attribute;
