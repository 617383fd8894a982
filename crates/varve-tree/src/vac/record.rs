//! A record: the metadata of one file in a directory of vac, except its size and bytes. Big-endian.
//!
//! ```text
//! magic 4 │ version 2 │ name │ entry 4 │ version 9: generation 4, meta entry 4, meta generation 4
//! qid 8 │ version 7: 20 bytes of no use │ owner │ group │ who changed it last
//! mtime 4 │ mcount 4 │ ctime 4 │ atime 4 │ mode 4 │ sections: kind 1, length 2, body; up to the end
//! ```
//!
//! A name, or any other text, is its length in 2 bytes and then itself. Readers skip sections of
//! kinds that they do not know.
#![deny(clippy::unwrap_used, clippy::indexing_slicing, clippy::arithmetic_side_effects)]

const MAGIC: u32 = 0x1c4d_9072;
/// The version that is written, as vac does.
const VERSION: u16 = 8;
const UNUSED_BYTES: usize = 20;

const SECTION_PLAN9: u8 = 1;
const SECTION_QID_SPACE: u8 = 3;
/// The section of this program, for metadata that vac has no field for.
const SECTION_OWN: u8 = b'v';

/// The mode of a file in vac: permissions, and bits for its kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct VacMode(pub u32);

impl VacMode {
    /// Read, write, execute: for the owner, the group, and others.
    pub const PERMISSIONS: u32 = 0o777;
    /// The sticky bit of Unix.
    pub const STICKY: u32 = 0x200;
    /// The setuid bit of Unix.
    pub const SETUID: u32 = 0x400;
    /// The setgid bit of Unix.
    pub const SETGID: u32 = 0x800;
    /// A symbolic link; its content is the target.
    pub const LINK: u32 = 0x4000;
    /// A folder.
    pub const FOLDER: u32 = 0x8000;
    /// A device; its content holds its number.
    pub const DEVICE: u32 = 0x20_0000;
    /// A named pipe.
    pub const PIPE: u32 = 0x40_0000;

    /// Returns true if one of these bits is set.
    #[must_use]
    pub fn has(self, bits: u32) -> bool {
        self.0 & bits != 0
    }
}

/// The record of a file.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct VacRecord {
    /// Any bytes: a caller must check them before it uses them as a name.
    pub name: Vec<u8>,
    /// The number of the entry in the folder's source with the file's bytes, or with the source of
    /// a subfolder.
    pub entry: u32,
    /// The expected generation of that entry.
    pub generation: u32,
    /// Of a folder: the number of the entry with its meta.
    pub meta_entry: u32,
    /// The expected generation of that entry.
    pub meta_generation: u32,
    /// The file's number.
    pub qid: u64,
    /// A name, or a number in decimal digits.
    pub owner: Vec<u8>,
    /// A name, or a number in decimal digits.
    pub group: Vec<u8>,
    /// A name, or a number in decimal digits; vac leaves it empty.
    pub changed_by: Vec<u8>,
    /// The time of the last change to the content, in seconds since 1970.
    pub mtime: u32,
    /// The number of changes.
    pub mcount: u32,
    /// The time of the last change of any kind; vac stores the time of archiving.
    pub ctime: u32,
    /// The time of the last access.
    pub atime: u32,
    /// The kind and the permissions.
    pub mode: VacMode,
    /// The offset to add to the numbers of all files below, and the first number that none of them
    /// has.
    pub qid_space: Option<(u64, u64)>,
    /// Metadata of this program that vac has no field for.
    pub own: Option<Vec<u8>>,
}

/// The reason why bytes are not a record.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DecodeVacRecordError {
    /// The record ends too early.
    #[error("the record is cut short: its {bytes} bytes end within its {field}")]
    Short {
        bytes: usize,
        /// The field in which it ends.
        field: &'static str,
    },
    #[error("a record cannot begin with {magic:#010x}")]
    Magic { magic: u32 },
    #[error("record version {version} is unknown: 7, 8 and 9 are supported")]
    Version { version: u16 },
    /// A section that occurs twice, or has a wrong length for its kind.
    #[error("section {kind} of the record is malformed, or occurs twice")]
    Section { kind: u8 },
}

/// Takes fields from the front.
struct RecordRest<'a> {
    bytes: &'a [u8],
    whole: usize,
}

impl<'a> RecordRest<'a> {
    fn take(&mut self, count: usize, field: &'static str) -> Result<&'a [u8], DecodeVacRecordError> {
        let short = DecodeVacRecordError::Short { bytes: self.whole, field };
        let (taken, rest) = self.bytes.split_at_checked(count).ok_or(short)?;
        self.bytes = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self, field: &'static str) -> Result<[u8; N], DecodeVacRecordError> {
        let short = DecodeVacRecordError::Short { bytes: self.whole, field };
        let (taken, rest) = self.bytes.split_first_chunk::<N>().ok_or(short)?;
        self.bytes = rest;
        Ok(*taken)
    }

    fn number(&mut self, field: &'static str) -> Result<u32, DecodeVacRecordError> {
        self.array(field).map(u32::from_be_bytes)
    }

    fn short_number(&mut self, field: &'static str) -> Result<u16, DecodeVacRecordError> {
        self.array(field).map(u16::from_be_bytes)
    }

    fn text(&mut self, field: &'static str) -> Result<Vec<u8>, DecodeVacRecordError> {
        let count = usize::from(self.short_number(field)?);
        self.take(count, field).map(<[u8]>::to_vec)
    }
}

impl VacRecord {
    /// Decodes a record of any version.
    ///
    /// # Errors
    /// [`DecodeVacRecordError`] names the part that no writer would have written.
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeVacRecordError> {
        let mut rest = RecordRest { bytes, whole: bytes.len() };
        let magic = rest.number("magic")?;
        if magic != MAGIC {
            return Err(DecodeVacRecordError::Magic { magic });
        }
        let version = rest.short_number("version")?;
        if !(7..=9).contains(&version) {
            return Err(DecodeVacRecordError::Version { version });
        }
        let name = rest.text("name")?;
        let entry = rest.number("entry")?;
        let (generation, meta_entry, meta_generation) = if version == 9 {
            (rest.number("generation")?, rest.number("meta entry")?, rest.number("meta generation")?)
        } else {
            // No folder has that many entries: a larger number is not found.
            (0, entry.saturating_add(1), 0)
        };
        let qid = u64::from_be_bytes(rest.array("qid")?);
        if version == 7 {
            rest.take(UNUSED_BYTES, "unused bytes")?;
        }
        let (owner, group, changed_by) = (rest.text("owner")?, rest.text("group")?, rest.text("changer")?);
        let mtime = rest.number("mtime")?;
        let mcount = rest.number("mcount")?;
        let (ctime, atime) = (rest.number("ctime")?, rest.number("atime")?);
        let mode = VacMode(rest.number("mode")?);
        let mut record = Self {
            name,
            entry,
            generation,
            meta_entry,
            meta_generation,
            qid,
            owner,
            group,
            changed_by,
            mtime,
            mcount,
            ctime,
            atime,
            mode,
            qid_space: None,
            own: None,
        };
        record.take_sections(&mut rest, version)?;
        Ok(record)
    }

    fn take_sections(&mut self, rest: &mut RecordRest<'_>, version: u16) -> Result<(), DecodeVacRecordError> {
        let mut has_plan9 = false;
        while !rest.bytes.is_empty() {
            let [kind] = rest.array("section")?;
            let length = usize::from(rest.short_number("section")?);
            let body = rest.take(length, "section")?;
            let wrong = || DecodeVacRecordError::Section { kind };
            match kind {
                SECTION_PLAN9 if version < 9 => {
                    let (_, version) = body.split_first_chunk::<8>().ok_or_else(wrong)?;
                    let version: [u8; 4] = version.try_into().map_err(|_| wrong())?;
                    if std::mem::replace(&mut has_plan9, true) {
                        return Err(wrong());
                    }
                    if self.mcount == 0 {
                        self.mcount = u32::from_be_bytes(version);
                    }
                }
                SECTION_QID_SPACE => {
                    let (offset, max) = body.split_first_chunk::<8>().ok_or_else(wrong)?;
                    let max: [u8; 8] = max.try_into().map_err(|_| wrong())?;
                    let space = (u64::from_be_bytes(*offset), u64::from_be_bytes(max));
                    if self.qid_space.replace(space).is_some() {
                        return Err(wrong());
                    }
                }
                SECTION_OWN => self.own = Some(body.to_vec()),
                _ => {}
            }
        }
        Ok(())
    }

    /// Encodes the record in version 8, in which generations are 0 and the meta is the entry after
    /// the source. Returns `None` if a text is too long.
    #[must_use]
    pub fn encode(&self) -> Option<Vec<u8>> {
        let mut bytes = Vec::new();
        let text = |text: &[u8], bytes: &mut Vec<u8>| {
            bytes.extend_from_slice(&u16::try_from(text.len()).ok()?.to_be_bytes());
            bytes.extend_from_slice(text);
            Some(())
        };
        bytes.extend_from_slice(&MAGIC.to_be_bytes());
        bytes.extend_from_slice(&VERSION.to_be_bytes());
        text(&self.name, &mut bytes)?;
        bytes.extend_from_slice(&self.entry.to_be_bytes());
        bytes.extend_from_slice(&self.qid.to_be_bytes());
        text(&self.owner, &mut bytes)?;
        text(&self.group, &mut bytes)?;
        text(&self.changed_by, &mut bytes)?;
        for number in [self.mtime, self.mcount, self.ctime, self.atime, self.mode.0] {
            bytes.extend_from_slice(&number.to_be_bytes());
        }
        if let Some((offset, max)) = self.qid_space {
            bytes.push(SECTION_QID_SPACE);
            bytes.extend_from_slice(&16_u16.to_be_bytes());
            bytes.extend_from_slice(&offset.to_be_bytes());
            bytes.extend_from_slice(&max.to_be_bytes());
        }
        if let Some(own) = &self.own {
            bytes.push(SECTION_OWN);
            text(own, &mut bytes)?;
        }
        Some(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record() -> VacRecord {
        VacRecord {
            name: "tür".into(),
            entry: 7,
            meta_entry: 8,
            qid: 99,
            owner: b"root".to_vec(),
            group: b"54321".to_vec(),
            mtime: 1,
            mcount: 2,
            ctime: 3,
            atime: 4,
            mode: VacMode(VacMode::FOLDER | 0o755),
            qid_space: Some((5, 6)),
            own: Some(b"more".to_vec()),
            ..VacRecord::default()
        }
    }

    /// Returns the bytes of a record with another version and some bytes inserted.
    fn of_version(version: u8, at: usize, inserted: &[u8]) -> Vec<u8> {
        let mut bytes = record().encode().unwrap();
        bytes[5] = version;
        bytes.splice(at..at, inserted.iter().copied());
        bytes
    }

    #[test]
    fn records_of_all_versions_are_read() {
        assert_eq!(VacRecord::decode(&record().encode().unwrap()), Ok(record()));
        let after_entry = 6 + 2 + "tür".len() + 4;
        let seven = of_version(7, after_entry + 8, &[0xee; 20]);
        assert_eq!(VacRecord::decode(&seven), Ok(record()));
        let nine = of_version(9, after_entry, &[0, 0, 0, 1, 0, 0, 0, 30, 0, 0, 0, 2]);
        let expected = VacRecord { generation: 1, meta_entry: 30, meta_generation: 2, ..record() };
        assert_eq!(VacRecord::decode(&nine), Ok(expected));
    }

    #[test]
    fn unknown_sections_are_skipped_and_wrong_ones_refused() {
        let with = |section: &[u8]| VacRecord::decode(&[&record().encode().unwrap(), section].concat());
        assert_eq!(with(&[200, 0, 3, 1, 2, 3]), Ok(record()));
        assert_eq!(with(&[2, 0, 0]), Ok(record()));
        let space = [3, 0, 16, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        assert_eq!(with(&space), Err(DecodeVacRecordError::Section { kind: 3 }));
        assert_eq!(with(&[1, 0, 1, 0]), Err(DecodeVacRecordError::Section { kind: 1 }));
        let plan9 = [1, 0, 12, 0, 0, 0, 0, 0, 0, 0, 9, 0, 0, 0, 7];
        assert_eq!(with(&plan9), Ok(record()));
        assert!(with(&[plan9, plan9].concat()).is_err());
        assert!(with(&[200, 0, 3, 1, 2]).is_err());
    }

    #[test]
    fn no_end_is_too_early_to_be_told() {
        let whole = VacRecord { qid_space: None, own: None, ..record() }.encode().unwrap();
        for end in 0..whole.len() {
            assert!(VacRecord::decode(&whole[..end]).is_err(), "{end}");
        }
        assert!(matches!(VacRecord::decode(&[0; 60]), Err(DecodeVacRecordError::Magic { magic: 0 })));
        let version = VacRecord::decode(&of_version(6, 40, &[])).unwrap_err();
        assert_eq!(version, DecodeVacRecordError::Version { version: 6 });
    }
}
