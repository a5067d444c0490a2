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
        call = call.key(hold.recipe.renewed_key());
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
    use crate::wire::script::headers::assert_has_preludes;
    use crate::wire::{BarrierWire, PermitsWire, RLockWire};

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

    /// The leases of permits have the TTL of their semaphore, those of parties one of their own.
    #[test]
    fn the_ttl_of_parties_follows_no_other_key() {
        let name = || LockName::new(None, "n").unwrap();
        let barrier = |double| BarrierWire::new(name(), double, 2);
        let (cyclic, double) = (barrier(false), barrier(true));
        let permits = PermitsWire::new(name(), 1, 0);
        let (parties, inside) = (
            "redlock_barrier_parties:{n}",
            "redlock_double_barrier_parties:{n}",
        );
        let kinds: [(&dyn Recipe, _, _); 3] = [
            (&cyclic, parties, parties),
            (&double, inside, inside),
            (&permits, "n", "{n}:timeout"),
        ];
        for (recipe, key, leases) in kinds {
            let call = renew(&[Renewal {
                recipe,
                owner: "u:1".to_owned(),
                wanted: WantedLease {
                    lease: Duration::from_secs(30),
                    most: Duration::from_secs(30),
                },
            }]);
            let texts = call.texts();
            assert_eq!((call.key_count(), texts[0], texts[3]), (1, key, leases));
        }
    }
}
