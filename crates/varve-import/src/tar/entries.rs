//! The entries of a tar stream, one after the other. Nothing is read twice.
#![deny(clippy::unwrap_used, clippy::indexing_slicing, clippy::arithmetic_side_effects)]

use std::io::{self, Read};

use varve_image::{DeviceNumber, FileTime, Xattr};

use super::header::{BLOCK_BYTES, Header, HeaderBlock, HeaderError, more_pairs};
use super::pax::{PaxError, PaxRecords};
use super::sparse::{LeadingMap, RANGE_COUNT_MAX, SparseError, SparseMap, listed, ranges};

/// The longest long name of GNU, and the longest PAX header.
const EXTENSION_BYTES_MAX: u64 = 16 << 20;
/// Bytes of data that are read at a time.
const PIECE_BYTES: usize = 256 << 10;

/// Why the rest of a tar stream cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum TarError {
    #[error("the archive cannot be read")]
    Read(#[from] io::Error),
    #[error("the archive is cut short at byte {offset}")]
    Truncated { offset: u64 },
    #[error("byte {offset}: {source}")]
    Header { offset: u64, source: HeaderError },
    #[error("byte {offset}: {source}")]
    Pax { offset: u64, source: PaxError },
    #[error("byte {offset}: {source}")]
    Sparse { offset: u64, source: SparseError },
    #[error("byte {offset}: a name or an attribute has more than {EXTENSION_BYTES_MAX} bytes")]
    Extension { offset: u64 },
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
#[derive(Debug, Clone, PartialEq, Eq)]
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
        let mut own = PaxRecords::default();
        let (mut long_name, mut long_link) = (None, None);
        loop {
            let begun = self.offset;
            let Some(block) = self.read_block()? else { return Ok(None) };
            let in_header = |source| TarError::Header { offset: begun, source };
            let Some(header) = Header::new(&block).map_err(in_header)? else { return Ok(None) };
            let size = header.size().map_err(in_header)?;
            match header.kind() {
                b'x' | b'X' => {
                    let records = self.extension(size)?;
                    own.add(&records).map_err(|source| TarError::Pax { offset: begun, source })?;
                }
                b'g' => {
                    let records = self.extension(size)?;
                    self.global.add(&records).map_err(|source| TarError::Pax { offset: begun, source })?;
                }
                b'L' => long_name = Some(until_zero(self.extension(size)?)),
                b'K' => long_link = Some(until_zero(self.extension(size)?)),
                // The name of the volume.
                b'V' => self.begin_data(size),
                _ => {
                    let records = own.over(&self.global);
                    if records.bytes() as u64 > EXTENSION_BYTES_MAX.saturating_mul(2) {
                        return Err(TarError::Extension { offset: begun });
                    }
                    return self.entry(&header, &records, long_name, long_link, begun).map(Some);
                }
            }
            self.skip_rest()?;
        }
    }

    fn entry(
        &mut self,
        header: &Header<'_>,
        records: &PaxRecords,
        long_name: Option<Vec<u8>>,
        long_link: Option<Vec<u8>>,
        begun: u64,
    ) -> Result<TarEntry, TarError> {
        let in_header = |source| TarError::Header { offset: begun, source };
        let in_pax = |source| TarError::Pax { offset: begun, source };
        let in_map = |source| TarError::Sparse { offset: begun, source };
        let pax = |key: &str| records.get(key).map(<[u8]>::to_vec);
        let mut path = pax("path").or(long_name).unwrap_or_else(|| header.name());
        let target = pax("linkpath").or(long_link).unwrap_or_else(|| header.link_name());
        let data_bytes = match records.number("size").map_err(in_pax)? {
            Some(size) => size,
            None => header.size().map_err(in_header)?,
        };
        let device = || -> Result<DeviceNumber, TarError> {
            let (major, minor) = header.device().map_err(in_header)?;
            let number = |value| u32::try_from(value).map_err(|_| in_header(HeaderError::Number));
            Ok(DeviceNumber { major: number(major)?, minor: number(minor)? })
        };
        let is_folder_name = path.last() == Some(&b'/');
        let mut has_data = false;
        let kind = match header.kind() {
            b'1' => TarKind::HardLink { target },
            b'2' => TarKind::SymbolicLink { target },
            b'3' => TarKind::CharacterDevice(device()?),
            b'4' => TarKind::BlockDevice(device()?),
            b'5' | b'D' => TarKind::Folder,
            b'6' => TarKind::Fifo,
            0 | b'0' if is_folder_name => TarKind::Folder,
            kind @ (b'M' | b'N') => {
                return Err(TarError::Unsupported { offset: begun, kind: char::from(kind) });
            }
            // POSIX: unknown types are read as files.
            _ => {
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
                let (mut ranges, mut more) = header.sparse().map_err(in_header)?;
                while more {
                    let block = self.read_block()?.ok_or(TarError::Truncated { offset: begun })?;
                    let (next, has_more) = more_pairs(&block).map_err(in_header)?;
                    ranges.extend(next);
                    more = has_more;
                    if ranges.len() > RANGE_COUNT_MAX {
                        return Err(in_map(SparseError));
                    }
                }
                let size = header.real_size().map_err(in_header)?;
                Some(SparseMap::new(ranges, size, data_bytes).map_err(in_map)?)
            } else {
                self.pax_map(records, data_bytes, begun)?
            };
            if let Some(name) = records.get("GNU.sparse.name") {
                path = name.to_vec();
            }
            size = map.as_ref().map_or(data_bytes, |map| map.size);
            if let Some(map) = map {
                (self.map, self.next_range, self.range_left, self.position) = (map, 0, 0, 0);
            }
        }
        let number = |key: &str, own: Result<i64, HeaderError>| -> Result<u32, TarError> {
            let value = match records.number(key).map_err(in_pax)? {
                Some(value) => value,
                None => u64::try_from(own.map_err(in_header)?).unwrap_or(0),
            };
            Ok(u32::try_from(value).unwrap_or(u32::MAX))
        };
        let mtime = match records.time("mtime").map_err(in_pax)? {
            Some(time) => time,
            None => FileTime::new(header.mtime().map_err(in_header)?, 0),
        };
        let mode = header.mode().map_err(in_header)? & 0o7777;
        let (xattrs, has_text_acl) = records.xattrs();
        Ok(TarEntry {
            path,
            kind,
            mode: u16::try_from(mode).unwrap_or(0),
            uid: number("uid", header.uid())?,
            gid: number("gid", header.gid())?,
            mtime,
            xattrs,
            has_text_acl,
            size,
        })
    }

    /// The map of a sparse file in PAX headers.
    fn pax_map(
        &mut self,
        records: &PaxRecords,
        data_bytes: u64,
        begun: u64,
    ) -> Result<Option<SparseMap>, TarError> {
        let in_pax = |source| TarError::Pax { offset: begun, source };
        let in_map = |source| TarError::Sparse { offset: begun, source };
        if records.get("GNU.sparse.major") == Some(b"1") {
            let real = records.number("GNU.sparse.realsize").map_err(in_pax)?;
            let mut map = LeadingMap::default();
            loop {
                if self.data_left < BLOCK_BYTES as u64 {
                    return Err(in_map(SparseError));
                }
                let block = self.read_block()?.ok_or(TarError::Truncated { offset: begun })?;
                self.data_left = self.data_left.saturating_sub(BLOCK_BYTES as u64);
                if let Some(found) = map.add(&block).map_err(in_map)? {
                    let size = real.ok_or_else(|| in_map(SparseError))?;
                    return SparseMap::new(found, size, self.data_left).map(Some).map_err(in_map);
                }
            }
        }
        let numbers = match records.get("GNU.sparse.map") {
            Some(text) => listed(text).map_err(in_map)?,
            None if records.pairs().is_empty() => return Ok(None),
            None => records.pairs().to_vec(),
        };
        let size = match records.number("GNU.sparse.size").map_err(in_pax)? {
            Some(size) => size,
            None => {
                records.number("GNU.sparse.realsize").map_err(in_pax)?.ok_or_else(|| in_map(SparseError))?
            }
        };
        SparseMap::new(ranges(&numbers).map_err(in_map)?, size, data_bytes).map(Some).map_err(in_map)
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

    /// The data of an entry that extends the next one.
    fn extension(&mut self, size: u64) -> Result<Vec<u8>, TarError> {
        if size > EXTENSION_BYTES_MAX {
            return Err(TarError::Extension { offset: self.offset });
        }
        self.begin_data(size);
        let mut bytes = Vec::new();
        Read::by_ref(&mut self.stream).take(size).read_to_end(&mut bytes)?;
        self.offset = self.offset.saturating_add(bytes.len() as u64);
        if (bytes.len() as u64) < size {
            return Err(TarError::Truncated { offset: self.offset });
        }
        self.data_left = 0;
        Ok(bytes)
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

fn until_zero(mut bytes: Vec<u8>) -> Vec<u8> {
    let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    bytes.truncate(end);
    bytes
}
