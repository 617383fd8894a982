//! Holds: reasons for which a snapshot must not be forgotten. Pure.
//!
//! | number | field        | value                                                                                      |
//! |-------:|--------------|--------------------------------------------------------------------------------------------|
//! |      1 | label        | UTF-8: the reason, chosen by the user                                                      |
//! |      2 | set          | signed varint: the time when it was set, nanoseconds since 1970-01-01 UTC                  |
#![deny(clippy::unwrap_used, clippy::indexing_slicing, clippy::arithmetic_side_effects)]

use varve_block::has_kind;
use varve_content::{FieldError, FieldReader, FieldWriter, UnknownFields};
use varve_world::Timestamp;

/// The longest label, in bytes.
const LABEL_BYTES_MAX: usize = 200;

/// A reason for which a snapshot must not be forgotten.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hold {
    /// The reason. A snapshot has at most one hold with the same label.
    pub label: String,
    /// The time at which the hold was set.
    pub set: Timestamp,
    /// Fields that this version does not know.
    pub unknown: UnknownFields,
}

/// The label of a hold is invalid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{label:?} is no label of a hold: it needs 1 to {LABEL_BYTES_MAX} bytes without control characters")]
pub struct HoldLabelError {
    pub label: String,
}

has_kind!(HoldLabelError: _ => Usage);

impl Hold {
    /// A hold that is set at this time.
    ///
    /// # Errors
    /// [`HoldLabelError`]
    pub fn new(label: &str, set: Timestamp) -> Result<Self, HoldLabelError> {
        if label.is_empty() || label.len() > LABEL_BYTES_MAX || label.chars().any(char::is_control) {
            return Err(HoldLabelError { label: label.into() });
        }
        Ok(Self { label: label.into(), set, unknown: UnknownFields::default() })
    }

    /// Encodes the fields of the record.
    pub(crate) fn encode(&self) -> Vec<u8> {
        FieldWriter::new().bytes(1, self.label.as_bytes()).signed(2, self.set.0).finish_with(&self.unknown)
    }

    /// Decodes the fields of a record.
    ///
    /// # Errors
    /// [`FieldError`].
    pub(crate) fn decode(fields: &[u8]) -> Result<Self, FieldError> {
        let mut hold = Self { label: String::new(), set: Timestamp(0), unknown: UnknownFields::default() };
        for field in FieldReader::new(fields) {
            let field = field?;
            match field.number {
                1 => hold.label = field.text()?.into(),
                2 => hold.set = Timestamp(field.signed()?),
                _ => hold.unknown.keep(&field),
            }
        }
        Ok(hold)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hold_survives_the_round_trip() {
        let hold = Hold::new("audit 2026", Timestamp(-7)).unwrap();
        assert_eq!(Hold::decode(&hold.encode()), Ok(hold));
        assert!(Hold::decode(&[1, 1, 0xff]).is_err(), "no UTF-8");
        let later = [1, 1, b'x', 2, 1, 0, 9, 1, 7];
        assert_eq!(Hold::decode(&later).unwrap().encode(), later, "fields of a later version stay");
    }

    #[test]
    fn a_label_is_short_printable_text() {
        assert!(Hold::new(&"x".repeat(LABEL_BYTES_MAX), Timestamp(0)).is_ok());
        for label in [String::new(), "a\nb".into(), "x".repeat(LABEL_BYTES_MAX + 1)] {
            assert_eq!(Hold::new(&label, Timestamp(0)), Err(HoldLabelError { label }));
        }
    }
}
