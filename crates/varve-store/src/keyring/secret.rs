//! Secrets that open a key: a passphrase or the contents of a file.

use argon2::{Algorithm, Argon2, Params, Version};
use serde::{Deserialize, Serialize};
use varve_log::LockedMemory;
use zeroize::Zeroizing;

use super::KeyError;

/// The highest cost of one key: 4 GiB, and some minutes.
const MEMORY_KIB_MAX: u32 = 4 << 20;
const PASSES_MAX: u32 = 64;
const LANES_MAX: u32 = 64;
/// With less memory a passphrase would be cheap to guess.
const MEMORY_KIB_CHOSEN_MIN: u32 = 8 << 10;

/// A secret that opens a store.
#[derive(Clone)]
pub enum Secret {
    /// A text that a person remembers.
    Passphrase(Zeroizing<String>),
    /// The contents of a file: at least 32 bytes that nobody can guess.
    KeyFile(Zeroizing<Vec<u8>>),
}

/// A key that wraps keys.
pub(super) type WrappingKey = LockedMemory<[u8; 32]>;

/// The cost of trying one passphrase: Argon2id's settings (RFC 9106).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct PassphraseCost {
    pub memory_kib: u32,
    /// The passes over the memory.
    pub passes: u32,
    pub lanes: u32,
}

impl PassphraseCost {
    /// The most work that a key may cost, in KiB.
    pub(super) const WORK_KIB_MAX: u64 =
        Self { memory_kib: MEMORY_KIB_MAX, passes: PASSES_MAX, lanes: 1 }.work();

    /// Returns the memory that is filled in all passes together, in KiB. The time grows with it.
    pub(super) const fn work(self) -> u64 {
        self.memory_kib as u64 * self.passes as u64
    }
}

impl Default for PassphraseCost {
    /// RFC 9106's second recommendation: 64 MiB, three passes, four lanes.
    fn default() -> Self {
        Self { memory_kib: 64 << 10, passes: 3, lanes: 4 }
    }
}

impl PassphraseCost {
    /// Makes settings that a user chose; `None` unless the memory is from 8 MiB to 4 GiB, and the
    /// passes are from 1 to 64.
    #[must_use]
    pub fn chosen(memory_kib: u32, passes: u32) -> Option<Self> {
        let cost = Self { memory_kib, passes, ..Self::default() };
        (memory_kib >= MEMORY_KIB_CHOSEN_MIN && passes > 0 && cost.is_bounded()).then_some(cost)
    }

    /// Returns true if the cost is within the bounds that a user can be expected to wait for.
    pub(super) fn is_bounded(self) -> bool {
        self.memory_kib <= MEMORY_KIB_MAX && self.passes <= PASSES_MAX && self.lanes <= LANES_MAX
    }
}

impl Secret {
    pub(super) fn what(&self) -> &'static str {
        match self {
            Self::Passphrase(_) => "passphrase",
            Self::KeyFile(_) => "key file",
        }
    }

    /// Refuses a secret that is too short to be safe.
    pub(super) fn check(&self) -> Result<(), KeyError> {
        let (good, advice) = match self {
            Self::Passphrase(passphrase) => (!passphrase.is_empty(), "choose one with several words"),
            Self::KeyFile(contents) => (contents.len() >= 32, "it needs at least 32 random bytes"),
        };
        if good { Ok(()) } else { Err(KeyError::TooShort { what: self.what(), advice }) }
    }
}

/// Derives the wrapping key of a passphrase; `None` if the settings are out of bounds.
pub(super) fn passphrase_key(passphrase: &str, salt: &[u8], cost: PassphraseCost) -> Option<WrappingKey> {
    if !cost.is_bounded() {
        return None;
    }
    let settings = Params::new(cost.memory_kib, cost.passes, cost.lanes, Some(32)).ok()?;
    let mut key = WrappingKey::default();
    Argon2::new(Algorithm::Argon2id, Version::V0x13, settings)
        .hash_password_into(passphrase.as_bytes(), salt, &mut *key)
        .ok()?;
    Some(key)
}

pub(super) fn key_file_key(contents: &[u8], salt: &[u8]) -> WrappingKey {
    let mut hasher = blake3::Hasher::new_derive_key("varve 1 key file");
    hasher.update(salt).update(contents);
    WrappingKey::filled(|key| hasher.finalize_xof().fill(key))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chosen_settings_are_bounded() {
        assert_eq!(PassphraseCost::chosen(64 << 10, 3), Some(PassphraseCost::default()));
        assert!(
            PassphraseCost::chosen(8 << 10, 1).is_some() && PassphraseCost::chosen(4 << 20, 64).is_some()
        );
        for (memory_kib, passes) in [(8191, 3), ((4 << 20) + 1, 3), (65536, 0), (65536, 65)] {
            assert_eq!(PassphraseCost::chosen(memory_kib, passes), None);
        }
    }

    /// RFC 9106, appendix: the reference implementation's vector for version 0x13, one lane.
    #[test]
    fn the_derivations_are_those_of_the_format() {
        let key = passphrase_key(
            "password",
            b"somesalt",
            PassphraseCost { memory_kib: 65536, passes: 2, lanes: 1 },
        );
        let expected = "09316115d5cf24ed5a15a31a3ba326e5cf32edc24702987c02b6566f61913cf7";
        assert_eq!(varve_block::to_hex(&**key.as_ref().unwrap()), expected);
        let salt: [u8; 16] = std::array::from_fn(|n| n.to_le_bytes()[0]);
        let printed = passphrase_key(
            "correct horse",
            &salt,
            PassphraseCost { memory_kib: 8192, ..PassphraseCost::default() },
        );
        let vector = format!("\nwrapping key = {}\n", varve_block::to_hex(&**printed.as_ref().unwrap()));
        assert!(
            include_str!("../../FORMAT.md").contains(&vector),
            "the format's page has another wrapping key"
        );
        assert_eq!(
            *key_file_key(b"contents", b"salt"),
            blake3::derive_key("varve 1 key file", b"saltcontents")
        );
    }
}
