//! Records of fields: the encoding of nodes, snapshots and the catalog's root. Pure.
//!
//! ```text
//! record  │ length: varint │ number: 1 byte │ length: varint │ bytes │ number │ length │ bytes │ …
//!                          └─────────────── fields, in ascending order of their numbers ───────┘
//! ```
//!
//! A number within a field is a varint: unsigned LEB128 of at most 10 bytes. A signed number `n` is
//! the varint of `(n << 1) ^ (n >> 63)`. The fields are listed in
//! `docs/internals/format.md`, section 5.

use varve_block::{has_kind, to_usize};

/// The length of the longest varint, in bytes.
const VARINT_BYTES_MAX: usize = 10;
/// Bits of a number in each byte of a varint.
const VARINT_BITS: u32 = 7;
/// Set in each byte of a varint except the last.
const VARINT_MORE: u8 = 0x80;

/// Writes the fields of one record.
#[derive(Debug, Clone, Default)]
pub struct FieldWriter {
    fields: Vec<u8>,
    last_number: u8,
}

impl FieldWriter {
    /// A record without fields.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Appends a field of bytes. A number may occur several times.
    ///
    /// # Panics
    /// If a field with a greater number was written before.
    #[must_use]
    pub fn bytes(mut self, number: u8, bytes: &[u8]) -> Self {
        self.begin(number, bytes.len() as u64);
        self.fields.extend_from_slice(bytes);
        self
    }

    /// Appends a field with one number.
    ///
    /// # Panics
    /// As [`bytes`](Self::bytes).
    #[must_use]
    pub fn number(mut self, number: u8, value: u64) -> Self {
        let (bytes, length) = encode_varint(value);
        self.begin(number, length as u64);
        self.fields.extend(bytes.iter().take(length));
        self
    }

    /// Appends a field with one signed number.
    ///
    /// # Panics
    /// As [`bytes`](Self::bytes).
    #[must_use]
    pub fn signed(self, number: u8, value: i64) -> Self {
        self.number(number, fold_sign(value))
    }

    /// Appends a field of bytes, if there are any.
    ///
    /// # Panics
    /// As [`bytes`](Self::bytes).
    #[must_use]
    pub fn optional_bytes(self, number: u8, bytes: Option<&[u8]>) -> Self {
        match bytes {
            Some(bytes) => self.bytes(number, bytes),
            None => self,
        }
    }

    /// Appends a field with one number, if there is one.
    ///
    /// # Panics
    /// As [`bytes`](Self::bytes).
    #[must_use]
    pub fn optional_number(self, number: u8, value: Option<u64>) -> Self {
        match value {
            Some(value) => self.number(number, value),
            None => self,
        }
    }

    /// Appends a field with one signed number, if there is one.
    ///
    /// # Panics
    /// As [`bytes`](Self::bytes).
    #[must_use]
    pub fn optional_signed(self, number: u8, value: Option<i64>) -> Self {
        match value {
            Some(value) => self.signed(number, value),
            None => self,
        }
    }

    /// Returns the fields, without their length.
    #[must_use]
    pub fn finish(self) -> Vec<u8> {
        self.fields
    }

    /// Returns the record: the length, then the fields.
    #[must_use]
    pub fn finish_record(self) -> Vec<u8> {
        let mut record = Vec::with_capacity(self.fields.len().saturating_add(VARINT_BYTES_MAX));
        frame(&self.fields, &mut record);
        record
    }

    /// Returns the fields, merged in the order of their numbers with the fields that an earlier
    /// reading did not know.
    #[must_use]
    pub fn finish_with(self, unknown: &UnknownFields) -> Vec<u8> {
        if unknown.is_empty() { self.fields } else { unknown.merge(&self.fields) }
    }

    fn begin(&mut self, number: u8, length: u64) {
        assert!(number >= self.last_number, "field {number} after field {}", self.last_number);
        self.last_number = number;
        self.fields.push(number);
        push_varint(&mut self.fields, length);
    }
}

/// Appends a record of these fields to `into`: their length, then the fields.
pub fn frame(fields: &[u8], into: &mut Vec<u8>) {
    push_varint(into, fields.len() as u64);
    into.extend_from_slice(fields);
}

/// The fields of the record at the start of `bytes`, and the bytes after it. `None` if the record
/// is incomplete.
#[must_use]
pub fn split_record(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (length, rest) = split_varint(bytes)?;
    rest.split_at_checked(to_usize(length))
}

/// Why bytes are not the fields of a record.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FieldError {
    /// A field ends beyond the record.
    #[error("field {number} ends beyond its record")]
    Truncated { number: u8 },
    /// The numbers are not in ascending order.
    #[error("field {number} comes after field {previous}")]
    Order { number: u8, previous: u8 },
    /// A field holds an invalid value.
    #[error("field {number} of {length} bytes has an invalid value")]
    Value { number: u8, length: usize },
}

has_kind!(FieldError: _ => Damage);

/// One field of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Field<'a> {
    pub number: u8,
    pub bytes: &'a [u8],
}

impl<'a> Field<'a> {
    /// The number in the field, as a type that may be narrower than a varint.
    ///
    /// # Errors
    /// [`FieldError::Value`]: not exactly one varint, or too large.
    pub fn value<N: TryFrom<u64>>(&self) -> Result<N, FieldError> {
        match split_varint(self.bytes) {
            Some((value, [])) => N::try_from(value).map_err(|_| self.unexpected()),
            _ => Err(self.unexpected()),
        }
    }

    /// The signed number in the field.
    ///
    /// # Errors
    /// As [`value`](Self::value).
    pub fn signed(&self) -> Result<i64, FieldError> {
        self.value().map(unfold_sign)
    }

    /// The text in the field.
    ///
    /// # Errors
    /// [`FieldError::Value`]: not UTF-8.
    pub fn text(&self) -> Result<&'a str, FieldError> {
        std::str::from_utf8(self.bytes).map_err(|_| self.unexpected())
    }

    /// The error for an invalid value in this field.
    #[must_use]
    pub fn unexpected(&self) -> FieldError {
        FieldError::Value { number: self.number, length: self.bytes.len() }
    }
}

/// Reads the fields of one record in order, including unknown ones. Ends after the first error.
#[derive(Debug, Clone)]
pub struct FieldReader<'a> {
    rest: &'a [u8],
    previous: u8,
}

impl<'a> FieldReader<'a> {
    /// Reads the fields of a record, given without their length.
    #[must_use]
    pub fn new(fields: &'a [u8]) -> Self {
        Self { rest: fields, previous: 0 }
    }
}

impl<'a> Iterator for FieldReader<'a> {
    type Item = Result<Field<'a>, FieldError>;

    fn next(&mut self) -> Option<Self::Item> {
        let (&number, rest) = std::mem::take(&mut self.rest).split_first()?;
        if number < self.previous {
            return Some(Err(FieldError::Order { number, previous: self.previous }));
        }
        let Some((bytes, rest)) = split_record(rest) else {
            return Some(Err(FieldError::Truncated { number }));
        };
        self.previous = number;
        self.rest = rest;
        Some(Ok(Field { number, bytes }))
    }
}

/// Fields of a record whose numbers this version does not know.
///
/// A record that is written again keeps them, so that an older program does not lose the additions
/// of a newer one.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct UnknownFields(Vec<(u8, Box<[u8]>)>);

impl UnknownFields {
    /// Returns whether there are no unknown fields.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns whether there is a field with this number.
    #[must_use]
    pub fn has(&self, number: u8) -> bool {
        self.0.iter().any(|(kept, _)| *kept == number)
    }

    /// Appends a field. Its number must not be smaller than that of the field before it.
    pub fn keep(&mut self, field: &Field<'_>) {
        self.0.push((field.number, field.bytes.into()));
    }

    /// Adds the fields of a later record of the same kind. Equal fields are kept once. The fields
    /// of the later record come last among those with the same number, so a reader takes the later
    /// value of a field that occurs once.
    pub fn extend(&mut self, later: &Self) {
        for field in &later.0 {
            if let Some(place) = self.0.iter().position(|kept| kept == field) {
                self.0.remove(place);
            }
            self.0.push(field.clone());
        }
        self.0.sort_by_key(|(number, _)| *number);
    }

    /// Merges these fields with the known ones, in the order of their numbers.
    fn merge(&self, known: &[u8]) -> Vec<u8> {
        let mut all: Vec<_> = FieldReader::new(known).flatten().collect();
        all.extend(self.0.iter().map(|(number, bytes)| Field { number: *number, bytes }));
        all.sort_by_key(|field| field.number);
        all.iter().fold(FieldWriter::new(), |into, field| into.bytes(field.number, field.bytes)).finish()
    }
}

/// Appends a varint.
pub(crate) fn push_varint(into: &mut Vec<u8>, value: u64) {
    let (bytes, length) = encode_varint(value);
    into.extend(bytes.iter().take(length));
}

/// Appends the varint of a signed number.
pub(crate) fn push_signed(into: &mut Vec<u8>, value: i64) {
    push_varint(into, fold_sign(value));
}

/// The signed number at the start of `bytes`, and the bytes after it. `None` if there is none.
pub(crate) fn split_signed(bytes: &[u8]) -> Option<(i64, &[u8])> {
    split_varint(bytes).map(|(value, rest)| (unfold_sign(value), rest))
}

/// Moves the sign into the lowest bit, so that small numbers of either sign have short varints.
fn fold_sign(value: i64) -> u64 {
    (value << 1 ^ value >> 63).cast_unsigned()
}

fn unfold_sign(value: u64) -> i64 {
    (value >> 1).cast_signed() ^ (value & 1).cast_signed().wrapping_neg()
}

/// The varint at the start of `bytes`, and the bytes after it. `None` if it does not end, or does
/// not fit 64 bits.
pub(crate) fn split_varint(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let mut value = 0u64;
    let mut rest = bytes;
    for shift in (0..u64::BITS).step_by(VARINT_BITS as usize) {
        let (byte, behind) = rest.split_first()?;
        rest = behind;
        let bits = u64::from(byte & !VARINT_MORE);
        let placed = bits << shift;
        if placed >> shift != bits {
            return None;
        }
        value |= placed;
        if byte & VARINT_MORE == 0 {
            return Some((value, rest));
        }
    }
    None
}

/// A varint in a buffer, and its length.
#[expect(clippy::cast_possible_truncation, reason = "the lowest bits are what goes into a byte")]
fn encode_varint(mut value: u64) -> ([u8; VARINT_BYTES_MAX], usize) {
    let mut bytes = [0; VARINT_BYTES_MAX];
    for (place, byte) in bytes.iter_mut().enumerate() {
        *byte = value as u8 | VARINT_MORE;
        value >>= VARINT_BITS;
        if value == 0 {
            *byte &= !VARINT_MORE;
            return (bytes, place.saturating_add(1));
        }
    }
    (bytes, VARINT_BYTES_MAX)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::{Strategy, any, prop_assert, prop_assert_eq, proptest};

    use super::*;

    fn fields() -> impl Strategy<Value = Vec<(u8, Vec<u8>)>> {
        let field = (any::<u8>(), proptest::collection::vec(any::<u8>(), 0..200));
        proptest::collection::vec(field, 0..9).prop_map(|mut fields| {
            fields.sort_by_key(|(number, _)| *number);
            fields
        })
    }

    proptest! {
        #[test]
        fn fields_survive_the_round_trip(fields in fields(), behind in any::<[u8; 3]>()) {
            let writer = fields.iter().fold(FieldWriter::new(), |writer, (number, bytes)| writer.bytes(*number, bytes));
            let stream = [writer.finish_record(), behind.to_vec()].concat();
            let (record, rest) = split_record(&stream).unwrap();
            prop_assert_eq!(rest, &behind);
            let read: Vec<_> = FieldReader::new(record).map(|field| field.unwrap()).collect();
            let expected: Vec<_> =
                fields.iter().map(|(number, bytes)| Field { number: *number, bytes }).collect();
            prop_assert_eq!(read, expected);
        }

        #[test]
        fn numbers_survive_the_round_trip(value in any::<u64>(), signed in any::<i64>(), shift in 0u32..64) {
            let (value, signed) = (value >> shift, signed >> shift);
            let fields = FieldWriter::new().number(1, value).signed(2, signed).finish();
            let read: Vec<_> = FieldReader::new(&fields).map(|field| field.unwrap()).collect();
            prop_assert_eq!(read[0].value(), Ok(value));
            prop_assert_eq!(read[0].value::<u16>().ok(), u16::try_from(value).ok());
            prop_assert_eq!(read[1].signed(), Ok(signed));
        }

        #[test]
        fn fields_that_are_not_known_are_written_again(fields in fields(), known in any::<[bool; 8]>()) {
            let is_known = |number: u8| known[usize::from(number % 8)];
            let record = |fields: &[(u8, Vec<u8>)]| {
                fields.iter().fold(FieldWriter::new(), |into, (number, bytes)| into.bytes(*number, bytes))
            };
            let whole = record(&fields).finish();
            let mut unknown = UnknownFields::default();
            for field in FieldReader::new(&whole).map(Result::unwrap).filter(|field| !is_known(field.number)) {
                unknown.keep(&field);
            }
            let known: Vec<_> = fields.into_iter().filter(|(number, _)| is_known(*number)).collect();
            prop_assert_eq!(record(&known).finish_with(&unknown), whole);
            let twice = { let mut twice = unknown.clone(); twice.extend(&unknown); twice };
            prop_assert!(twice.0.len() <= unknown.0.len() && twice.0.iter().all(|field| unknown.0.contains(field)));
        }

        #[test]
        fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
            let fields = split_record(&bytes).map_or(&bytes[..], |(fields, _)| fields);
            for field in FieldReader::new(fields).flatten() {
                let _ = (field.value::<u64>(), field.signed(), field.text());
            }
            prop_assert!(split_varint(&bytes).is_none_or(|(_, rest)| rest.len() < bytes.len()));
        }
    }

    #[test]
    fn the_bytes_are_those_of_the_format() {
        let record = FieldWriter::new().bytes(1, b"ab").number(3, 300).signed(6, -1).finish_record();
        assert_eq!(record, [11, 1, 2, b'a', b'b', 3, 2, 0xac, 0x02, 6, 1, 1]);
    }

    #[test]
    fn what_no_writer_writes_is_refused() {
        let read = |fields: &[u8]| FieldReader::new(fields).collect::<Result<Vec<_>, _>>().unwrap_err();
        assert_eq!(read(&[2, 0, 1, 0]), FieldError::Order { number: 1, previous: 2 });
        assert_eq!(read(&[2, 3, 1, 1]), FieldError::Truncated { number: 2 });
        assert_eq!(read(&[2]), FieldError::Truncated { number: 2 });
        let value = |bytes: &[u8]| Field { number: 7, bytes }.value::<u64>();
        assert_eq!(value(&[1, 1]), Err(FieldError::Value { number: 7, length: 2 }));
        assert_eq!(value(&[]), Err(FieldError::Value { number: 7, length: 0 }));
        let most = [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1];
        assert_eq!(value(&most), Ok(u64::MAX));
        let mut beyond = most;
        beyond[9] = 2;
        assert_eq!(value(&beyond), Err(FieldError::Value { number: 7, length: 10 }));
    }
}
