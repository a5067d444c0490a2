//! Calls whose connection is missing, or breaks during the call.

use std::time::Duration;

use redlock_rt::Unlocked;

use crate::{
    calls,
    stage::{At, Stage, ended, unlocked},
};

/// Connects the client, if it is not connected.
async fn warm(stage: &Stage) {
    assert!(unlocked(Some(stage.lock().lock().await)).await);
}

pub(crate) async fn lock_without_a_connection(stage: &mut Stage, at: At) -> bool {
    warm(stage).await;
    stage.cut_off();
    calls::lock(stage, at).await
}

pub(crate) async fn lock_whose_reply_is_lost(stage: &mut Stage, at: At) -> bool {
    warm(stage).await;
    stage.lose_reply();
    calls::lock(stage, at).await
}

pub(crate) async fn lock_whose_request_is_lost(stage: &mut Stage, at: At) -> bool {
    warm(stage).await;
    stage.lose_request();
    calls::lock(stage, at).await
}

async fn unlock(stage: &mut Stage, at: At, lose: impl FnOnce(&mut Stage)) -> bool {
    let guard = stage.held().await;
    lose(stage);
    let outcome = stage.drop_at(at, guard.unlock()).await;
    ended(outcome, Unlocked::Released)
}

pub(crate) async fn unlock_without_a_connection(stage: &mut Stage, at: At) -> bool {
    unlock(stage, at, Stage::cut_off).await
}

pub(crate) async fn unlock_whose_reply_is_lost(stage: &mut Stage, at: At) -> bool {
    unlock(stage, at, Stage::lose_reply).await
}

pub(crate) async fn unlock_whose_request_is_lost(stage: &mut Stage, at: At) -> bool {
    unlock(stage, at, |stage| stage.lose_request()).await
}

async fn reenter(stage: &mut Stage, at: At, lose: impl FnOnce(&mut Stage)) -> bool {
    let outer = stage.held().await;
    lose(stage);
    let outcome = stage.drop_at(at, outer.reenter()).await;
    let completed = outcome.map(|guard| drop(guard.unwrap())).is_some();
    stage.finish_events();
    stage.assert_held_once(outer, at).await;
    completed
}

pub(crate) async fn reenter_without_a_connection(stage: &mut Stage, at: At) -> bool {
    reenter(stage, at, Stage::cut_off).await
}

pub(crate) async fn reenter_whose_reply_is_lost(stage: &mut Stage, at: At) -> bool {
    reenter(stage, at, Stage::lose_reply).await
}

async fn extend(stage: &mut Stage, at: At, lose: impl FnOnce(&mut Stage)) -> bool {
    let guard = stage.held().await;
    lose(stage);
    let outcome = stage
        .drop_at(at, guard.extend(Duration::from_secs(100)))
        .await;
    stage.finish_events();
    stage.assert_held_once(guard, at).await;
    outcome.map(Result::unwrap).is_some()
}

pub(crate) async fn extend_without_a_connection(stage: &mut Stage, at: At) -> bool {
    extend(stage, at, Stage::cut_off).await
}

pub(crate) async fn extend_whose_reply_is_lost(stage: &mut Stage, at: At) -> bool {
    extend(stage, at, Stage::lose_reply).await
}
