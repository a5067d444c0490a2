//! A server of the benchmark's own, a client of it, and the runtime that both are used from.

use criterion::Criterion;
use redlock_rt::Client;
use tests::RedisServer;
use tokio::runtime::{Builder, Runtime};

/// What a benchmark needs. The server ends with it.
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

/// Of one thread: with more, what is measured on the thread of the benchmark would be woken from
/// another for every answer.
pub(crate) fn runtime() -> Runtime {
    let runtime = Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime starts")
}

/// Does what the command line asks for.
pub(crate) fn run(bench: impl FnOnce(&mut Criterion)) {
    let mut criterion = Criterion::default().configure_from_args();
    bench(&mut criterion);
    criterion.final_summary();
}
