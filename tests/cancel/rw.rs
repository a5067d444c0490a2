//! Calls of the read-write lock.

use std::time::Duration;

use redlock_rt::{ReadWriteLock, Unlocked};

use crate::stage::{At, Stage, ended, unlocked};

/// The hold of another client, which releases it when nothing moves.
async fn read_elsewhere(stage: &mut Stage) {
    let guard = stage.rw_of_the_other().read().await.unwrap();
    stage.then(move || drop(guard));
}

async fn written_elsewhere(stage: &mut Stage) {
    let guard = stage.rw_of_the_other().write().await.unwrap();
    stage.then(move || drop(guard));
}

fn preferred(stage: &mut Stage) -> ReadWriteLock {
    stage.rw().prefer_writers(true)
}

pub(crate) async fn read(stage: &mut Stage, at: At) -> bool {
    let lock = stage.rw();
    unlocked(stage.drop_at(at, lock.read()).await).await
}

pub(crate) async fn write(stage: &mut Stage, at: At) -> bool {
    let lock = stage.rw();
    unlocked(stage.drop_at(at, lock.write()).await).await
}

pub(crate) async fn read_among_readers(stage: &mut Stage, at: At) -> bool {
    read_elsewhere(stage).await;
    read(stage, at).await
}

pub(crate) async fn read_behind_a_writer(stage: &mut Stage, at: At) -> bool {
    stage.rw();
    written_elsewhere(stage).await;
    read(stage, at).await
}

pub(crate) async fn write_behind_a_reader(stage: &mut Stage, at: At) -> bool {
    stage.rw();
    read_elsewhere(stage).await;
    write(stage, at).await
}

/// The traces of a refused call are removed.
pub(crate) async fn preferred_write_behind_a_reader(stage: &mut Stage, at: At) -> bool {
    let lock = preferred(stage);
    read_elsewhere(stage).await;
    unlocked(stage.drop_at(at, lock.write()).await).await
}

pub(crate) async fn preferred_write_whose_reply_is_lost(stage: &mut Stage, at: At) -> bool {
    let lock = preferred(stage);
    read_elsewhere(stage).await;
    unlocked(Some(lock.read().await)).await;
    stage.lose_reply();
    unlocked(stage.drop_at(at, lock.write()).await).await
}

pub(crate) async fn read_whose_reply_is_lost(stage: &mut Stage, at: At) -> bool {
    let lock = stage.rw();
    unlocked(Some(lock.read().await)).await;
    stage.lose_reply();
    read(stage, at).await
}

pub(crate) async fn read_in_a_write_body(stage: &mut Stage, at: At) -> bool {
    let lock = stage.rw();
    let writing = lock.write().await.unwrap();
    let call = writing.run(async { lock.read().await.unwrap().unlock().await.unwrap() });
    let outcome = stage.drop_at(at, call).await;
    assert!(writing.is_valid());
    assert_eq!(writing.unlock().await.unwrap(), Unlocked::Released);
    ended(outcome, Unlocked::Released)
}

pub(crate) async fn downgrade(stage: &mut Stage, at: At) -> bool {
    let writing = stage.rw().write().await.unwrap();
    let outcome = stage.drop_at(at, writing.downgrade()).await;
    unlocked(outcome.map(|outcome| Ok(outcome.unwrap()))).await
}

pub(crate) async fn downgrade_whose_reply_is_lost(stage: &mut Stage, at: At) -> bool {
    let lock = stage.rw();
    let writing = lock.write().await.unwrap();
    unlocked(Some(writing.run(lock.read()).await.unwrap())).await;
    stage.lose_reply();
    let outcome = stage.drop_at(at, writing.downgrade()).await;
    unlocked(outcome.map(|outcome| Ok(outcome.unwrap()))).await
}

pub(crate) async fn try_upgrade(stage: &mut Stage, at: At) -> bool {
    let reading = stage.rw().read().await.unwrap();
    let outcome = stage.drop_at(at, reading.try_upgrade()).await;
    unlocked(outcome.map(|outcome| Ok(outcome.unwrap()))).await
}

pub(crate) async fn try_upgrade_whose_reply_is_lost(stage: &mut Stage, at: At) -> bool {
    let lock = stage.rw();
    let reading = lock.read().await.unwrap();
    let reading = reading
        .try_upgrade()
        .await
        .unwrap()
        .downgrade()
        .await
        .unwrap();
    stage.lose_reply();
    let outcome = stage.drop_at(at, reading.try_upgrade()).await;
    unlocked(outcome.map(|outcome| Ok(outcome.unwrap()))).await
}

pub(crate) async fn try_upgrade_among_readers(stage: &mut Stage, at: At) -> bool {
    let reading = stage.rw().read().await.unwrap();
    // To the end: an event is for when nothing moves, as where the call has to wait for a processor.
    let _other = stage.rw_of_the_other().read().await.unwrap();
    let Some(outcome) = stage.drop_at(at, reading.try_upgrade()).await else {
        return false;
    };
    let refused = outcome.unwrap_err();
    assert!(refused.error().is_contended(), "{refused}");
    let reading = refused.into_guard();
    reading.extend(Duration::from_secs(100)).await.unwrap();
    unlocked(Some(Ok(reading))).await
}
