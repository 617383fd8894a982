//! The keys that a secret is tried on, and their order.
//!
//! An attacker with write access to `keys/` can add any number of files, each of which demands the
//! highest cost of a key. So the cheapest keys are tried first, and all keys that one passphrase is
//! tried on cost no more than [`WORK_KIB_MAX`] together. Trying a key file costs next to nothing.

use std::collections::BTreeMap;

use varve_world::FileName;

use super::secret::{PassphraseCost, Secret};
use super::slot::KeySlot;

/// The most memory that is filled, in all passes and for all keys that one passphrase is tried on,
/// in KiB: 320 GiB. That is one key of the highest cost, which a store may have, and 64 GiB for
/// others: more than 64 keys of five times the usual cost.
const WORK_KIB_MAX: u64 = PassphraseCost::WORK_KIB_MAX + (64 << 20);
/// The work that is done without a warning, in KiB: less than half a minute.
const WORK_KIB_SILENT: u64 = 16 << 20;

/// The keys that a secret is tried on.
pub(super) struct KeyTries<'a> {
    /// The cheapest first.
    pub(super) slots: Vec<&'a KeySlot>,
    /// The number of the key before which a warning is due: much was tried in vain, and much is to
    /// come.
    pub(super) loud_from: Option<usize>,
    /// The keys of the secret's kind that are not tried, because they cost too much.
    pub(super) left: Vec<FileName>,
}

impl<'a> KeyTries<'a> {
    /// Chooses from these keys.
    pub(super) fn of(sound: &'a BTreeMap<FileName, KeySlot>, secret: &Secret) -> Self {
        let mut of_kind: Vec<_> = sound.values().filter(|slot| slot.is_for(secret)).collect();
        of_kind.sort_by_key(|slot| slot.work());
        let may_cost = |slot: &KeySlot| slot.entry.passphrase.is_none_or(PassphraseCost::is_bounded);
        let (mut slots, mut left): (Vec<_>, Vec<_>) = of_kind.into_iter().partition(|slot| may_cost(slot));
        left.extend(slots.split_off(count_within(&slots, WORK_KIB_MAX)));
        let silent_count = count_within(&slots, WORK_KIB_SILENT);
        // The owner of a single key knows its cost.
        let is_loud = slots.len() > 1 && silent_count < slots.len();
        let left = left.into_iter().map(|slot| slot.entry.file()).collect();
        Self { slots, loud_from: is_loud.then_some(silent_count), left }
    }
}

/// Returns the number of slots, from the first on, that cost no more than `work_kib_max` together.
fn count_within(slots: &[&KeySlot], work_kib_max: u64) -> usize {
    let mut work = 0_u64;
    let is_within = |slot: &&&KeySlot| {
        work = work.saturating_add(slot.work());
        work <= work_kib_max
    };
    slots.iter().take_while(is_within).count()
}

#[cfg(test)]
mod tests {
    use zeroize::Zeroizing;

    use super::*;

    const USUAL: (u32, u32) = (64 << 10, 3);
    const DEAREST: (u32, u32) = (4 << 20, 64);

    fn slots(costs: impl IntoIterator<Item = (u32, u32)>) -> BTreeMap<FileName, KeySlot> {
        let slot = |(number, (memory_kib, passes)): (usize, (u32, u32))| {
            let (salt, wrapped) = ("00".repeat(16), "00".repeat(48));
            let cost = format!("memory_kib = {memory_kib}\npasses = {passes}\nlanes = 4");
            let text = format!("kind = \"passphrase\"\n{cost}\nsalt = \"{salt}\"\nwrapped = \"{wrapped}\"\n");
            let file = FileName::new(&format!("keys/{number:04}.toml")).unwrap();
            (file.clone(), KeySlot::parse(&file, text.as_bytes()).unwrap())
        };
        costs.into_iter().enumerate().map(slot).collect()
    }

    /// Returns the number of keys that are tried, of those that are left, and of those that are
    /// tried without a warning.
    fn tried(costs: impl IntoIterator<Item = (u32, u32)>) -> (usize, usize, Option<usize>) {
        let slots = slots(costs);
        let tries = KeyTries::of(&slots, &Secret::Passphrase(Zeroizing::new("x".into())));
        let work: u64 = tries.slots.iter().map(|slot| slot.work()).sum();
        assert!(work <= WORK_KIB_MAX && tries.slots.is_sorted_by_key(|slot| slot.work()));
        (tries.slots.len(), tries.left.len(), tries.loud_from)
    }

    #[test]
    fn every_key_that_a_store_may_have_is_tried() {
        assert_eq!(tried([DEAREST]), (1, 0, None), "whoever chose it knows");
        assert_eq!(tried([DEAREST, USUAL]), (2, 0, Some(1)));
        assert_eq!(tried([USUAL; 64]), (64, 0, None));
        assert_eq!(tried([(1 << 20, 1); 64].into_iter().chain([DEAREST])), (65, 0, Some(16)));
        assert_eq!(tried([(1 << 20, 4); 64]), (64, 0, Some(4)));
    }

    #[test]
    fn made_up_keys_cost_no_more_than_one_that_a_store_may_have() {
        assert_eq!(tried([DEAREST; 64].into_iter().chain([USUAL])), (2, 63, Some(1)));
        assert_eq!(tried([(4 << 20, 1); 4000].into_iter().chain([USUAL])), (80, 3921, Some(4)));
        // A key beyond the highest cost is not tried at all.
        assert_eq!(tried([(u32::MAX, 1), (1, 65), USUAL, (u32::MAX, u32::MAX)]), (1, 3, None));
        let slots = slots([USUAL; 3]);
        let tries = KeyTries::of(&slots, &Secret::KeyFile(Zeroizing::new(vec![7; 32])));
        assert!(tries.slots.is_empty() && tries.left.is_empty(), "none is of that kind");
    }
}
