//! A set of slots.

use crate::wire::Slot;

const WORDS: usize = Slot::COUNT as usize / 64;

/// A set of slots: no memory while it is empty.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct SlotSet(Vec<u64>);

impl SlotSet {
    pub(crate) fn insert(&mut self, slot: Slot) {
        if self.0.is_empty() {
            self.0.resize(WORDS, 0);
        }
        let (word, bit) = place(slot);
        self.0[word] |= bit;
    }

    pub(crate) fn contains(&self, slot: Slot) -> bool {
        let (word, bit) = place(slot);
        self.0.get(word).is_some_and(|word| word & bit != 0)
    }
}

fn place(slot: Slot) -> (usize, u64) {
    let number = usize::from(slot.number());
    (number / 64, 1 << (number % 64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_has_what_was_added() {
        let slot = |number| Slot::new(number).unwrap();
        let mut set = SlotSet::default();
        assert!(!set.contains(slot(0)));
        for number in [0, 63, 64, 16383] {
            set.insert(slot(number));
        }
        let has = [0, 1, 63, 64, 65, 16382, 16383].map(|number| set.contains(slot(number)));
        assert_eq!(has, [true, false, true, true, false, false, true]);
    }
}
