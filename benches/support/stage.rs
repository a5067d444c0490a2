//! A separate server for the benchmark, its client, and the runtime of both.

use criterion::Criterion;
use redlock_rt::Client;
use tests::RedisServer;
use tokio::runtime::{Builder, Runtime};

/// The parts of a benchmark. The server ends with it.
#[derive(Debug)]
pub(crate) struct Stage {
    pub(crate) runtime: Runtime,
    pub(crate) client: Client,
    #[allow(dead_code, reason = "not every benchmark asks the server")]
    pub(crate) server: RedisServer,
}

impl Stage {
    pub(crate) fn set() -> Self {
        let server = RedisServer::start();
        let runtime = runtime();
        let client = runtime.block_on(Client::connect(&server.url()));
        Self {
            client: client.expect("the server answers"),
            runtime,
            server,
        }
    }
}

/// A runtime of one thread. With more threads, another thread would wake the measured one for every
/// reply.
pub(crate) fn runtime() -> Runtime {
    let runtime = Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime starts")
}

/// Runs the benchmarks of the command line.
pub(crate) fn run(bench: impl FnOnce(&mut Criterion)) {
    let mut criterion = Criterion::default().configure_from_args();
    bench(&mut criterion);
    criterion.final_summary();
}
