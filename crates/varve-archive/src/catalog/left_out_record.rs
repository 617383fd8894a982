//! Records of the parts of an image that were left out, and of the parts that were kept although
//! they were to be left out. Pure.
//!
//! | number | field        | value                                                                                      |
//! |-------:|--------------|--------------------------------------------------------------------------------------------|
//! |      1 | volume       | UTF-8: the volume, as `p1`                                                                 |
//! |      2 | what         | UTF-8: `swap`, `free blocks`, the path of a file, or a part that is not on the disk        |
//! |      3 | bytes        | the number of bytes that were archived as zeros                                            |
//! |      4 | why          | UTF-8: the proof that they are not needed                                                  |
//! |      5 | kept_because | UTF-8: the reason why it was kept; absent if it was left out                                |
#![deny(clippy::unwrap_used, clippy::indexing_slicing, clippy::arithmetic_side_effects)]

use varve_content::{Field, FieldError, FieldReader, FieldWriter, UnknownFields};
use varve_image::LeftOut;

/// Upper bound on the records that are read, and on the records that are written, for one snapshot.
pub(crate) const RECORD_COUNT_MAX: usize = 257;
/// Names and reasons are cut to this many characters. A malicious disk may hold longer ones.
const CHARS_MAX: usize = 400;

/// One part of an image that was left out, or kept although it was to be left out.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LeftOutRecord {
    /// The volume, as `p1`. Empty if the record covers several volumes.
    pub volume: String,
    /// `swap`, `free blocks`, the path of a file, or a part of the image file or of the machine
    /// that is not on the disk.
    pub what: String,
    /// Bytes that were archived as zeros.
    pub bytes: u64,
    /// The proof that these bytes are not needed.
    pub why: String,
    /// The contradiction that prevented leaving the part out.
    pub kept_because: Option<String>,
    /// Fields that this version does not know.
    pub unknown: UnknownFields,
}

impl LeftOutRecord {
    /// Makes the records for the parts that were found in a disk. If there are too many, the last
    /// record sums up the remaining parts.
    #[must_use]
    pub fn list(found: &LeftOut) -> Vec<Self> {
        let cut = |text: &str| text.chars().take(CHARS_MAX).collect::<String>();
        let mut records: Vec<_> = found
            .parts()
            .iter()
            .map(|part| Self {
                volume: cut(&part.volume),
                what: cut(&part.what),
                bytes: part.bytes,
                why: cut(&part.why),
                kept_because: part.kept_because.as_deref().map(cut),
                unknown: UnknownFields::default(),
            })
            .collect();
        if records.len() >= RECORD_COUNT_MAX {
            let rest = records.split_off(RECORD_COUNT_MAX.saturating_sub(1));
            let bytes = rest.iter().map(|record| record.bytes).fold(0, u64::saturating_add);
            let what = format!("{} more", rest.len());
            records.push(Self { what, bytes, why: "not listed one by one".into(), ..Self::default() });
        }
        records
    }

    /// Makes the record of a part of the image file, or of the machine, that is not on the disk,
    /// and so was not archived.
    #[must_use]
    pub fn beside_the_disk(what: &str, why: &str) -> Self {
        let cut = |text: &str| text.chars().take(CHARS_MAX).collect();
        Self { what: cut(what), why: cut(why), ..Self::default() }
    }

    /// Returns true for a part of the image file, or of the machine, that is not on the disk.
    #[must_use]
    pub fn is_beside_the_disk(&self) -> bool {
        self.volume.is_empty() && self.bytes == 0 && self.kept_because.is_none()
    }

    /// Encodes the fields of the record.
    pub(crate) fn encode(&self) -> Vec<u8> {
        FieldWriter::new()
            .bytes(1, self.volume.as_bytes())
            .bytes(2, self.what.as_bytes())
            .number(3, self.bytes)
            .bytes(4, self.why.as_bytes())
            .optional_bytes(5, self.kept_because.as_deref().map(str::as_bytes))
            .finish_with(&self.unknown)
    }

    /// Decodes the fields of a record.
    ///
    /// # Errors
    /// [`FieldError`].
    pub(crate) fn decode(fields: &[u8]) -> Result<Self, FieldError> {
        let mut record = Self::default();
        for field in FieldReader::new(fields) {
            record.take(&field?)?;
        }
        Ok(record)
    }

    fn take(&mut self, field: &Field<'_>) -> Result<(), FieldError> {
        match field.number {
            1 => self.volume = field.text()?.into(),
            2 => self.what = field.text()?.into(),
            3 => self.bytes = field.value()?,
            4 => self.why = field.text()?.into(),
            5 => self.kept_because = Some(field.text()?.into()),
            _ => self.unknown.keep(field),
        }
        Ok(())
    }
}

#[cfg(test)]
#[allow(clippy::arithmetic_side_effects)]
pub(crate) mod tests {
    use proptest::prelude::*;

    use super::*;

    /// One part that was left out, and one that was kept.
    pub(crate) fn records() -> Vec<LeftOutRecord> {
        let (volume, what) = ("p2".to_owned(), "swap".to_owned());
        let (bytes, why) = (1 << 30, "a header".into());
        let left_out = LeftOutRecord { volume, what, bytes, why, ..LeftOutRecord::default() };
        let kept_because = Some("it has a signature of ZFS".into());
        let kept = LeftOutRecord { bytes: 0, why: String::new(), kept_because, ..left_out.clone() };
        vec![left_out, kept]
    }

    #[test]
    fn a_record_survives_the_round_trip() {
        for record in records() {
            assert_eq!(LeftOutRecord::decode(&record.encode()), Ok(record));
        }
        assert_eq!(LeftOutRecord::decode(&[]), Ok(LeftOutRecord::default()));
        assert!(LeftOutRecord::decode(&[1, 1, 0xff]).is_err(), "no UTF-8");
        let later = [&[1, 2, b'p', b'1'][..], &[9, 1, 7]].concat();
        let again = LeftOutRecord::decode(&later).unwrap().encode();
        assert!(again.ends_with(&[9, 1, 7]), "what a later version has written stays");
    }

    proptest! {
        #[test]
        fn no_record_panics(place in any::<usize>(), byte in any::<u8>(), cut in any::<usize>()) {
            let mut fields = records().remove(1).encode();
            let place = place % fields.len();
            fields[place] ^= byte;
            fields.truncate(cut % (fields.len() + 1));
            let _ = LeftOutRecord::decode(&fields);
        }
    }
}
