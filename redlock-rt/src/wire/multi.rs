//! Several RLocks in one call.

use std::time::Duration;

use super::recipe::Recipe;
use super::reply::{Malformed, Reply};
use super::script::{Call, millis, script};

script!(ACQUIRE_ALL = "lock_hash" + "multi_acquire");

/// Whether locks of this kind may be taken by [`acquire_all`].
pub(crate) fn is_taken_together(recipe: &dyn Recipe) -> bool {
    recipe.profile().kind == super::profile::RLOCK.kind
}

/// Takes all of these locks or none, each for its own owner. [`first_held`] reads the reply.
pub(crate) fn acquire_all<'a>(
    holds: impl Iterator<Item = (&'a dyn Recipe, &'a str)> + Clone,
    lease: Duration,
) -> Call {
    let mut call = Call::new(&ACQUIRE_ALL);
    for (recipe, _) in holds.clone() {
        call = call.key(recipe.name().as_str());
    }
    call = call.number(millis(lease));
    for (_, owner) in holds {
        call = call.arg(owner);
    }
    call
}

/// Reads the reply to [`acquire_all`] of this many locks. `None`: all were taken. Else none was, and another owner
/// has the lock at this index.
pub(crate) fn first_held(reply: Reply, locks: usize) -> Result<Option<usize>, Malformed> {
    match reply {
        Reply::Nil => Ok(None),
        Reply::Int(number @ 1..) => match usize::try_from(number - 1) {
            Ok(index) if index < locks => Ok(Some(index)),
            _ => Err(Malformed(reply)),
        },
        other => Err(Malformed(other)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::name::LockName;
    use crate::wire::RLockWire;

    #[test]
    fn keys_come_first_and_owners_in_their_order() {
        let wire = |name| RLockWire::new(LockName::new(None, name).unwrap());
        let (a, b) = (wire("a"), wire("b"));
        let (one, two) = ("u:1", "u:2");
        let holds: [(&dyn Recipe, _); 2] = [(&a, one), (&b, two)];
        let call = acquire_all(holds.into_iter(), Duration::from_secs(1));
        let words = call.texts();
        assert_eq!(words, ["a", "b", "1000", "u:1", "u:2"]);
        assert_eq!(call.key_count(), 2);
    }

    #[test]
    fn replies() {
        let read = |reply| first_held(reply, 2);
        assert_eq!(read(Reply::Nil), Ok(None));
        assert_eq!(read(Reply::Int(2)), Ok(Some(1)));
        assert!(read(Reply::Int(0)).is_err());
        assert!(read(Reply::Int(3)).is_err());
        assert!(read(Reply::Text("OK".into())).is_err());
    }
}
