//! A CountDownLatch beside Redisson's: one latch, whichever side sets it, counts it down and waits.

use redlock_rt::{CountDownLatch, Error};
use tests::{DEADLINE, RedissonCountDownLatch, eventually, unique, within};
use tokio::task::JoinHandle;

type Stage = crate::Both<CountDownLatch, RedissonCountDownLatch>;

impl Stage {
    async fn open(name: String) -> Self {
        Self::shared(
            &name,
            &name,
            |client, name| client.count_down_latch(name),
            |java, name| java.count_down_latch(name),
        )
        .await
    }

    fn we_wait(&self) -> JoinHandle<Result<(), Error>> {
        let latch = self.ours.clone();
        tokio::spawn(async move { latch.wait().await })
    }

    async fn they_wait(&self) -> JoinHandle<bool> {
        let latch = self.theirs.clone();
        let waits = tokio::spawn(async move { latch.wait(DEADLINE).await.unwrap() });
        eventually(DEADLINE, async || self.theirs.is_asleep()).await;
        waits
    }

    async fn subscribed(&self, count: usize) {
        let channel = format!("redisson_countdownlatch__channel__{{{}}}", self.name);
        self.subscribed_to(&channel, count).await;
    }

    async fn marks(&self) -> Vec<String> {
        let pattern = format!("redlock_latch_end:*{}*", self.name);
        self.redis(&["KEYS", &pattern]).await
    }

    async fn end_without_notes(self) {
        self.remove_notes().await;
        self.end().await;
    }
}

#[tokio::test]
async fn each_counts_down_what_the_other_set_and_wakes_the_other() {
    for java_sets in [true, false] {
        for java_is_last in [true, false] {
            let stage = Stage::open(unique("latch")).await;
            let Stage { ours, theirs, .. } = &stage;
            if java_sets {
                assert!(theirs.try_set_count(2).await.unwrap());
                assert!(!ours.try_set_count(5).await.unwrap());
            } else {
                assert!(ours.try_set_count(2).await.unwrap());
                assert!(!theirs.try_set_count(5).await.unwrap());
            }
            assert_eq!(ours.count().await.unwrap(), 2);
            assert_eq!(theirs.count().await.unwrap(), 2);
            let we = stage.we_wait();
            let they = stage.they_wait().await;
            stage.subscribed(2).await;
            if java_is_last {
                assert_eq!(ours.count_down().await.unwrap(), 1);
                assert!(!we.is_finished() && !they.is_finished());
                theirs.count_down().await.unwrap();
            } else {
                theirs.count_down().await.unwrap();
                assert!(!we.is_finished() && !they.is_finished());
                assert_eq!(ours.count_down().await.unwrap(), 0);
            }
            within(DEADLINE, we).await.unwrap().unwrap();
            assert!(within(DEADLINE, they).await.unwrap());
            // From now on open for both sides, and the count stays at zero.
            ours.wait().await.unwrap();
            assert!(theirs.wait(DEADLINE).await.unwrap());
            theirs.count_down().await.unwrap();
            assert_eq!(ours.count_down().await.unwrap(), 0);
            assert_eq!(theirs.count().await.unwrap(), 0);
            stage.end_without_notes().await;
        }
    }
}

/// Java's threads continue to sleep when a latch is deleted, and wake when the next one is counted down.
#[tokio::test]
async fn a_deleted_latch_wakes_ours_and_not_theirs() {
    let stage = Stage::open(unique("latch-del")).await;
    let Stage { ours, theirs, .. } = &stage;
    ours.try_set_count(1).await.unwrap();
    let we = stage.we_wait();
    let they = stage.they_wait().await;
    stage.subscribed(2).await;
    assert!(ours.delete().await.unwrap());
    let error = within(DEADLINE, we).await.unwrap().unwrap_err();
    assert!(error.is_latch_gone(), "{error}");
    assert!(!they.is_finished());
    assert!(theirs.try_set_count(1).await.unwrap());
    let we = stage.we_wait();
    stage.subscribed(2).await;
    // The mark belongs to the latch before; our waiter removes it.
    eventually(DEADLINE, async || stage.marks().await.is_empty()).await;
    theirs.count_down().await.unwrap();
    assert!(within(DEADLINE, they).await.unwrap());
    within(DEADLINE, we).await.unwrap().unwrap();
    ours.wait().await.unwrap();

    // Deleted by Redisson, which leaves no mark: as if counted down.
    theirs.try_set_count(1).await.unwrap();
    let we = stage.we_wait();
    stage.subscribed(1).await;
    assert!(theirs.delete().await.unwrap());
    within(DEADLINE, we).await.unwrap().unwrap();
    stage.end_without_notes().await;
}

/// Redisson can set a latch to zero: no waiter blocks, and counting down removes it.
#[tokio::test]
async fn a_latch_of_theirs_at_zero_is_open() {
    let stage = Stage::open(unique("latch-null")).await;
    let Stage { ours, theirs, .. } = &stage;
    theirs.try_set_count(0).await.unwrap();
    ours.wait().await.unwrap();
    assert_eq!(ours.count().await.unwrap(), 0);
    assert_eq!(ours.count_down().await.unwrap(), 0);
    assert!(theirs.try_set_count(1).await.unwrap(), "it is gone");
    ours.count_down().await.unwrap();
    stage.end_without_notes().await;
}

#[tokio::test]
async fn names_with_braces_mean_the_same_to_both() {
    for form in ["{}{x}y", "{}x{y", "{}x}y"] {
        let stage = Stage::open(form.replacen("{}", &unique("latch-br"), 1)).await;
        let Stage { ours, theirs, .. } = &stage;
        ours.try_set_count(2).await.unwrap();
        let they = stage.they_wait().await;
        let we = stage.we_wait();
        stage.subscribed(2).await;
        theirs.count_down().await.unwrap();
        ours.count_down().await.unwrap();
        assert!(within(DEADLINE, they).await.unwrap());
        within(DEADLINE, we).await.unwrap().unwrap();
        stage.end_without_notes().await;
    }
}
