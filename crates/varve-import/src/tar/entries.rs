//! The entries of a tar stream, one after the other. Nothing is read twice.
#![deny(clippy::unwrap_used, clippy::indexing_slicing, clippy::arithmetic_side_effects)]

use std::io::{self, Read};

use varve_block::to_usize;
use varve_image::{DeviceNumber, FileTime, Xattr};

use super::header::{BLOCK_BYTES, Header, HeaderBlock, HeaderError, more_pairs};
use super::pax::{PaxError, PaxRecords, PaxXattrs};
use super::sparse::{LeadingMap, RANGE_COUNT_MAX, SparseError, SparseMap, listed, ranges};

/// The longest long name of GNU, and the longest PAX header.
const EXTENSION_BYTES_MAX: u64 = 16 << 20;
/// Bytes of data that are read at a time.
const PIECE_BYTES: usize = 256 << 10;

/// Why the rest of a tar stream cannot be read, or an entry of it.
#[derive(Debug, thiserror::Error)]
pub enum TarError {
    #[error("the archive cannot be read")]
    Read(#[from] io::Error),
    #[error("the archive is cut short at byte {offset}")]
    Truncated { offset: u64 },
    /// Every program writes a block of zeros behind the last entry.
    #[error("the archive ends at byte {offset} without the mark of its end: it is cut short")]
    NoEnd { offset: u64 },
    #[error("byte {offset}: {source}")]
    Header { offset: u64, source: HeaderError },
    #[error("byte {offset}: {source}")]
    Pax { offset: u64, source: PaxError },
    #[error("byte {offset}: {source}")]
    Sparse { offset: u64, source: SparseError },
    #[error("byte {offset}: its name or its attributes have {bytes} bytes, more than {EXTENSION_BYTES_MAX}")]
    Extension { offset: u64, bytes: u64 },
    /// A file is one of several volumes, or of a kind that is not known.
    #[error("byte {offset}: entries of the type {kind:?} are not supported")]
    Unsupported { offset: u64, kind: char },
}

/// The kind of an entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TarKind {
    File,
    Folder,
    /// Another name of an earlier entry.
    HardLink {
        target: Vec<u8>,
    },
    SymbolicLink {
        target: Vec<u8>,
    },
    CharacterDevice(DeviceNumber),
    BlockDevice(DeviceNumber),
    Fifo,
}

/// An entry, without its data.
#[derive(Debug)]
pub struct TarEntry {
    pub path: Vec<u8>,
    pub kind: TarKind,
    pub mode: u16,
    pub uid: u32,
    pub gid: u32,
    pub mtime: FileTime,
    pub xattrs: Vec<Xattr>,
    /// True if it has access lists as text, which are not read.
    pub has_text_acl: bool,
    /// The size of the file with its holes.
    pub size: u64,
    /// The malformed values. The entry has those of its header instead.
    pub problems: Vec<TarError>,
    /// The reason why the entry has no data, or is not that of its path.
    pub lost: Option<TarError>,
}

/// A part of a file's data.
#[derive(Debug, PartialEq, Eq)]
pub enum TarPiece<'a> {
    Bytes(&'a [u8]),
    Hole(u64),
}

/// Reads the entries of a stream.
pub struct TarEntries<R> {
    stream: R,
    offset: u64,
    /// The length of the stream, if it is known.
    length: Option<u64>,
    /// True while blocks are passed over up to the next header.
    is_searching: bool,
    /// Malformed records for all entries.
    global_problem: Option<TarError>,
    global: PaxRecords,
    /// Bytes of the current entry that were not read yet, and the zeros behind them.
    data_left: u64,
    padding: u64,
    /// The map of the current entry.
    map: SparseMap,
    /// The next range of the map.
    next_range: usize,
    /// Bytes left in the current range, and the place in the file.
    range_left: u64,
    position: u64,
    buffer: Vec<u8>,
}

impl<R: Read> TarEntries<R> {
    #[must_use]
    pub fn new(stream: R) -> Self {
        Self {
            stream,
            offset: 0,
            length: None,
            is_searching: false,
            global_problem: None,
            global: PaxRecords::default(),
            data_left: 0,
            padding: 0,
            map: SparseMap { ranges: Vec::new(), size: 0 },
            next_range: 0,
            range_left: 0,
            position: 0,
            buffer: Vec::new(),
        }
    }

    /// Tells the length of the stream: a name that claims to be longer is then no end of the
    /// archive.
    #[must_use]
    pub fn of_length(self, length: u64) -> Self {
        Self { length: Some(length), ..self }
    }

    /// The stream, at the place up to which it was read.
    #[must_use]
    pub fn into_inner(self) -> R {
        self.stream
    }

    /// The next entry; `None` at the end of the archive. The data of the entry before is skipped if
    /// it was not read.
    ///
    /// # Errors
    /// [`TarError`]; the rest is unreadable.
    pub fn next_entry(&mut self) -> Result<Option<TarEntry>, TarError> {
        self.skip_rest()?;
        let mut found = EntryParts::default();
        loop {
            let begun = self.offset;
            let Some(block) = self.read_block()? else {
                return Err(TarError::NoEnd { offset: self.offset });
            };
            let in_header = |source| TarError::Header { offset: begun, source };
            let header = match Header::new(&block) {
                Ok(Some(header)) => header,
                Ok(None) | Err(_) if self.is_searching => continue,
                Ok(None) => return Ok(None),
                Err(source) => return Err(in_header(source)),
            };
            self.is_searching = false;
            let size = header.size().map_err(in_header)?;
            match header.kind() {
                kind @ (b'x' | b'X' | b'g' | b'L' | b'K') => match self.extension(size)? {
                    Some(bytes) => self.extend(&mut found, kind, bytes, begun),
                    None => found.lost = Some(TarError::Extension { offset: begun, bytes: size }),
                },
                // The name of the volume.
                b'V' => self.begin_data(size),
                _ => {
                    let records = found.own.over(&self.global);
                    let bytes = records.bytes() as u64;
                    if bytes > EXTENSION_BYTES_MAX.saturating_mul(2) {
                        found.lost = Some(TarError::Extension { offset: begun, bytes });
                    }
                    found.problems.extend(self.global_problem.take());
                    return self.entry(&header, size, &records, found, begun).map(Some);
                }
            }
            self.skip_rest()?;
        }
    }

    /// Adds the data of an entry that extends the next one.
    fn extend(&mut self, found: &mut EntryParts, kind: u8, bytes: Vec<u8>, begun: u64) {
        let in_pax = |source| TarError::Pax { offset: begun, source };
        match kind {
            b'L' => found.long_name = Some(until_zero(bytes)),
            b'K' => found.long_link = Some(until_zero(bytes)),
            b'g' => self.global_problem = self.global.add(&bytes).err().map(in_pax),
            _ => found.problems.extend(found.own.add(&bytes).err().map(in_pax)),
        }
    }

    fn entry(
        &mut self,
        header: &Header<'_>,
        header_size: u64,
        records: &PaxRecords,
        found: EntryParts,
        begun: u64,
    ) -> Result<TarEntry, TarError> {
        let EntryParts { long_name, long_link, problems, mut lost, .. } = found;
        let mut head = EntryHead { header, records, begun, problems };
        let pax = |key: &str| records.get(key).map(<[u8]>::to_vec);
        let mut path = pax("path").or(long_name).unwrap_or_else(|| header.name());
        let target = pax("linkpath").or(long_link).unwrap_or_else(|| header.link_name());
        let data_bytes = head.number("size").unwrap_or(header_size);
        let (kind, useless) = head.kind(&path, target);
        lost = useless.or(lost);
        let is_file = kind == TarKind::File;
        // The size of a link is that of its file, whose data does not follow. The list of names in
        // a folder of an incremental archive is skipped.
        let follows = is_file || header.kind() == b'D';
        self.begin_data(if follows { data_bytes } else { 0 });
        let mut size = 0;
        if is_file {
            path = pax("GNU.sparse.name").unwrap_or(path);
            match self.begin_map(&head, data_bytes)? {
                Ok(file_bytes) => size = file_bytes,
                Err(source) => lost = lost.or(Some(TarError::Sparse { offset: begun, source })),
            }
        }
        if lost.is_some() {
            size = 0;
            self.set_map(SparseMap { ranges: Vec::new(), size: 0 });
        }
        let (uid, gid) = (head.owner("uid", header.uid()), head.owner("gid", header.gid()));
        let (mtime, mode) = (head.mtime(), head.mode());
        let PaxXattrs { xattrs, has_text_acl, has_malformed } = records.xattrs();
        let mut problems = head.problems;
        if has_malformed {
            problems.push(TarError::Pax { offset: begun, source: PaxError });
        }
        Ok(TarEntry { path, kind, mode, uid, gid, mtime, xattrs, has_text_acl, size, problems, lost })
    }

    /// Reads the map of a file if it is sparse. Returns the size of the file.
    fn begin_map(
        &mut self,
        head: &EntryHead<'_>,
        data_bytes: u64,
    ) -> Result<Result<u64, SparseError>, TarError> {
        let map = if head.header.kind() == b'S' {
            self.gnu_map(head.header, data_bytes, head.begun)?
        } else {
            self.pax_map(head.records, data_bytes, head.begun)?
        };
        Ok(map.map(|map| match map {
            None => data_bytes,
            Some(map) => {
                let size = map.size;
                self.set_map(map);
                size
            }
        }))
    }

    /// The map of a sparse file of GNU, which is in its header and the blocks behind it.
    fn gnu_map(
        &mut self,
        header: &Header<'_>,
        data_bytes: u64,
        begun: u64,
    ) -> Result<Result<Option<SparseMap>, SparseError>, TarError> {
        let mut more = header.has_more_pairs();
        let mut found = header.sparse();
        while more {
            let block = self.read_block()?.ok_or(TarError::Truncated { offset: begun })?;
            let (next, has_more) = more_pairs(&block);
            more = has_more;
            // The blocks of a map that is of no use are passed over.
            found = match (found, next) {
                (Ok(ranges), Ok(next)) if ranges.len() <= RANGE_COUNT_MAX => Ok([ranges, next].concat()),
                _ => Err(HeaderError::Number),
            };
        }
        let (Ok(ranges), Ok(size)) = (found, header.real_size()) else { return Ok(Err(SparseError)) };
        Ok(SparseMap::new(ranges, size, data_bytes).map(Some))
    }

    /// The map of a sparse file in PAX headers.
    fn pax_map(
        &mut self,
        records: &PaxRecords,
        data_bytes: u64,
        begun: u64,
    ) -> Result<Result<Option<SparseMap>, SparseError>, TarError> {
        let number = |key: &str| records.number(key).map_err(|_| SparseError);
        if records.get("GNU.sparse.major") == Some(b"1") {
            let mut map = LeadingMap::default();
            loop {
                if self.data_left < BLOCK_BYTES as u64 {
                    return Ok(Err(SparseError));
                }
                let block = self.read_block()?.ok_or(TarError::Truncated { offset: begun })?;
                self.data_left = self.data_left.saturating_sub(BLOCK_BYTES as u64);
                match map.add(&block) {
                    Ok(None) => {}
                    Ok(Some(found)) => {
                        let size = number("GNU.sparse.realsize").and_then(|size| size.ok_or(SparseError));
                        return Ok(size
                            .and_then(|size| SparseMap::new(found, size, self.data_left))
                            .map(Some));
                    }
                    Err(error) => return Ok(Err(error)),
                }
            }
        }
        let map = || {
            let numbers = match records.get("GNU.sparse.map") {
                Some(text) => listed(text)?,
                None if records.pairs().is_empty() => return Ok(None),
                None => records.pairs().to_vec(),
            };
            let size = number("GNU.sparse.size")?
                .map_or_else(|| number("GNU.sparse.realsize"), |size| Ok(Some(size)))?;
            SparseMap::new(ranges(&numbers)?, size.ok_or(SparseError)?, data_bytes).map(Some)
        };
        Ok(map())
    }

    /// The next piece of the current entry's data; `None` at its end.
    ///
    /// # Errors
    /// [`TarError`]; the rest is unreadable.
    pub fn next_piece(&mut self) -> Result<Option<TarPiece<'_>>, TarError> {
        while self.range_left == 0 {
            match self.map.ranges.get(self.next_range) {
                Some((offset, length)) => {
                    let hole = offset.saturating_sub(self.position);
                    if hole > 0 {
                        self.position = *offset;
                        return Ok(Some(TarPiece::Hole(hole)));
                    }
                    self.range_left = *length;
                    self.next_range = self.next_range.saturating_add(1);
                }
                None => {
                    let hole = self.map.size.saturating_sub(self.position);
                    self.position = self.map.size;
                    return Ok((hole > 0).then_some(TarPiece::Hole(hole)));
                }
            }
        }
        let wanted = to_usize(self.range_left.min(self.data_left)).min(PIECE_BYTES);
        self.buffer.resize(PIECE_BYTES, 0);
        let room = self.buffer.get_mut(..wanted).unwrap_or_default();
        let filled = match self.stream.read(room) {
            Ok(0) => return Err(TarError::Truncated { offset: self.offset }),
            Ok(filled) => filled,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => 0,
            Err(error) => return Err(error.into()),
        };
        let count = filled as u64;
        self.offset = self.offset.saturating_add(count);
        self.position = self.position.saturating_add(count);
        self.range_left = self.range_left.saturating_sub(count);
        self.data_left = self.data_left.saturating_sub(count);
        Ok(Some(TarPiece::Bytes(self.buffer.get(..filled).unwrap_or_default())))
    }

    /// Begins the data of an entry, as one range.
    fn begin_data(&mut self, bytes: u64) {
        const BLOCK: u64 = BLOCK_BYTES as u64;
        self.data_left = bytes;
        self.padding = bytes.checked_next_multiple_of(BLOCK).map_or(0, |end| end.saturating_sub(bytes));
        self.set_map(SparseMap { ranges: vec![(0, bytes)], size: bytes });
    }

    fn set_map(&mut self, map: SparseMap) {
        (self.map, self.next_range, self.range_left, self.position) = (map, 0, 0, 0);
    }

    fn skip_rest(&mut self) -> Result<(), TarError> {
        let left = self.data_left.saturating_add(self.padding);
        let skipped = io::copy(&mut Read::by_ref(&mut self.stream).take(left), &mut io::sink())?;
        self.offset = self.offset.saturating_add(skipped);
        // Some programs leave out the zeros at the very end.
        if skipped < self.data_left {
            return Err(TarError::Truncated { offset: self.offset });
        }
        (self.data_left, self.padding) = (0, 0);
        Ok(())
    }

    /// The data of an entry that extends the next one. `None` if it is too long, and is passed
    /// over.
    fn extension(&mut self, size: u64) -> Result<Option<Vec<u8>>, TarError> {
        if size > EXTENSION_BYTES_MAX {
            let left = self.length.map(|length| length.saturating_sub(self.offset));
            if left.is_some_and(|left| size > left) {
                // The size is wrong, and the place of the next header is not known.
                self.is_searching = true;
            } else {
                self.begin_data(size);
            }
            return Ok(None);
        }
        self.begin_data(size);
        let mut bytes = Vec::new();
        Read::by_ref(&mut self.stream).take(size).read_to_end(&mut bytes)?;
        self.offset = self.offset.saturating_add(bytes.len() as u64);
        if (bytes.len() as u64) < size {
            return Err(TarError::Truncated { offset: self.offset });
        }
        self.data_left = 0;
        Ok(Some(bytes))
    }

    /// The next block; `None` if the stream has ended.
    fn read_block(&mut self) -> Result<Option<HeaderBlock>, TarError> {
        let mut block = [0; BLOCK_BYTES];
        let mut filled = 0_usize;
        while let Some(room) = block.get_mut(filled..).filter(|room| !room.is_empty()) {
            match self.stream.read(room) {
                Ok(0) if filled == 0 => return Ok(None),
                Ok(0) => return Err(TarError::Truncated { offset: self.offset }),
                Ok(count) => {
                    filled = filled.saturating_add(count);
                    self.offset = self.offset.saturating_add(count as u64);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(Some(block))
    }
}

/// The parts of an entry that come before its header.
#[derive(Default)]
struct EntryParts {
    own: PaxRecords,
    long_name: Option<Vec<u8>>,
    long_link: Option<Vec<u8>>,
    problems: Vec<TarError>,
    lost: Option<TarError>,
}

/// The header of an entry with the PAX records that override it. A malformed value is noted, and
/// counts as missing.
struct EntryHead<'a> {
    header: &'a Header<'a>,
    records: &'a PaxRecords,
    /// The place of the header in the stream.
    begun: u64,
    problems: Vec<TarError>,
}

impl EntryHead<'_> {
    /// Returns the kind of the entry, and why the entry is of no use.
    fn kind(&self, path: &[u8], target: Vec<u8>) -> (TarKind, Option<TarError>) {
        let device = |of: fn(DeviceNumber) -> TarKind| match self.device() {
            Ok(device) => (of(device), None),
            Err(error) => (of(DeviceNumber { major: 0, minor: 0 }), Some(self.in_header(error))),
        };
        match self.header.kind() {
            b'1' => (TarKind::HardLink { target }, None),
            b'2' => (TarKind::SymbolicLink { target }, None),
            b'3' => device(TarKind::CharacterDevice),
            b'4' => device(TarKind::BlockDevice),
            b'5' | b'D' => (TarKind::Folder, None),
            b'6' => (TarKind::Fifo, None),
            0 | b'0' if path.last() == Some(&b'/') => (TarKind::Folder, None),
            kind @ (b'M' | b'N') => {
                let kind = char::from(kind);
                (TarKind::File, Some(TarError::Unsupported { offset: self.begun, kind }))
            }
            // POSIX: unknown types are read as files.
            _ => (TarKind::File, None),
        }
    }

    fn device(&self) -> Result<DeviceNumber, HeaderError> {
        let (major, minor) = self.header.device()?;
        let number = |value| u32::try_from(value).map_err(|_| HeaderError::Number);
        Ok(DeviceNumber { major: number(major)?, minor: number(minor)? })
    }

    fn number(&mut self, key: &str) -> Option<u64> {
        let number = self.records.number(key);
        self.noted_pax(number).flatten()
    }

    /// Returns the number of an owner. `own` is that of the header.
    fn owner(&mut self, key: &str, own: Result<i64, HeaderError>) -> u32 {
        let given = self.number(key);
        let own = || self.noted(own).map_or(0, |own| own.max(0).cast_unsigned());
        u32::try_from(given.unwrap_or_else(own)).unwrap_or(u32::MAX)
    }

    fn mtime(&mut self) -> FileTime {
        let given = self.records.time("mtime");
        let given = self.noted_pax(given).flatten();
        given.unwrap_or_else(|| FileTime::new(self.noted(self.header.mtime()).unwrap_or(0), 0))
    }

    fn mode(&mut self) -> u16 {
        let mode = self.noted(self.header.mode()).unwrap_or(0o600) & 0o7777;
        u16::try_from(mode).unwrap_or(0)
    }

    fn in_header(&self, source: HeaderError) -> TarError {
        TarError::Header { offset: self.begun, source }
    }

    fn noted<T>(&mut self, value: Result<T, HeaderError>) -> Option<T> {
        value.map_err(|source| self.problems.push(self.in_header(source))).ok()
    }

    fn noted_pax<T>(&mut self, value: Result<T, PaxError>) -> Option<T> {
        let offset = self.begun;
        value.map_err(|source| self.problems.push(TarError::Pax { offset, source })).ok()
    }
}

fn until_zero(mut bytes: Vec<u8>) -> Vec<u8> {
    let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    bytes.truncate(end);
    bytes
}

#[cfg(test)]
mod tests {
    use proptest::prelude::{any, prop, prop_assert, prop_assert_eq, proptest};

    use super::*;

    /// A header with a good checksum.
    fn header(name: &str, kind: u8, size: usize) -> Vec<u8> {
        let mut block = vec![0; BLOCK_BYTES];
        block[..name.len()].copy_from_slice(name.as_bytes());
        block[100..124].copy_from_slice(b"0000640\x000001750\x000000144\0");
        block[124..136].copy_from_slice(format!("{size:011o}\0").as_bytes());
        block[136..148].copy_from_slice(b"00000000017\0");
        block[156] = kind;
        block[257..265].copy_from_slice(b"ustar\x0000");
        signed(block)
    }

    fn signed(mut block: Vec<u8>) -> Vec<u8> {
        block[148..156].fill(b' ');
        let sum: u32 = block.iter().map(|byte| u32::from(*byte)).sum();
        block[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
        block
    }

    fn entry(name: &str, kind: u8, data: &[u8]) -> Vec<u8> {
        let mut bytes = header(name, kind, data.len());
        bytes.extend_from_slice(data);
        bytes.resize(bytes.len().next_multiple_of(BLOCK_BYTES), 0);
        bytes
    }

    fn end() -> Vec<u8> {
        vec![0; 2 * BLOCK_BYTES]
    }

    /// All entries with their contents, and why the reading ended.
    fn read(archive: &[u8]) -> (Vec<(TarEntry, Vec<u8>)>, Option<TarError>) {
        let (mut entries, mut found) = (TarEntries::new(archive), Vec::new());
        let failure = loop {
            let entry = match entries.next_entry() {
                Ok(Some(entry)) => entry,
                Ok(None) => break None,
                Err(error) => break Some(error),
            };
            let mut data = Vec::new();
            let failure = loop {
                match entries.next_piece() {
                    Ok(Some(TarPiece::Bytes(piece))) => data.extend_from_slice(piece),
                    Ok(Some(TarPiece::Hole(bytes))) => data.extend((0..bytes).map(|_| 0)),
                    Ok(None) => break None,
                    Err(error) => break Some(error),
                }
            };
            found.push((entry, data));
            if failure.is_some() {
                break failure;
            }
        };
        (found, failure)
    }

    #[test]
    fn each_kind_of_entry_is_what_its_header_says() {
        let archive = [
            entry("file", b'0', b"hello"),
            entry("folder/", b'0', b""),
            entry("other", b'5', b""),
            entry("pipe", b'6', b""),
            entry("volume", b'V', b""),
            entry("unknown", b'Q', b"as a file"),
            end(),
        ];
        let (found, failure) = read(&archive.concat());
        assert!(failure.is_none(), "{failure:?}");
        let kinds: Vec<_> = found.iter().map(|(entry, _)| (entry.path.as_slice(), &entry.kind)).collect();
        assert_eq!(
            kinds,
            [
                (&b"file"[..], &TarKind::File),
                (b"folder/", &TarKind::Folder),
                (b"other", &TarKind::Folder),
                (b"pipe", &TarKind::Fifo),
                (b"unknown", &TarKind::File),
            ]
        );
        let (file, data) = &found[0];
        assert_eq!((file.mode, file.uid, file.gid, file.size), (0o640, 1_000, 100, 5));
        assert_eq!((file.mtime, data.as_slice()), (FileTime::new(15, 0), &b"hello"[..]));
        assert!(file.problems.is_empty() && file.lost.is_none());
    }

    #[test]
    fn an_extension_belongs_to_the_next_entry_alone() {
        let long = "n".repeat(300);
        let pax = b"16 path=x/y/z z\n30 mtime=1350244992.023960108\n";
        let archive = [
            entry("././@LongLink", b'L', long.as_bytes()),
            entry("short", b'0', b"1"),
            entry("pax", b'x', pax),
            entry("a", b'0', b"2"),
            entry("global", b'g', b"12 uid=4711\n"),
            entry("b", b'0', b"3"),
            entry("c", b'0', b"4"),
            end(),
        ];
        let (found, failure) = read(&archive.concat());
        assert!(failure.is_none(), "{failure:?}");
        let paths: Vec<_> = found.iter().map(|(entry, _)| entry.path.clone()).collect();
        assert_eq!(paths, [long.as_bytes(), b"x/y/z z", b"b", b"c"]);
        assert_eq!(found[1].0.mtime, FileTime::new(1_350_244_992, 23_960_108));
        let owners: Vec<_> = found.iter().map(|(entry, _)| entry.uid).collect();
        assert_eq!(owners, [1_000, 1_000, 4_711, 4_711], "a global header holds for all that follow");
    }

    #[test]
    fn a_malformed_value_is_noted_and_that_of_the_header_holds() {
        let archive = [entry("pax", b'x', b"13 size=-1\n\n"), entry("a", b'0', b"hello"), end()].concat();
        let (found, failure) = read(&archive);
        assert!(failure.is_none(), "{failure:?}");
        let (entry, data) = &found[0];
        assert!(!entry.problems.is_empty());
        assert_eq!((data.as_slice(), entry.size), (&b"hello"[..], 5));
    }

    #[test]
    fn a_sparse_file_has_its_holes_and_a_wrong_map_loses_it() {
        let map =
            |size| format!("22 GNU.sparse.major=1\n22 GNU.sparse.minor=0\n26 GNU.sparse.realsize={size}\n");
        let mut data = b"1\n10\n5\n".to_vec();
        data.resize(BLOCK_BYTES, 0);
        data.extend_from_slice(b"bytes");
        let archive = |size| {
            [
                entry("x", b'x', map(size).as_bytes()),
                entry("s", b'0', &data),
                entry("next", b'0', b"!"),
                end(),
            ]
            .concat()
        };
        let (found, failure) = read(&archive(99));
        assert!(failure.is_none(), "{failure:?}");
        let mut whole = vec![0; 99];
        whole[10..15].copy_from_slice(b"bytes");
        assert_eq!((found[0].0.size, &found[0].1), (99, &whole));
        // The map leads beyond the end of the file.
        let (found, failure) = read(&archive(12));
        assert!(failure.is_none(), "{failure:?}");
        assert!(matches!(found[0].0.lost, Some(TarError::Sparse { .. })) && found[0].1.is_empty());
        assert_eq!(found[1].1, b"!", "the entries behind it are read");
    }

    #[test]
    fn an_archive_that_is_cut_short_says_where() {
        let whole = [entry("a", b'0', &[1; 700]), entry("b", b'0', b"2"), end()].concat();
        let data_end = BLOCK_BYTES + 700;
        for cut in 1..whole.len() - BLOCK_BYTES {
            let (found, failure) = read(&whole[..cut]);
            assert!(failure.is_some(), "cut at {cut}, {} entries were read", found.len());
            assert_eq!(found.first().is_some_and(|(_, data)| data.len() == 700), cut >= data_end, "{cut}");
        }
        assert!(read(&whole[..whole.len() - BLOCK_BYTES]).1.is_none(), "one block of zeros is an end");
    }

    #[test]
    fn a_name_of_any_length_costs_bounded_memory() {
        let mut long = header("././@LongLink", b'L', 0);
        long[124..136].copy_from_slice(b"\x80\0\0\0\0\0\x01\0\0\0\0\0");
        let archive = [signed(long), entry("a", b'0', b"1"), end()].concat();
        // The claimed name would fill a terabyte, so the next header is searched.
        let mut entries = TarEntries::new(archive.as_slice()).of_length(archive.len() as u64);
        let found = entries.next_entry().unwrap().unwrap();
        assert_eq!(found.path, b"a");
        assert!(
            matches!(found.lost, Some(TarError::Extension { bytes, .. }) if bytes == 1 << 40),
            "{found:?}"
        );
        assert!(matches!(read(&archive).1, Some(TarError::Truncated { .. })), "the length is not known");
    }

    proptest! {
        #[test]
        fn names_and_contents_come_back(
            files in prop::collection::vec(("[a-z]{1,90}", prop::collection::vec(any::<u8>(), 0..1_500)), 0..6),
        ) {
            let entries = files.iter().flat_map(|(name, data)| entry(name, b'0', data));
            let archive: Vec<u8> = entries.chain(end()).collect();
            let (found, failure) = read(&archive);
            prop_assert!(failure.is_none());
            let found = found.into_iter().map(|(entry, data)| (String::from_utf8(entry.path).unwrap(), data));
            prop_assert_eq!(found.collect::<Vec<_>>(), files);
        }
    }
}
