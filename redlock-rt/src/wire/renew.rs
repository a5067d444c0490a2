//! The watchdog's call, for holds of every kind.

use super::recipe::{Recipe, WantedLease};
use super::script::{Call, millis, script};

script!(RENEW = "undeclared_keys" + "permit_ids" + "rw_leases" + "loss" + "renew");

/// A hold whose lease is to be extended; a lease of zero only verifies.
pub(crate) struct Renewal<'a> {
    pub(crate) recipe: &'a dyn Recipe,
    pub(crate) owner: String,
    pub(crate) wanted: WantedLease,
}

/// Extends many leases in one call. Returns a list of [`HoldReply`](super::HoldReply).
pub(crate) fn renew(holds: &[Renewal<'_>]) -> Call {
    let mut call = Call::new(&RENEW);
    for hold in holds {
        call = call.key(hold.recipe.name().as_str());
    }
    for Renewal {
        recipe,
        owner,
        wanted,
    } in holds
    {
        let lease_keys = recipe.lease_keys(owner);
        call = call
            .number(millis(wanted.lease))
            .arg(&recipe.field(owner))
            .arg(lease_keys.as_deref().unwrap_or_default())
            .arg(recipe.permit_ids(owner).as_deref().unwrap_or_default())
            .number(millis(wanted.most));
        if lease_keys.is_some() {
            call = call.reading_more();
        }
    }
    call
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::name::LockName;
    use crate::wire::RLockWire;
    use crate::wire::script::headers::assert_has_preludes;

    #[test]
    fn keys_come_first() {
        let wire = |name| RLockWire::new(LockName::new(None, name).unwrap());
        let (a, b) = (wire("a"), wire("b"));
        let renewal = |recipe, owner: &str, lease| Renewal {
            recipe,
            owner: owner.to_owned(),
            wanted: WantedLease {
                lease,
                most: Duration::from_secs(40),
            },
        };
        let call = renew(&[
            renewal(&a, "u:1", Duration::from_secs(30)),
            renewal(&b, "u:2", Duration::ZERO),
        ]);
        assert_eq!(
            call.texts(),
            [
                "a", "b", "30000", "u:1", "", "", "40000", "0", "u:2", "", "", "40000"
            ]
        );
        assert_eq!(call.key_count(), 2);
        assert_has_preludes(&call);
    }
}
