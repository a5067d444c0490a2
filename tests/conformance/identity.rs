//! The owners in Redis.

use std::{collections::BTreeSet, time::Duration};

use redlock_rt::LockOptions;
use tests::{eventually, within};
use tokio_test::task;

use crate::{locks::share, world::*};

pub(crate) async fn owners_are_the_clients_uuid_and_a_number(world: &World) {
    let (client, other) = (world.client(), world.client());
    assert_ne!(client.uuid(), other.uuid());
    let guard = world.open(&client).lock().await.unwrap();
    let owners = guard.hold_ids();
    for owner in &owners {
        let (uuid, number) = owner.as_str().split_once(':').unwrap();
        assert_eq!(uuid, owner.client());
        assert!(client.has(uuid), "{uuid}");
        assert_eq!(owner.to_string(), owner.as_str());
        let groups: Vec<_> = uuid.split('-').map(str::len).collect();
        assert_eq!(groups, [8, 4, 4, 4, 12], "{uuid}");
        assert!(uuid.chars().all(|c| c == '-' || c.is_ascii_hexdigit()));
        assert_eq!(number, number.parse::<u64>().unwrap().to_string());
    }
    world.assert_held_by(&owners).await;
    guard.unlock().await.unwrap();
}

/// Otherwise a late command of an ended hold would act on a newer one.
pub(crate) async fn owner_numbers_never_repeat(world: &World) {
    let client = world.client();
    let lock = world.open(&client);
    let rival = world.rival(&client);
    let mut owners = BTreeSet::new();
    for round in 0..30 {
        let guard = within(DEADLINE, lock.lock()).await.unwrap();
        for owner in guard.hold_ids() {
            let fresh = owners.insert(owner.to_string());
            assert!(fresh, "{owner} was used before");
        }
        let inner = guard.reenter().await.unwrap();
        match round % 5 {
            0 => drop(guard.unlock().await.unwrap()),
            1 => drop(guard),
            2 => {
                world.delete().await;
                drop(guard);
            }
            3 => {
                // A call that is dropped in its first steps.
                let options = LockOptions::new().wait(Duration::from_millis(1));
                assert!(rival.lock_with(options).await.is_err());
                let mut call = task::spawn(lock.lock());
                // A shared lock may be acquired, if this thread had to wait in between.
                assert!(call.poll().is_pending() || world.kind.shared);
                drop(guard);
            }
            _ => {
                // A release that is dropped in its first steps.
                let mut call = task::spawn(guard.unlock());
                let _ = call.poll();
            }
        }
        drop(inner);
        if round % 3 == 0 {
            eventually(DEADLINE, async || !world.is_there().await).await;
        }
    }
    assert!(owners.len() >= 30);
}

pub(crate) async fn a_hold_keeps_its_owner(world: &World) {
    let client = world.client();
    let often = LockOptions::new().renew(OFTEN);
    let lock = world.open(&client);
    let guard = lock.lock_with(often).await.unwrap();
    let owners = guard.hold_ids();
    let inner = guard.reenter().await.unwrap();
    guard.unlock().await.unwrap();
    // Through a renewal, a re-entry and an extension.
    is_renewed(&*inner).await;
    let innermost = inner.reenter().await.unwrap();
    inner.extend(2 * STANDARD).await.unwrap();
    world.assert_held_by(&owners).await;
    assert!(share(&innermost.hold_ids(), &owners));
}
