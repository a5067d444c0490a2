//! A crowd on HTTP: each user sends the same request several times at once, to different instances.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use tokio::sync::{Barrier, Semaphore};
use tokio::task::JoinSet;

use crate::client::{CallError, HttpClient};

/// How long a user waits for an answer.
const PATIENCE: Duration = Duration::from_secs(20);

/// A minute in microseconds; a latency beyond it counts as one.
const LONGEST: u64 = 60 * 1_000_000;

/// Who rushes, for what, and where to.
#[derive(Debug)]
pub(crate) struct Crowd {
    /// Where instances, or what stands in front of them, can be reached.
    pub(crate) targets: Vec<String>,
    pub(crate) voucher_id: String,
    /// The cookies of the users' sessions.
    pub(crate) sessions: Vec<String>,
    pub(crate) requests_per_user: usize,
    pub(crate) concurrency: usize,
}

/// How requests ended.
#[derive(Debug)]
pub(crate) struct Tally {
    pub(crate) ends: BTreeMap<String, u64>,
    /// Microseconds from the request to the whole answer.
    pub(crate) latencies: Histogram<u64>,
}

impl Tally {
    pub(crate) fn new() -> Self {
        Self {
            ends: BTreeMap::new(),
            latencies: Histogram::new_with_bounds(1, LONGEST, 3).expect("the bounds are constants"),
        }
    }

    /// Requests that ended.
    pub(crate) fn ended(&self) -> u64 {
        self.ends.values().sum()
    }

    fn add(&mut self, end: String, took: Duration) {
        *self.ends.entry(end).or_default() += 1;
        let micros = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        self.latencies.saturating_record(micros);
    }
}

impl Crowd {
    /// Requests of all users.
    pub(crate) fn requests(&self) -> u64 {
        (self.sessions.len() * self.requests_per_user) as u64
    }

    /// Sends all requests, at most `concurrency` of them at a time.
    pub(crate) async fn rush(self, tally: &Arc<Mutex<Tally>>) {
        let places = self.concurrency.max(self.requests_per_user);
        let in_flight = Arc::new(Semaphore::new(places));
        let http = HttpClient::new(PATIENCE);
        let together = u32::try_from(self.requests_per_user).unwrap_or(u32::MAX);
        let mut requests = JoinSet::new();
        for (number, session) in self.sessions.into_iter().enumerate() {
            // A user comes with all requests or not yet, so that they really do start together.
            let mut places = Arc::clone(&in_flight)
                .acquire_many_owned(together)
                .await
                .expect("the semaphore is never closed");
            let start = Arc::new(Barrier::new(self.requests_per_user));
            let session: Arc<str> = session.into();
            for request in 0..self.requests_per_user {
                let place = places.split(1);
                let target = &self.targets[(number + request) % self.targets.len()];
                let url = format!("{target}/api/voucher-orders/{}/seckill", self.voucher_id);
                let (http, start) = (http.clone(), Arc::clone(&start));
                let (session, tally) = (Arc::clone(&session), Arc::clone(tally));
                requests.spawn(async move {
                    start.wait().await;
                    let began = Instant::now();
                    let end = ended(http.post(&url, Some(&session), None).await);
                    let mut tally = tally.lock().unwrap_or_else(PoisonError::into_inner);
                    tally.add(end, began.elapsed());
                    drop(place);
                });
            }
            while requests.try_join_next().is_some() {}
        }
        while requests.join_next().await.is_some() {}
    }
}

/// How a request ended: `ordered`, or the last part of its problem's type.
fn ended(reply: Result<crate::client::Reply, CallError>) -> String {
    let reply = match reply {
        Ok(reply) => reply,
        Err(error) => return error.to_string(),
    };
    if reply.status == 201 {
        return "ordered".to_owned();
    }
    let problem = reply.json();
    match problem["type"]
        .as_str()
        .and_then(|kind| kind.strip_prefix("/problems/"))
    {
        Some(kind) => kind.to_owned(),
        None => format!("status {}", reply.status),
    }
}
