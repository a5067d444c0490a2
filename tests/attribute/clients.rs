//! Calls of several tasks and clients, and a fallback that is a function of a trait.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use redlock_rt::embedded::Engine;
use redlock_rt::{Client, Error, distributed_lock};

/// Two clients of one Redis: what two processes would be.
fn two_clients() -> [Client; 2] {
    let engine = Engine::new();
    [(); 2].map(|()| Client::builder().embedded(&engine).build().unwrap())
}

/// How many are in a place that only one may be in.
#[derive(Default)]
struct Place {
    inside: AtomicU32,
    visits: AtomicU32,
}

impl Place {
    /// Goes in, stays for some turns of the scheduler, goes out.
    async fn visit(&self) {
        assert_eq!(self.inside.fetch_add(1, Ordering::SeqCst), 0, "two at once");
        for _ in 0..5 {
            tokio::task::yield_now().await;
        }
        self.inside.fetch_sub(1, Ordering::SeqCst);
        self.visits.fetch_add(1, Ordering::SeqCst);
    }
}

#[distributed_lock(key = "place:<id>", wait = "30s", client = client)]
async fn enter(client: &Client, id: u32, place: &Place) -> Result<(), Error> {
    place.visit().await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_body_at_a_time_over_tasks_and_clients() {
    let clients = two_clients();
    let place = Arc::new(Place::default());
    let tasks = (0..16).map(|task: usize| {
        let (client, place) = (clients[task % 2].clone(), Arc::clone(&place));
        tokio::spawn(async move {
            for _ in 0..5 {
                enter(&client, 1, &place).await?;
            }
            Ok::<_, Error>(())
        })
    });
    for task in tasks.collect::<Vec<_>>() {
        task.await.unwrap().unwrap();
    }
    assert_eq!(place.visits.load(Ordering::SeqCst), 80);
}

trait Closed {
    async fn closed(client: &Client, id: u64) -> Result<u64, Error>;
}

struct Shop;

impl Closed for Shop {
    async fn closed(_: &Client, id: u64) -> Result<u64, Error> {
        Ok(id + 1)
    }
}

#[distributed_lock(
    key = "qualified:<id>",
    wait = "0s",
    client = client,
    on_timeout = call(<Shop as Closed>::closed)
)]
async fn open(client: &Client, id: u64) -> Result<u64, Error> {
    Ok(id)
}

#[tokio::test]
async fn a_fallback_may_be_a_function_of_a_trait() {
    let client = Client::embedded();
    assert_eq!(open(&client, 7).await.unwrap(), 7);
    let held = client.rlock("qualified:7").lock().await.unwrap();
    assert_eq!(open(&client, 7).await.unwrap(), 8);
    held.unlock().await.unwrap();
}
