//! The write that precedes a wait for replicas.

use super::recipe::Recipe;
use super::reply::Reply;
use super::script::{Call, script};

script!(TOUCH = "touch");

/// Checks that these holds exist, and writes to a key of one without changing it.
pub(crate) fn touch<'a>(holds: impl Iterator<Item = (&'a dyn Recipe, &'a str)> + Clone) -> Call {
    let mut call = Call::new(&TOUCH);
    for (recipe, owner) in holds.clone() {
        let permits = recipe.permit_ids(owner);
        let permits = permits.and_then(|_| recipe.lease_keys(owner));
        let key = permits.as_deref().unwrap_or_else(|| recipe.counted_in());
        call = call.key(recipe.name().as_str()).key(key);
    }
    for (recipe, owner) in holds {
        call = call
            .arg(&recipe.field(owner))
            .arg(recipe.permit_ids(owner).as_deref().unwrap_or_default());
    }
    call
}

/// Which of the holds exist.
pub(crate) fn touched(reply: &Reply) -> Vec<bool> {
    match reply {
        Reply::List(items) => items.iter().map(|item| *item == Reply::Int(1)).collect(),
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::name::LockName;
    use crate::wire::script::headers::assert_agrees;
    use crate::wire::{PermitsWire, RLockWire, SemaphoreWire};

    #[test]
    fn keys_and_replies_are_in_one_order() {
        let wire = |name| RLockWire::new(LockName::new(None, name).unwrap());
        let (a, b) = (wire("a"), wire("b"));
        let (one, two) = ("u:1", "u:2");
        let name = |name| LockName::new(None, name).unwrap();
        let semaphore = SemaphoreWire::new(name("s"), 1, 0);
        let permits = PermitsWire::new(name("p"), 1, 0);
        let holds: [(&dyn Recipe, _); 4] =
            [(&a, one), (&b, two), (&semaphore, one), (&permits, two)];
        for hold in holds {
            assert_agrees(&touch([hold].into_iter()));
        }
        let call = touch(holds.iter().copied());
        assert_eq!(call.key_count(), 8);
        let ids = permits.ids(two);
        let leases = permits.lease_keys(two).unwrap();
        assert_eq!(
            call.texts(),
            [
                "a",
                "a",
                "b",
                "b",
                "s",
                "redlock_sem:{s}",
                "p",
                &leases,
                "u:1",
                "",
                "u:2",
                "",
                "u:1",
                "",
                "u:2",
                &ids
            ]
        );
        let reply = Reply::List(vec![Reply::Int(1), Reply::Int(0)]);
        assert_eq!(touched(&reply), [true, false]);
    }
}
