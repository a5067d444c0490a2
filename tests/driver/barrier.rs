//! Barriers.

use tests::{ask, shared_server, unique};

use crate::{connected, waits_for};

#[tokio::test]
async fn parties_pass_together_and_are_sent_away_by_a_reset() {
    let (one, two) = (connected().await, connected().await);
    let name = unique("barrier");
    for generation in ["1", "2"] {
        let pending = one.send(&format!("barrier.await {name} 2"));
        waits_for(&one, 1).await;
        let last = two.ok(&format!("barrier.await {name} 2 10000")).await;
        assert_eq!(last, generation);
        assert_eq!(pending.answer().await.ok(), generation);
    }
    let late = two.call(&format!("barrier.await {name} 2 0")).await;
    assert_eq!(late.err_kind(), "timed_out");
    let pending = one.send(&format!("barrier.await {name} 2"));
    waits_for(&one, 1).await;
    let other = two.call(&format!("barrier.await {name} 3")).await;
    assert_eq!(other.err_kind(), "bad_input");
    assert_eq!(two.ok(&format!("barrier.reset {name} 2")).await, "true");
    assert_eq!(pending.answer().await.err_kind(), "lost");
    assert_eq!(two.ok(&format!("barrier.reset {name} 2")).await, "false");
    let redis = shared_server().connect().await.unwrap();
    let state = format!("redlock_barrier:{{{name}}}");
    let _: usize = ask(&redis, &["DEL", &state]).await;
}
