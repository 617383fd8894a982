//! The origin of a snapshot: the key that it was added with, and a code that proves it.
//! `docs/internals/format.md`, section 5.
//!
//! | number | field        | value                                                                                      |
//! |-------:|--------------|--------------------------------------------------------------------------------------------|
//! |      1 | key          | UTF-8: the id of the key; absent for an early write-only key                               |
//! |      2 | role         | UTF-8: its role, as in its file                                                            |
//! |      3 | later        | signed varint: the time of a later snapshot of the series that was there before; absent if there was none |
//! |      4 | code         | `BLAKE3(origin key, id of the snapshot ‖ all other fields)`                                |
#![deny(clippy::unwrap_used, clippy::indexing_slicing, clippy::arithmetic_side_effects)]

use varve_content::{FieldError, FieldReader, FieldWriter, UnknownFields};
use varve_store::{Origin, Vault};
use varve_world::Timestamp;

use crate::catalog::snapshot_id::SnapshotId;

const CODE_BYTES: usize = 32;

/// The origin of one snapshot. A catalog that was read with the store's keys has only origins whose
/// codes match.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OriginRecord {
    pub origin: Origin,
    /// Set for a backdated snapshot: when it was added, its series had a snapshot of this later
    /// time.
    pub later: Option<Timestamp>,
    code: [u8; CODE_BYTES],
    unknown: UnknownFields,
}

impl OriginRecord {
    /// The record of a snapshot with this origin. `None` if the key of the store cannot prove it.
    pub(crate) fn prove(
        vault: &Vault,
        id: SnapshotId,
        origin: Origin,
        later: Option<Timestamp>,
    ) -> Option<Self> {
        let mut record = Self { origin, later, code: [0; CODE_BYTES], unknown: UnknownFields::default() };
        record.code = record.code_of(vault, id)?;
        Some(record)
    }

    /// Returns whether the code is the one that the origin's key makes for this snapshot.
    pub(crate) fn is_proven(&self, vault: &Vault, id: SnapshotId) -> bool {
        self.code_of(vault, id) == Some(self.code)
    }

    fn code_of(&self, vault: &Vault, id: SnapshotId) -> Option<[u8; CODE_BYTES]> {
        vault.origin_code(&self.origin, &[&id.0, &self.head().finish_with(&self.unknown)])
    }

    fn head(&self) -> FieldWriter {
        let key = (!self.origin.key.is_empty()).then_some(self.origin.key.as_bytes());
        FieldWriter::new()
            .optional_bytes(1, key)
            .bytes(2, self.origin.role.as_bytes())
            .optional_signed(3, self.later.map(|time| time.0))
    }

    /// Encodes the fields of the record.
    pub(crate) fn encode(&self) -> Vec<u8> {
        self.head().bytes(4, &self.code).finish_with(&self.unknown)
    }

    /// Decodes the fields of a record. The code is not checked.
    pub(crate) fn decode(fields: &[u8]) -> Result<Self, FieldError> {
        let mut origin = Origin { role: String::new(), key: String::new() };
        let (mut later, mut code, mut unknown) = (None, [0; CODE_BYTES], UnknownFields::default());
        for field in FieldReader::new(fields) {
            let field = field?;
            match field.number {
                1 => origin.key = field.text()?.into(),
                2 => origin.role = field.text()?.into(),
                3 => later = Some(Timestamp(field.signed()?)),
                4 => code = field.bytes.try_into().map_err(|_| field.unexpected())?,
                _ => unknown.keep(&field),
            }
        }
        Ok(Self { origin, later, code, unknown })
    }
}

#[cfg(test)]
#[allow(clippy::arithmetic_side_effects)]
pub(crate) mod tests {
    use super::*;

    /// The record of a write-only key, with a code that proves nothing.
    pub(crate) fn unproven(key: &str, later: Option<i64>) -> OriginRecord {
        let origin = Origin { role: "write-only".into(), key: key.into() };
        let later = later.map(Timestamp);
        OriginRecord { origin, later, code: [7; CODE_BYTES], unknown: UnknownFields::default() }
    }

    #[test]
    fn a_record_survives_the_round_trip() {
        for record in [unproven("0123456789abcdef", None), unproven("", Some(-5))] {
            assert_eq!(OriginRecord::decode(&record.encode()).unwrap(), record);
        }
        let later = FieldWriter::new().bytes(9, b"later").finish();
        let bytes = [unproven("a", Some(1)).encode(), later].concat();
        assert_eq!(OriginRecord::decode(&bytes).unwrap().encode(), bytes);
        assert!(OriginRecord::decode(&FieldWriter::new().bytes(4, b"short").finish()).is_err());
    }
}
