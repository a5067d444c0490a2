//! Users who may do something in one namespace only.

use redlock_rt::{AclKind, Client, Error, ErrorKind, RLockGuard};
use tests::{DEADLINE, eventually, within};

use crate::{KINDS, Stage, fenced_with, seen, use_of, words};

/// A bracket in a pattern would be a choice of characters, and no rule may have a space.
const NAMESPACE: &str = "my sh[o]p";

/// A waiter, and a ticket, which no kind is named for.
async fn lock(client: &Client, name: &str) -> Result<(), Error> {
    let guard = client.rlock(name).lock().await?;
    let waiter = client.rlock(name);
    let waiter = tokio::spawn(async move { waiter.lock().await });
    eventually(DEADLINE, async || client.stats().waiting == 1).await;
    guard.unlock().await?;
    let guard = within(DEADLINE, waiter).await.unwrap()?;
    let ticket = guard
        .into_ticket()
        .map_err(|refused| refused.into_error())?;
    let guard: RLockGuard = client.adopt(&ticket).await?;
    guard.unlock().await.map(drop)
}

/// The keys and channels of a name with a brace are made of it in another way.
#[tokio::test]
async fn the_patterns_of_a_namespace_are_enough_and_other_keys_are_refused_by_name() {
    let mut stage = Stage::open("namespace").await;
    let shop = Client::builder()
        .url("redis://localhost")
        .namespace(NAMESPACE);
    let shop = shop.build().unwrap();
    for kind in KINDS {
        let rule = words(&shop, &[seen(kind), &[kind]].concat());
        // Its world has the user from here on.
        drop(stage.client(&rule).await);
        // Waiters are woken by announcements alone.
        let ours = stage
            .world
            .client_with(|builder| builder.namespace(NAMESPACE).poll_interval(DEADLINE * 6));
        for name in [format!("{kind:?}"), format!("{kind:?}:{{1}}")] {
            let used = match kind {
                AclKind::FencedLock => {
                    fenced_with(&ours, &name, &format!("{NAMESPACE}:{name}:value")).await
                }
                _ => use_of(kind, &ours, &name).await,
            };
            used.unwrap_or_else(|error| panic!("{name}: {}", tests::told(&error)));
            let name = format!("{name}:lock");
            let locked = lock(&ours, &name).await;
            locked.unwrap_or_else(|error| panic!("{name}: {}", tests::told(&error)));
        }
        let refused = stage.refused().await;
        // Without RESTORE there is one try. To the other one no right is needed.
        let spared = ["restore", "redlock_probe"];
        let others = refused
            .iter()
            .filter(|word| !spared.contains(&word.as_str()));
        assert_eq!(others.count(), 0, "{kind:?}: {refused:?}");
    }

    let elsewhere = stage.client(&words(&shop, &[AclKind::FairLock])).await;
    let error = elsewhere.rlock("other:x").lock().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Denied, "{error}");
    let text = tests::told(&error);
    assert!(text.contains("the user's ACL needs \"~other:x\""), "{text}");
    let error = elsewhere.fair_lock("other:x").lock().await.unwrap_err();
    let text = tests::told(&error);
    let queue = "\"~redisson_lock_queue:{other:x}\"";
    assert!(
        text.contains("\"~other:x\" and ") && text.contains(queue),
        "{text}"
    );
    // Names of others that only end as those of the namespace begin.
    let tag = "other:my sh[o]p:{x}";
    let error = elsewhere.fair_lock(tag).lock().await.unwrap_err();
    let text = tests::told(&error);
    let queue = "\"~redisson_lock_queue:other:my sh[o]p:{x}\"";
    assert!(text.contains(queue), "{text}");
    // And those that only contain a name of the namespace.
    let tag = format!("other:{{{NAMESPACE}:x}}");
    let error = elsewhere.rlock(&tag).lock().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Denied, "{error}");
    stage.end().await;
}
