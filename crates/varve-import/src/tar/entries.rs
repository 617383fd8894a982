//! The entries of a tar stream, one after the other. Nothing is read twice.
#![deny(clippy::unwrap_used, clippy::indexing_slicing, clippy::arithmetic_side_effects)]

use std::io::{self, Read};

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
        let EntryParts { long_name, long_link, mut problems, mut lost, .. } = found;
        let in_header = |source| TarError::Header { offset: begun, source };
        let in_pax = |source| TarError::Pax { offset: begun, source };
        let pax = |key: &str| records.get(key).map(<[u8]>::to_vec);
        let mut path = pax("path").or(long_name).unwrap_or_else(|| header.name());
        let target = pax("linkpath").or(long_link).unwrap_or_else(|| header.link_name());
        let data_bytes = records.number("size").map_err(in_pax);
        let data_bytes = or_note(data_bytes, &mut problems).flatten().unwrap_or(header_size);
        let device = || -> Result<DeviceNumber, HeaderError> {
            let (major, minor) = header.device()?;
            let number = |value| u32::try_from(value).map_err(|_| HeaderError::Number);
            Ok(DeviceNumber { major: number(major)?, minor: number(minor)? })
        };
        let mut or_lost = |device: Result<DeviceNumber, HeaderError>| {
            device.unwrap_or_else(|source| {
                lost = Some(in_header(source));
                DeviceNumber { major: 0, minor: 0 }
            })
        };
        let is_folder_name = path.last() == Some(&b'/');
        let mut has_data = false;
        let kind = match header.kind() {
            b'1' => TarKind::HardLink { target },
            b'2' => TarKind::SymbolicLink { target },
            b'3' => TarKind::CharacterDevice(or_lost(device())),
            b'4' => TarKind::BlockDevice(or_lost(device())),
            b'5' | b'D' => TarKind::Folder,
            b'6' => TarKind::Fifo,
            0 | b'0' if is_folder_name => TarKind::Folder,
            // POSIX: unknown types are read as files.
            kind => {
                if matches!(kind, b'M' | b'N') {
                    lost = Some(TarError::Unsupported { offset: begun, kind: char::from(kind) });
                }
                has_data = true;
                TarKind::File
            }
        };
        // The size of a link is that of its file, whose data does not follow. The list of names in
        // a folder of an incremental archive is skipped.
        let follows = has_data || header.kind() == b'D';
        self.begin_data(if follows { data_bytes } else { 0 });
        let mut size = 0;
        if has_data {
            let map = if header.kind() == b'S' {
                self.gnu_map(header, data_bytes, begun)?
            } else {
                self.pax_map(records, data_bytes, begun)?
            };
            if let Some(name) = records.get("GNU.sparse.name") {
                path = name.to_vec();
            }
            match map {
                Ok(None) => size = data_bytes,
                Ok(Some(map)) => {
                    size = map.size;
                    (self.map, self.next_range, self.range_left, self.position) = (map, 0, 0, 0);
                }
                Err(source) => lost = lost.or(Some(TarError::Sparse { offset: begun, source })),
            }
        }
        if lost.is_some() {
            size = 0;
            self.map = SparseMap { ranges: Vec::new(), size: 0 };
            (self.next_range, self.range_left, self.position) = (0, 0, 0);
        }
        let mut number = |key: &str, own: Result<i64, HeaderError>| -> u32 {
            let given = or_note(records.number(key).map_err(in_pax), &mut problems).flatten();
            let mut own = || or_note(own.map_err(in_header), &mut problems).map_or(0, |own| own.max(0));
            u32::try_from(given.unwrap_or_else(|| own().cast_unsigned())).unwrap_or(u32::MAX)
        };
        let (uid, gid) = (number("uid", header.uid()), number("gid", header.gid()));
        let given = or_note(records.time("mtime").map_err(in_pax), &mut problems).flatten();
        let mtime = given.unwrap_or_else(|| {
            let seconds = or_note(header.mtime().map_err(in_header), &mut problems).unwrap_or(0);
            FileTime::new(seconds, 0)
        });
        let mode = or_note(header.mode().map_err(in_header), &mut problems).unwrap_or(0o600) & 0o7777;
        let PaxXattrs { xattrs, has_text_acl, has_malformed } = records.xattrs();
        if has_malformed {
            problems.push(in_pax(PaxError));
        }
        let mode = u16::try_from(mode).unwrap_or(0);
        Ok(TarEntry { path, kind, mode, uid, gid, mtime, xattrs, has_text_acl, size, problems, lost })
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
        let wanted =
            usize::try_from(self.range_left.min(self.data_left)).unwrap_or(PIECE_BYTES).min(PIECE_BYTES);
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
        self.map = SparseMap { ranges: vec![(0, bytes)], size: bytes };
        (self.next_range, self.range_left, self.position) = (0, 0, 0);
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

/// The value, or `None` and the problem that there is none.
fn or_note<T>(value: Result<T, TarError>, problems: &mut Vec<TarError>) -> Option<T> {
    match value {
        Ok(value) => Some(value),
        Err(problem) => {
            problems.push(problem);
            None
        }
    }
}

fn until_zero(mut bytes: Vec<u8>) -> Vec<u8> {
    let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    bytes.truncate(end);
    bytes
}
