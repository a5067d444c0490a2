//! A rush that all instances drive together: each sends the requests of its share of the users, and
//! a latch lets all of them begin at one moment.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use tokio::sync::Mutex;
use tokio::time::timeout;

use super::{LiveReport, Shop, ShopError, WAIT_BOUNDS, millis, new_id, now};
use crate::store::{Part, Rush, Share};

/// How long an instance that says nothing counts as there.
const SILENT: Duration = Duration::from_secs(3);

/// How long the first waits for the last before it begins without it.
const TOGETHER: Duration = Duration::from_secs(5);

/// A latch whose instances died is not there for ever.
const LATCH_TTL: Duration = Duration::from_secs(120);

const MOST_REQUESTS: i64 = 1_000_000;

/// How far apart the states are that viewers are told.
pub(crate) const SAMPLE: Duration = Duration::from_millis(100);

/// The last state of each rush that has viewers, and when it was asked for.
pub(super) type Samples = Mutex<HashMap<String, (Instant, Arc<RushState>)>>;

/// A rush as somebody asks for it.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RushRequest {
    pub(crate) voucher_id: String,
    pub(crate) users: i64,
    pub(crate) requests_per_user: i64,
    /// Requests in flight over all instances.
    pub(crate) concurrency: i64,
}

/// What one instance says of its share.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct ShareReport {
    /// Requests that ended, by how.
    pub(crate) ends: BTreeMap<String, u64>,
    /// Requests of this share.
    pub(crate) requests: u64,
    pub(crate) elapsed_ms: u64,
    pub(crate) live: LiveReport,
}

/// How far a rush is, over all instances.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct RushState {
    pub(crate) id: String,
    pub(crate) voucher_id: String,
    pub(crate) voucher: String,
    pub(crate) lock: String,
    pub(crate) requests: u64,
    /// Whether no more is to come.
    pub(crate) done: bool,
    pub(crate) elapsed_ms: u64,
    pub(crate) ends: BTreeMap<String, u64>,
    pub(crate) ended: u64,
    pub(crate) stock_at_start: i64,
    pub(crate) stock: i64,
    /// Rows of the orders table.
    pub(crate) sold: u64,
    /// Rows beyond the first of each user.
    pub(crate) duplicates: u64,
    /// Rows beyond the stock at the start.
    pub(crate) oversold: u64,
    pub(crate) wait_bounds_us: [u64; WAIT_BOUNDS.len()],
    pub(crate) live: LiveReport,
    /// How many are in the waiting room.
    pub(crate) room: u64,
    pub(crate) instances: Vec<InstanceState>,
}

/// How far one instance is.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct InstanceState {
    pub(crate) id: String,
    pub(crate) ended: u64,
    pub(crate) requests: u64,
    /// `waits`, `runs`, `done`, or `gone`: it died with what it had to send.
    pub(crate) state: &'static str,
}

impl Shop {
    /// Says that this instance serves at a URL.
    pub(crate) async fn beat(&self, instance: &str, url: &str) -> Result<(), ShopError> {
        Ok(self.store.beat(instance, url, now()).await?)
    }

    /// Says that it serves no more.
    pub(crate) async fn leave(&self, instance: &str) -> Result<(), ShopError> {
        Ok(self.store.leave(instance).await?)
    }

    /// The instances that serve, as id and URL.
    pub(crate) async fn instances(&self) -> Result<Vec<(String, String)>, ShopError> {
        Ok(self.store.instances(now() - millis(SILENT)).await?)
    }

    /// Begins a rush on all instances, and returns its id.
    pub(crate) async fn begin_rush(&self, asked: RushRequest) -> Result<String, ShopError> {
        for (field, number, most) in [
            ("users", asked.users, 100_000),
            ("requests_per_user", asked.requests_per_user, 100),
            ("concurrency", asked.concurrency, 10_000),
        ] {
            if !(1..=most).contains(&number) {
                return Err(ShopError::invalid(field, format!("expected 1 to {most}")));
            }
        }
        if asked.users * asked.requests_per_user > MOST_REQUESTS {
            let problem = format!("{MOST_REQUESTS} requests at most");
            return Err(ShopError::invalid("users", problem));
        }
        self.sale(&asked.voucher_id).await?;
        let instances: Vec<_> = self
            .instances()
            .await?
            .into_iter()
            .map(|(id, _)| id)
            .collect();
        if instances.is_empty() {
            return Err(ShopError::NoInstances);
        }
        let id = new_id();
        self.start(&id)
            .try_set_count(instances.len() as u64)
            .await?;
        let rush = Rush {
            voucher_id: asked.voucher_id,
            users: asked.users,
            requests_per_user: asked.requests_per_user,
            concurrency: asked.concurrency,
            begun_at: now(),
        };
        self.store.begin_rush(&id, &rush, &instances).await?;
        Ok(id)
    }

    /// The share of a rush that is this instance's to drive, with the rush.
    pub(crate) async fn take_share(
        &self,
        instance: &str,
    ) -> Result<Option<(Share, Rush)>, ShopError> {
        let Some(share) = self.store.take_share(instance).await? else {
            return Ok(None);
        };
        let rush = self.store.rush(&share.rush_id).await?;
        Ok(rush.map(|rush| (share, rush)))
    }

    /// Waits until all instances are ready, or for as long as one should.
    pub(crate) async fn together(&self, share: &Share) -> Result<(), ShopError> {
        let start = self.start(&share.rush_id);
        start.count_down().await?;
        match start.wait_with(TOGETHER).await {
            // One has died on the way here; the others have waited long enough.
            Err(error) if error.is_timed_out() => Ok(()),
            waited => Ok(waited?),
        }
    }

    /// Notes how far this instance's share is.
    pub(crate) async fn report(
        &self,
        share: &Share,
        instance: &str,
        report: &ShareReport,
        done: bool,
    ) -> Result<(), ShopError> {
        let text = serde_json::to_string(report).unwrap_or_default();
        self.store
            .report(&share.rush_id, instance, &text, done, now())
            .await?;
        Ok(())
    }

    /// How far a rush was a moment ago: one sample is for all viewers.
    pub(crate) async fn rush_sample(&self, id: &str) -> Result<Arc<RushState>, ShopError> {
        // While the database hangs, nobody waits for the others.
        let Ok(mut samples) = timeout(SAMPLE, self.samples.lock()).await else {
            return self.rush_state(id).await.map(Arc::new);
        };
        samples.retain(|_, (at, _)| at.elapsed() < SAMPLE);
        if let Some((_, state)) = samples.get(id) {
            return Ok(Arc::clone(state));
        }
        let state = Arc::new(self.rush_state(id).await?);
        samples.insert(id.to_owned(), (Instant::now(), Arc::clone(&state)));
        Ok(state)
    }

    /// How far a rush is.
    pub(crate) async fn rush_state(&self, id: &str) -> Result<RushState, ShopError> {
        let rush = self.store.rush(id).await?.ok_or(ShopError::NoSuchRush)?;
        let voucher = self.voucher(&rush.voucher_id).await?;
        let parts = self.store.parts(id).await?;
        let books = self.store.books(&rush.voucher_id).await?;
        // Only the page shows this. Where locks cannot be had, it shows 0.
        let room = self.room_len(&rush.voucher_id).await.unwrap_or_default();
        let sale = voucher.sale.ok_or(ShopError::NotOnSale)?;
        let mut state = RushState {
            id: id.to_owned(),
            voucher_id: rush.voucher_id.clone(),
            voucher: voucher.name,
            lock: sale.lock,
            requests: (rush.users * rush.requests_per_user).unsigned_abs(),
            done: true,
            elapsed_ms: 0,
            ends: BTreeMap::new(),
            ended: 0,
            stock_at_start: sale.stock_at_start,
            stock: sale.stock,
            sold: books.sold,
            duplicates: books.duplicates(),
            oversold: books.oversold(sale.stock_at_start.unsigned_abs()),
            wait_bounds_us: WAIT_BOUNDS,
            live: LiveReport::default(),
            room,
            instances: Vec::new(),
        };
        for part in parts {
            state.add(part, &rush);
        }
        Ok(state)
    }

    fn start(&self, rush: &str) -> redlock_rt::CountDownLatch {
        self.locks
            .count_down_latch(format!("rush:{rush}"))
            .ttl(LATCH_TTL)
    }
}

impl RushState {
    fn add(&mut self, part: Part, rush: &Rush) {
        let report: ShareReport = serde_json::from_str(&part.report).unwrap_or_default();
        let ended = report.ends.values().sum();
        let heard = part.reported_at.max(rush.begun_at + millis(TOGETHER));
        let state = match (part.done, part.report.is_empty()) {
            (true, _) => "done",
            _ if now() - heard > millis(SILENT) => "gone",
            (_, true) => "waits",
            _ => "runs",
        };
        self.done &= matches!(state, "done" | "gone");
        self.elapsed_ms = self.elapsed_ms.max(report.elapsed_ms);
        self.ended += ended;
        for (end, count) in report.ends {
            *self.ends.entry(end).or_default() += count;
        }
        if state == "gone" && report.requests > ended {
            *self
                .ends
                .entry("gone with its instance".to_owned())
                .or_default() += report.requests - ended;
        }
        if state != "gone" {
            self.live.add(&report.live);
        }
        self.instances.push(InstanceState {
            id: part.instance_id,
            ended,
            requests: report.requests,
            state,
        });
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use futures::future::try_join_all;

    use super::super::tests::shop_with_sale;
    use super::*;

    #[tokio::test]
    async fn each_viewer_of_a_rush_had_queries_of_its_own() {
        let (shop, voucher_id, _directory) = shop_with_sale(3).await;
        shop.beat("one", "http://one").await.unwrap();
        let asked = RushRequest {
            voucher_id,
            users: 1,
            requests_per_user: 1,
            concurrency: 1,
        };
        let id = shop.begin_rush(asked).await.unwrap();
        let viewers = (0..50).map(|_| shop.rush_sample(&id));
        let told = try_join_all(viewers).await.unwrap();
        let states: HashSet<_> = told.iter().map(Arc::as_ptr).collect();
        assert!(states.len() < 50, "{}", states.len());
    }
}
