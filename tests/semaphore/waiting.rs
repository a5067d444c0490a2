//! Waiting: the order of the waiters, and the cost.

use std::{sync::Arc, time::Duration};

use tests::{calls, within};

use crate::stage::{DEADLINE, Stage};

/// The time that is given to events that must not happen.
const MOMENT: Duration = Duration::from_millis(100);

/// After a release of some permits, as many waiters try.
#[tokio::test]
async fn many_waiters_cost_one_subscription_and_a_try_a_permit() {
    const WAITERS: usize = 100;
    const RELEASED: usize = 5;
    for leased in [false, true] {
        let stage = Stage::open("cost").await;
        let semaphore = stage.semaphore(RELEASED as u32).await;
        let permits = stage.client.permit_expirable_semaphore(&stage.name);
        let all = semaphore.acquire_many(RELEASED as u32).await.unwrap();
        let served = tokio::sync::watch::channel(0).0;
        let done = Arc::new(tokio::sync::Semaphore::new(0));
        let served = Arc::new(served);
        let confirmation = stage.proxy.hold_reply("SUBSCRIBE");
        let waiters: Vec<_> = (0..WAITERS)
            .map(|_| {
                let (semaphore, permits) = (semaphore.clone(), permits.clone());
                let (served, done) = (Arc::clone(&served), Arc::clone(&done));
                tokio::spawn(async move {
                    let (mut guard, mut permit) = (None, None);
                    match leased {
                        false => guard = Some(semaphore.acquire().await.unwrap()),
                        true => permit = Some(permits.acquire().await.unwrap()),
                    }
                    served.send_modify(|count| *count += 1);
                    done.acquire().await.unwrap().forget();
                    drop((guard, permit));
                })
            })
            .collect();
        stage.listening(WAITERS).await;
        confirmation.reached().await;
        let tries = match leased {
            false => calls("semaphore_acquire"),
            true => calls("permits_acquire"),
        };
        let count = || stage.proxy.count(tries.clone());
        // One try of the head, one of `all`, and one that was answered with NOSCRIPT.
        assert!(count() <= 3, "{}", count());
        stage.proxy.mark();
        confirmation.open();
        // One when the subscription is confirmed.
        stage.proxy.wait_for_answer(tries.clone()).await;
        assert_eq!(count(), 1);
        assert_eq!(stage.client.stats().subscriptions, 1);
        stage.proxy.mark();
        all.release().await.unwrap();
        let mut now = served.subscribe();
        within(DEADLINE, now.wait_for(|count| *count == RELEASED))
            .await
            .unwrap();
        stage.waiting(WAITERS - RELEASED).await;
        // Waits a moment for commands that must not be sent.
        tokio::time::sleep(MOMENT).await;
        assert_eq!(count(), RELEASED);
        assert_eq!(stage.proxy.counts().get("SUBSCRIBE"), None);
        done.add_permits(WAITERS);
        for waiter in waiters {
            within(DEADLINE, waiter).await.unwrap();
        }
        stage.end(RELEASED as i64).await;
    }
}
