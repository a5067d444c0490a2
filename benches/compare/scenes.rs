//! The comparisons.

use raw::Raw;
use redlock_rt::{Client, embedded::Engine};
use tests::RedisServer;

use crate::{
    rounds::{Effort, Rates, interleaved},
    sides::{Side, Tasks},
};

/// A comparison whose baseline is the last side.
#[derive(Debug)]
pub(crate) struct Scene {
    pub(crate) name: &'static str,
    pub(crate) about: &'static str,
    /// The goal for the ratio of the first side to the last.
    pub(crate) goal: Option<f64>,
    pub(crate) rates: Vec<Rates>,
}

pub(crate) async fn uncontended(server: &RedisServer, effort: Effort) -> Scene {
    Scene {
        name: "uncontended",
        about: "1 task",
        goal: Some(0.95),
        rates: on_server(server, 1, effort).await,
    }
}

pub(crate) async fn distinct(server: &RedisServer, effort: Effort) -> Scene {
    Scene {
        name: "distinct",
        about: "64 tasks, each with a key of its own",
        goal: Some(0.90),
        rates: on_server(server, 64, effort).await,
    }
}

pub(crate) async fn embedded_uncontended(effort: Effort) -> Scene {
    Scene {
        name: "embedded_uncontended",
        about: "1 task, embedded engine instead of a server",
        goal: None,
        rates: on_embedded(1, effort).await,
    }
}

pub(crate) async fn embedded_distinct(effort: Effort) -> Scene {
    Scene {
        name: "embedded_distinct",
        about: "64 tasks, each with a key of its own, embedded engine",
        goal: None,
        rates: on_embedded(64, effort).await,
    }
}

async fn on_server(server: &RedisServer, tasks: u64, effort: Effort) -> Vec<Rates> {
    let client = client(server).await;
    let raw = Raw::connect(server.address())
        .await
        .expect("the server answers");
    against_raw(&client, &raw, tasks, effort).await
}

async fn on_embedded(tasks: u64, effort: Effort) -> Vec<Rates> {
    let engine = Engine::new();
    let client = Client::builder().embedded(&engine).build();
    let raw = Raw::over(engine.connect()).await;
    against_raw(
        &client.expect("the defaults are valid"),
        &raw.expect("the engine answers"),
        tasks,
        effort,
    )
    .await
}

async fn against_raw(client: &Client, raw: &Raw, tasks: u64, effort: Effort) -> Vec<Rates> {
    let mut sides: [Box<dyn Side>; 2] = [
        Tasks::boxed(
            "redlock-rt",
            (0..tasks).map(|task| client.rlock(format!("bench:ours:{task:02}"))),
        ),
        Tasks::boxed(
            "raw redis",
            (0..tasks).map(|task| raw.lock(&format!("bench:raws:{task:02}"), task)),
        ),
    ];
    interleaved(&mut sides, effort).await
}

pub(crate) async fn client(server: &RedisServer) -> Client {
    Client::connect(&server.url())
        .await
        .expect("the server answers")
}
