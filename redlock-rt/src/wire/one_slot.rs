//! In a cluster all keys of a call must be in one slot, and so must sharded channels. This is checked
//! when a handle is made.
//!
//! Redisson wraps a name into braces to derive keys from it, but not a name that contains a `{`. So
//! most names are valid, and a few are invalid for all kinds that derive keys.

use super::keys;
use super::slot::{Slot, hashed};
use crate::name::LockName;

/// The kinds of objects with a name, as far as their keys differ.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Named {
    RLock,
    Fair,
    Fenced,
    Once,
    Spin,
    ReadWrite,
    Semaphore,
    Permits,
    Latch,
    Barrier,
    FencedValue,
}

impl Named {
    /// Keys and channels that show where all are that calls have beside the name: they wrap it as the
    /// one here does, or are where it is. Scripts build no others. The channel on which a client is told
    /// of its turns in fair queues is in no slot: it is not sharded.
    fn derived(self, name: &LockName) -> Vec<String> {
        let channel = match self {
            Self::Spin => return vec![],
            Self::FencedValue => return vec![keys::fence(name)],
            Self::RLock | Self::Fair | Self::Fenced | Self::Once => keys::lock_channel(name),
            Self::ReadWrite => keys::rw_channel(name),
            Self::Semaphore | Self::Permits => keys::semaphore_channel(name),
            Self::Barrier => keys::barrier_channel(name),
            // The name is always wrapped in its channel, and not in its keys.
            Self::Latch => return vec![keys::latch_mark(name), keys::latch_channel(name).into()],
        };
        vec![channel.into()]
    }

    /// Why this name cannot be used in a cluster: its keys are in several slots.
    pub(crate) fn torn(self, name: &LockName) -> Option<String> {
        // What is hashed, since different texts may be in one slot by chance.
        let of_name = hashed(name.as_str().as_bytes());
        let other = |key: &String| hashed(key.as_bytes()) != of_name;
        let elsewhere = self.derived(name).into_iter().find(other)?;
        let plain = name.as_str().replace(['{', '}'], "");
        let plain = match plain.trim().is_empty() {
            true => "name",
            false => &plain,
        };
        let tagged = match self {
            Self::Latch => String::new(),
            _ => format!(", or with one pair around what is hashed, such as {{{plain}}}"),
        };
        Some(format!(
            "in a cluster its keys must be in one slot: this name is in slot {}, and {elsewhere} is \
             in slot {}; write it without braces, such as {plain}{tagged}",
            Slot::of(name.as_str()),
            Slot::of(&elsewhere)
        ))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use proptest::prelude::*;

    use super::*;
    use crate::name::ClientId;
    use crate::wire::{self, Publish};
    use crate::wire::{
        Ask, BarrierWire, Call, FairQueue, FencedWire, Gate, Generation, Heartbeat, LatchWire,
        LockRecipe, Operation, PermitsWire, RLockWire, ReadWire, Recipe, Renewal, SemaphoreWire,
        WantedLease, WriteWire,
    };

    const ALL: [Named; 11] = [
        Named::RLock,
        Named::Fair,
        Named::Fenced,
        Named::Once,
        Named::Spin,
        Named::ReadWrite,
        Named::Semaphore,
        Named::Permits,
        Named::Latch,
        Named::Barrier,
        Named::FencedValue,
    ];
    const S: Duration = Duration::from_secs(1);

    fn name(name: &str) -> LockName {
        LockName::new(None, name).unwrap()
    }

    /// The names whose keys are in one slot for every kind, and those for no kind that derives any.
    const AWKWARD: [(&str, bool); 16] = [
        ("order", true),
        ("order:7", true),
        ("größe", true),
        ("{a}", true),
        ("{a}b", true),
        ("b{a}", true),
        ("{a}{b}", true),
        ("{a}}", true),
        ("{{a}}", true),
        ("a}", false),
        ("x}y", false),
        ("}x", false),
        ("x{y", false),
        ("{", false),
        ("{}", false),
        ("{}x{y}", false),
    ];

    #[test]
    fn a_name_without_a_usable_tag_is_refused() {
        for (text, right) in AWKWARD {
            for named in ALL {
                let braces = text.contains('{');
                let expected = match named {
                    Named::Spin => true,
                    Named::Latch => right && !braces,
                    _ => right,
                };
                let torn = named.torn(&name(text));
                assert_eq!(torn.is_none(), expected, "{named:?} {text}: {torn:?}");
            }
        }
    }

    #[test]
    fn the_error_shows_the_slots_and_a_name_that_would_do() {
        let torn = Named::RLock.torn(&name("x{y")).unwrap();
        let expected = "in a cluster its keys must be in one slot: this name is in slot 2740, and \
                        redisson_lock__channel:x{y is in slot 12840; write it without braces, such as xy, \
                        or with one pair around what is hashed, such as {xy}";
        assert_eq!(torn, expected);
        let torn = Named::Latch.torn(&name("a{b}c")).unwrap();
        assert!(
            torn.contains("redisson_countdownlatch__channel__{a{b}c}"),
            "{torn}"
        );
        assert!(
            torn.ends_with("write it without braces, such as abc"),
            "{torn}"
        );
        let torn = Named::Fair.torn(&name("{}")).unwrap();
        assert!(torn.contains("such as name,"), "{torn}");
    }

    #[test]
    fn what_the_error_proposes_is_accepted() {
        for (text, _) in AWKWARD {
            let plain = text.replace(['{', '}'], "");
            if plain.is_empty() {
                continue;
            }
            for named in ALL {
                assert_eq!(named.torn(&name(&plain)), None, "{named:?} {plain}");
                if named != Named::Latch {
                    let tagged = name(&format!("{{{plain}}}"));
                    assert_eq!(named.torn(&tagged), None, "{named:?} {tagged:?}");
                }
            }
        }
    }

    /// All calls that there are, by what has the name.
    fn calls(named: Named, name: &LockName) -> Vec<Call> {
        let owner = ClientId::random().hold_id(7);
        let operation = Operation {
            id: owner.clone(),
            noted: S,
        };
        let name = name.clone();
        let lock = |recipe: &dyn LockRecipe| {
            let mut calls = of_recipe(recipe, owner.as_str());
            calls.extend([recipe.force_release(), recipe.inspect()]);
            calls
        };
        match named {
            Named::RLock => lock(&RLockWire::new(name)),
            Named::Spin => lock(&RLockWire::spinning(name)),
            Named::Fenced => {
                let mut calls = lock(&FencedWire::new(name.clone(), Some(S)));
                calls.push(wire::ask_token(&name));
                calls
            }
            Named::Once => {
                let terms = wire::OnceTerms {
                    keep: S,
                    attempts: Some(1),
                    request: String::new(),
                };
                let once = wire::OnceWire::new(name, terms);
                let mut calls = of_recipe(&once, owner.as_str());
                for begin in [true, false] {
                    let mark = once.mark().unwrap();
                    match begin {
                        true => mark.begin(),
                        false => mark.set(b"result"),
                    }
                    calls.push(once.release(owner.as_str()));
                }
                calls
            }
            Named::Fair => {
                let fair = FairQueue::new(name.clone(), S);
                let mut calls = lock(&fair);
                calls.push(wire::fair_position(&name, Some(&owner)));
                let beat = Heartbeat {
                    queue: fair.queue().unwrap(),
                    left_over: &[1],
                    oldest: &[2],
                };
                calls.push(wire::beat(&ClientId::random(), &[beat]));
                calls
            }
            Named::ReadWrite => {
                let mut calls = lock(&ReadWire::new(name.clone()));
                calls.extend(lock(&WriteWire::new(name, S)));
                calls
            }
            Named::Semaphore => {
                let mut calls = of_recipe(&SemaphoreWire::new(name.clone(), 1, 1), owner.as_str());
                calls.extend([
                    wire::set_permits(&name, &operation, 1),
                    wire::add_permits(&name, &operation, 1),
                    wire::drain_permits(&name, &operation),
                    wire::available_permits(&name),
                ]);
                calls
            }
            Named::Permits => {
                let permits = PermitsWire::new(name, 1, 1);
                let id = permits.ids(owner.as_str());
                let mut calls = of_recipe(&permits, owner.as_str());
                calls.extend([
                    permits.inspect(),
                    permits.release_id(&operation, &id),
                    permits.update_lease(&id, S),
                    permits.set(&operation, 1, true),
                ]);
                calls
            }
            Named::Latch => {
                let latch = LatchWire::new(name);
                vec![
                    latch.set(1, None, &operation),
                    latch.count_down(&operation),
                    latch.delete(&operation),
                    latch.check(),
                ]
            }
            Named::Barrier => {
                let barriers = [false, true].map(|double| {
                    let wire = Arc::new(BarrierWire::new(name.clone(), double, 2));
                    let mut calls = of_recipe(&*wire, owner.as_str());
                    calls.push(wire.reset(&operation));
                    calls.push(Generation { wire, number: 1 }.check());
                    calls
                });
                barriers.concat()
            }
            Named::FencedValue => {
                vec![wire::exec_fenced(&name, "return 1", &[], 1, None)]
            }
        }
    }

    fn of_recipe(recipe: &dyn Recipe, owner: &str) -> Vec<Call> {
        let ask = Ask {
            owner,
            lease: S,
            waits: true,
            rest: Some(S),
            tokens: 1,
            under: Some(owner),
            steal: None,
        };
        let renewal = Renewal {
            recipe,
            owner: owner.to_owned(),
            wanted: WantedLease { lease: S, most: S },
        };
        let optional = [
            recipe.update(owner, renewal.wanted, 2),
            recipe.forget(owner, true),
            recipe.min_hold(owner, S),
        ];
        let calls = [
            recipe.acquire(&ask),
            recipe.release(owner),
            recipe.withdraw(owner),
            wire::renew(&[renewal]),
        ];
        calls
            .into_iter()
            .chain(optional.into_iter().flatten())
            .collect()
    }

    /// Each word of a call that is a key, is the start of keys that its script builds, or is a
    /// channel; not that of a client's turns.
    fn words_with_a_slot(call: &Call) -> Vec<&[u8]> {
        let keys = call.key_count();
        let words = call.words_for(Publish::InShard).enumerate();
        let known = ["redisson_", "redlock_"];
        words
            .filter(|(at, word)| {
                let derived = known.iter().any(|known| word.starts_with(known.as_bytes()));
                let is_key = *at < keys || derived || word.ends_with(b"rwlock_timeout");
                is_key && *word != keys::WAKE.as_bytes()
            })
            .map(|(_, word)| word)
            .collect()
    }

    fn name_with_braces() -> impl Strategy<Value = String> {
        "[ab{}:]{1,8}".prop_filter("a name", |name| !name.trim().is_empty())
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]

        /// If a name is accepted, no call of it has words in two slots. If it is refused, one has words of which
        /// different parts are hashed, which are in two slots but for a chance.
        #[test]
        fn all_words_of_a_call_are_in_one_slot(text in name_with_braces(), at in 0..ALL.len()) {
            let (named, name) = (ALL[at], name(&text));
            let mut torn = false;
            for call in calls(named, &name) {
                let of_name = hashed(name.as_str().as_bytes());
                torn |= words_with_a_slot(&call).iter().any(|word| hashed(word) != of_name);
            }
            prop_assert_eq!(torn, named.torn(&name).is_some(), "{:?} {:?}", named, text);
        }
    }
}
