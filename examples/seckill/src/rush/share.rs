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
pub(crate) async fn drive(
    shop: Arc<Shop>,
    (instance, url): (Arc<str>, Arc<str>),
    key: Key,
    share: Share,
    rush: Rush,
) {
    let mut targets: Vec<String> = match shop.instances().await {
        Ok(instances) => instances.into_iter().map(|(_, url)| url).collect(),
        Err(error) => {
            tracing::warn!(%error, "no rush without the database");
            return;
        }
    };
    // After an outage of the database nobody has said yet that it serves, this instance neither.
    if !targets.iter().any(|target| **target == *url) {
        targets.push(url.to_string());
    }
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
    // Where all is done, how long it took: the last report may be late.
    let report = |took: Option<Duration>| {
        let elapsed = took.unwrap_or_else(|| started.elapsed());
        let report = ShareReport {
            ends: tally
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .ends
                .clone(),
            requests,
            elapsed_ms: u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX),
            live: shop.live().report(&rush.voucher_id),
        };
        let (shop, share, instance) = (&shop, &share, &instance);
        async move { shop.report(share, instance, &report, took.is_some()).await }
    };
    let reports = async {
        loop {
            if let Err(error) = report(None).await {
                tracing::debug!(%error, "not reported");
            }
            tokio::time::sleep(REPORT).await;
        }
    };
    tokio::select! {
        () = crowd.rush(&tally) => {}
        never = reports => never,
    }
    let took = started.elapsed();
    // The last report is the one that counts; the database may be away at this moment.
    while let Err(error) = report(Some(took)).await {
        tracing::debug!(%error, "not reported");
        tokio::time::sleep(REPORT).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::service::{RushRequest, ShopError, tests::shop_with_sale};

    /// A rush was refused as one that makes no sense, and a share that was taken already ended in a panic.
    #[tokio::test]
    async fn no_instance_was_known_after_an_outage_of_the_database() {
        let (shop, voucher_id, _directory) = shop_with_sale(5).await;
        let asked = RushRequest {
            voucher_id,
            users: 4,
            requests_per_user: 2,
            concurrency: 8,
        };
        let refused = shop.begin_rush(asked.clone()).await.unwrap_err();
        assert!(matches!(refused, ShopError::NoInstances), "{refused}");

        // Nobody listens there.
        let (one, url) = ("one", "http://127.0.0.1:1");
        shop.beat(one, url).await.unwrap();
        let id = shop.begin_rush(asked).await.unwrap();
        let (share, rush) = shop.take_share(one).await.unwrap().unwrap();
        shop.leave(one).await.unwrap();
        let shop = Arc::new(shop);
        let own = (one.into(), url.into());
        drive(Arc::clone(&shop), own, Key::generate(), share, rush).await;
        let state = shop.rush_state(&id).await.unwrap();
        assert_eq!((state.done, state.ended, state.sold), (true, 8, 0));
    }
}
