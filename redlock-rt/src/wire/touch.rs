//! The write behind which replicas are waited for.

use super::recipe::Recipe;
use super::reply::Reply;
use super::script::{Call, script};
use crate::name::HoldId;

script!(TOUCH = "touch");

/// Writes to the keys of these holds without changing them.
pub(crate) fn touch<'a>(holds: impl Iterator<Item = (&'a dyn Recipe, &'a HoldId)> + Clone) -> Call {
    let keys = holds.clone().map(|(recipe, _)| recipe.name().as_str());
    let call = keys.fold(Call::new(&TOUCH), Call::key);
    holds.fold(call, |call, (recipe, owner)| call.arg(&recipe.field(owner)))
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
    use crate::wire::RLockWire;
    use crate::wire::script::headers::assert_agrees;

    #[test]
    fn keys_and_replies_are_in_one_order() {
        let wire = |name| RLockWire::new(LockName::new(None, name).unwrap());
        let (a, b) = (wire("a"), wire("b"));
        let (one, two) = (HoldId::from_wire("u:1"), HoldId::from_wire("u:2"));
        let holds: [(&dyn Recipe, _); 2] = [(&a, &one), (&b, &two)];
        assert_agrees(&touch(holds[..1].iter().copied()));
        let call = touch(holds.iter().copied());
        assert_eq!(call.words().collect::<Vec<_>>(), ["a", "b", "u:1", "u:2"]);
        let reply = Reply::List(vec![Reply::Int(1), Reply::Int(0)]);
        assert_eq!(touched(&reply), [true, false]);
    }
}
