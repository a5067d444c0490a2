//! The share of one instance in a rush that all of them drive.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use cookie::Key;

use super::crowd::{Crowd, Tally};
use crate::http::cookie_of;
use crate::service::{ShareReport, Shop};
use crate::store::{Rush, Share};

/// How often this instance says how far it is.
const REPORT: Duration = Duration::from_millis(100);

/// Drives this instance's share to its end, and reports on the way.
pub(crate) async fn drive(shop: Arc<Shop>, instance: Arc<str>, key: Key, share: Share, rush: Rush) {
    let targets = match shop.instances().await {
        Ok(instances) => instances.into_iter().map(|(_, url)| url).collect(),
        Err(error) => {
            tracing::warn!(%error, "no rush without the database");
            return;
        }
    };
    let crowd = Crowd {
        targets,
        voucher_id: rush.voucher_id.clone(),
        sessions: (1..=rush.users)
            .filter(|user| user % share.parts == share.part)
            .map(|user| cookie_of(&key, user))
            .collect(),
        requests_per_user: usize::try_from(rush.requests_per_user).unwrap_or(1),
        concurrency: usize::try_from(rush.concurrency / share.parts).unwrap_or(1),
    };
    let requests = crowd.requests();
    let tally = Arc::new(Mutex::new(Tally::new()));
    if let Err(error) = shop.together(&share).await {
        // The rush begins all the same, and its requests show what is wrong.
        tracing::warn!(%error, "the rush begins without the others");
    }
    let started = Instant::now();
    let report = |done: bool| {
        let report = ShareReport {
            ends: tally
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .ends
                .clone(),
            requests,
            elapsed_ms: u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX),
            live: shop.live().report(&rush.voucher_id),
        };
        let (shop, share, instance) = (&shop, &share, &instance);
        async move { shop.report(share, instance, &report, done).await }
    };
    let reports = async {
        loop {
            if let Err(error) = report(false).await {
                tracing::debug!(%error, "not reported");
            }
            tokio::time::sleep(REPORT).await;
        }
    };
    tokio::select! {
        () = crowd.rush(&tally) => {}
        never = reports => never,
    }
    // The last report is the one that counts; the database may be away at this moment.
    while let Err(error) = report(true).await {
        tracing::debug!(%error, "not reported");
        tokio::time::sleep(REPORT).await;
    }
}
