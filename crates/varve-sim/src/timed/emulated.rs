//! A storage that keeps generated blocks by their number alone.

mod generated;

pub use generated::GeneratedBlock;

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

use memchr::memmem::Finder;
use parking_lot::Mutex;
use varve_block::to_usize;
use varve_world::{FileLock, FileName, LockError, Storage, forward_storage};

use generated::MAGIC;

/// A storage in front of another one. It finds [`GeneratedBlock`]s in the bytes that are appended,
/// and keeps their numbers instead. All other bytes, and files without such blocks, go to the inner
/// storage. Reads generate the blocks again, so every byte that was written can be read.
///
/// A run of blocks at equal distances takes some fifty bytes of memory, however long it is.
pub struct EmulatedStorage {
    inner: Arc<dyn Storage>,
    /// The files with generated blocks.
    files: Mutex<BTreeMap<FileName, EmulatedFile>>,
    finder: Finder<'static>,
}

/// A file with generated blocks: pieces without gaps, and the bytes between the blocks in the file
/// of the same name in the inner storage.
#[derive(Debug, Clone, Default)]
struct EmulatedFile {
    pieces: Vec<Piece>,
    bytes: u64,
    inner_bytes: u64,
}

#[derive(Debug, Clone, Copy)]
struct Piece {
    /// The place in the file.
    at: u64,
    /// The place in the inner file of the first bytes that are kept there.
    inner_at: u64,
    content: PieceContent,
}

#[derive(Debug, Clone, Copy)]
enum PieceContent {
    /// All bytes are in the inner file.
    Kept { bytes: u64 },
    /// Blocks of consecutive numbers. The `gap` bytes between two of them are in the inner file.
    Blocks { first: GeneratedBlock, count: u64, gap: u64 },
}

impl Piece {
    fn bytes(&self) -> u64 {
        match self.content {
            PieceContent::Kept { bytes } => bytes,
            PieceContent::Blocks { first, count, gap } => count * (u64::from(first.bytes) + gap) - gap,
        }
    }
}

impl EmulatedFile {
    /// Adds bytes that are at the end of the inner file.
    fn add_kept(&mut self, count: u64) {
        if count == 0 {
            return;
        }
        match self.pieces.last_mut().map(|last| &mut last.content) {
            Some(PieceContent::Kept { bytes }) => *bytes += count,
            _ => {
                let content = PieceContent::Kept { bytes: count };
                self.pieces.push(Piece { at: self.bytes, inner_at: self.inner_bytes, content });
            }
        }
        self.bytes += count;
        self.inner_bytes += count;
    }

    fn add_block(&mut self, block: GeneratedBlock) {
        self.bytes += u64::from(block.bytes);
        let between = match self.pieces.last().map(|last| last.content) {
            Some(PieceContent::Kept { bytes }) => bytes,
            _ => 0,
        };
        let run = self.pieces.len().checked_sub(if between > 0 { 2 } else { 1 });
        if let Some(place) = run
            && let PieceContent::Blocks { first, count, gap } = &mut self.pieces[place].content
            && block == (GeneratedBlock { number: first.number.wrapping_add(*count), ..*first })
            && (*count == 1 || *gap == between)
        {
            (*count, *gap) = (*count + 1, between);
            self.pieces.truncate(place + 1);
            return;
        }
        let content = PieceContent::Blocks { first: block, count: 1, gap: 0 };
        let at = self.bytes - u64::from(block.bytes);
        self.pieces.push(Piece { at, inner_at: self.inner_bytes, content });
    }

    /// Calls `part` for each part of `into`, which is read from `offset` on: with the place of the
    /// part in `into`, and its source.
    fn each_part(
        &self,
        offset: u64,
        into: &mut [u8],
        part: &mut dyn FnMut(&mut [u8], PartSource) -> io::Result<()>,
    ) -> io::Result<()> {
        let end = offset.checked_add(into.len() as u64).filter(|end| *end <= self.bytes);
        end.ok_or(io::ErrorKind::UnexpectedEof)?;
        let mut place = self.pieces.partition_point(|piece| piece.at + piece.bytes() <= offset);
        let (mut at, mut rest) = (offset, into);
        while !rest.is_empty() {
            let piece = &self.pieces[place];
            let within = at - piece.at;
            let (source, left) = match piece.content {
                PieceContent::Kept { bytes } => (PartSource::Kept(piece.inner_at + within), bytes - within),
                PieceContent::Blocks { first, gap, .. } => {
                    let length = u64::from(first.bytes);
                    let (number, inside) = (within / (length + gap), within % (length + gap));
                    if inside < length {
                        let block = GeneratedBlock { number: first.number.wrapping_add(number), ..first };
                        (PartSource::Block(block, inside), length - inside)
                    } else {
                        let inner_at = piece.inner_at + number * gap + inside - length;
                        (PartSource::Kept(inner_at), length + gap - inside)
                    }
                }
            };
            let count = left.min(rest.len() as u64);
            let (one, more) = rest.split_at_mut(to_usize(count));
            part(one, source)?;
            (at, rest) = (at + count, more);
            if at == piece.at + piece.bytes() {
                place += 1;
            }
        }
        Ok(())
    }
}

enum PartSource {
    /// The inner file, from this place on.
    Kept(u64),
    /// A block, from this place in it on.
    Block(GeneratedBlock, u64),
}

impl EmulatedStorage {
    /// Keeps all bytes that are not generated in `inner`.
    #[must_use]
    pub fn new(inner: Arc<dyn Storage>) -> Self {
        Self { inner, files: Mutex::default(), finder: Finder::new(&MAGIC) }
    }

    /// Returns the bytes of all generated blocks in the files.
    #[must_use]
    pub fn generated_bytes(&self) -> u64 {
        self.files.lock().values().map(|file| file.bytes - file.inner_bytes).sum()
    }

    /// Returns the number of pieces, each of which takes some fifty bytes of memory.
    #[must_use]
    pub fn piece_count(&self) -> usize {
        self.files.lock().values().map(|file| file.pieces.len()).sum()
    }

    /// Returns the generated blocks in `bytes`, each with its place.
    fn blocks_in(&self, bytes: &[u8]) -> Vec<(usize, GeneratedBlock)> {
        let mut found = Vec::new();
        let mut at = 0;
        while let Some(place) = self.finder.find(&bytes[at..]).map(|place| at + place) {
            at = match GeneratedBlock::at_start_of(&bytes[place..]) {
                Some(block) => {
                    found.push((place, block));
                    place + block.bytes as usize
                }
                None => place + 1,
            };
        }
        found
    }
}

impl Storage for EmulatedStorage {
    forward_storage!(inner: create, sync_soon, sync, sync_folder, list);

    fn append(&self, file: &FileName, bytes: &[u8]) -> io::Result<u64> {
        let blocks = self.blocks_in(bytes);
        let mut files = self.files.lock();
        if blocks.is_empty() && !files.contains_key(file) {
            return self.inner.append(file, bytes);
        }
        if !files.contains_key(file) {
            let mut emulated = EmulatedFile::default();
            emulated.add_kept(self.inner.length(file)?);
            files.insert(file.clone(), emulated);
        }
        let emulated = files.get_mut(file).ok_or(io::ErrorKind::NotFound)?;
        let start = emulated.bytes;
        let mut kept = Vec::new();
        let mut at = 0;
        for (place, block) in &blocks {
            kept.extend_from_slice(&bytes[at..*place]);
            at = place + block.bytes as usize;
        }
        kept.extend_from_slice(&bytes[at..]);
        self.inner.append(file, &kept)?;
        at = 0;
        for (place, block) in blocks {
            emulated.add_kept((place - at) as u64);
            emulated.add_block(block);
            at = place + block.bytes as usize;
        }
        emulated.add_kept((bytes.len() - at) as u64);
        Ok(start)
    }

    fn read_at(&self, file: &FileName, offset: u64, into: &mut [u8]) -> io::Result<()> {
        let files = self.files.lock();
        let Some(emulated) = files.get(file) else { return self.inner.read_at(file, offset, into) };
        emulated.each_part(offset, into, &mut |part, source| match source {
            PartSource::Kept(at) => self.inner.read_at(file, at, part),
            PartSource::Block(block, at) => {
                block.fill(to_usize(at), part);
                Ok(())
            }
        })
    }

    fn length(&self, file: &FileName) -> io::Result<u64> {
        let known = self.files.lock().get(file).map(|emulated| emulated.bytes);
        known.map_or_else(|| self.inner.length(file), Ok)
    }

    fn truncate(&self, file: &FileName, length: u64) -> io::Result<()> {
        let mut files = self.files.lock();
        let Some(emulated) = files.get_mut(file) else { return self.inner.truncate(file, length) };
        if length > emulated.bytes {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        emulated.pieces.retain(|piece| piece.at < length);
        let Some(last) = emulated.pieces.last().copied() else {
            files.remove(file);
            return self.inner.truncate(file, 0);
        };
        let (start, inner_at) = (last.at, last.inner_at);
        // The rest of the last piece is kept as it is.
        let mut rest = vec![0; to_usize((last.at + last.bytes()).min(length) - start)];
        emulated.each_part(start, &mut rest, &mut |part, source| match source {
            PartSource::Kept(at) => self.inner.read_at(file, at, part),
            PartSource::Block(block, at) => {
                block.fill(to_usize(at), part);
                Ok(())
            }
        })?;
        emulated.pieces.pop();
        (emulated.bytes, emulated.inner_bytes) = (start, inner_at);
        self.inner.truncate(file, inner_at)?;
        self.inner.append(file, &rest)?;
        emulated.add_kept(rest.len() as u64);
        Ok(())
    }

    fn rename(&self, from: &FileName, to: &FileName) -> io::Result<()> {
        let mut files = self.files.lock();
        self.inner.rename(from, to)?;
        files.remove(to);
        if let Some(emulated) = files.remove(from) {
            files.insert(to.clone(), emulated);
        }
        Ok(())
    }

    fn remove(&self, file: &FileName) -> io::Result<()> {
        let mut files = self.files.lock();
        self.inner.remove(file)?;
        files.remove(file);
        Ok(())
    }

    fn lock(&self, file: &FileName, holder: &str) -> Result<Box<dyn FileLock>, LockError> {
        let mut files = self.files.lock();
        let held = self.inner.lock(file, holder)?;
        files.remove(file);
        Ok(held)
    }
}

#[cfg(test)]
mod tests {
    use varve_world::MemoryStorage;

    use super::*;
    use crate::SeededDraw;

    #[test]
    fn keeps_the_contract() {
        varve_world::contract::check(&mut || EmulatedStorage::new(Arc::new(MemoryStorage::new())));
    }

    fn contents(storage: &EmulatedStorage, file: &FileName) -> Vec<u8> {
        let mut read = vec![0; to_usize(storage.length(file).unwrap())];
        storage.read_at(file, 0, &mut read).unwrap();
        read
    }

    #[test]
    fn reads_return_what_was_written_whatever_it_was() {
        let file = FileName::new("arenas/1").unwrap();
        for seed in 0..200 {
            let mut draw = SeededDraw::new(seed);
            let storage = EmulatedStorage::new(Arc::new(MemoryStorage::new()));
            storage.create(&file).unwrap();
            let mut model = Vec::new();
            let mut number = 0;
            for _ in 0..20 {
                let mut bytes = Vec::new();
                for _ in 0..draw.below(6) {
                    if draw.once_in(4) {
                        number += draw.below(3);
                    }
                    let length = 25 + u32::try_from(draw.below(2)).unwrap() * 40;
                    bytes.extend(GeneratedBlock { number, bytes: length }.contents());
                    number += 1;
                    let gap: u8 = [0, 3, 3, 8][draw.index(4)];
                    bytes.extend(0..gap);
                }
                let part = if draw.once_in(5) { bytes.len() / 2 } else { bytes.len() };
                assert_eq!(storage.append(&file, &bytes[..part]).unwrap(), model.len() as u64);
                model.extend_from_slice(&bytes[..part]);
                if draw.once_in(6) {
                    let length = draw.index(model.len() + 1);
                    storage.truncate(&file, length as u64).unwrap();
                    model.truncate(length);
                }
                assert!(contents(&storage, &file) == model, "seed {seed}");
                let from = draw.index(model.len() + 1);
                let mut some = vec![0; draw.index(model.len() - from + 1)];
                storage.read_at(&file, from as u64, &mut some).unwrap();
                assert!(some == model[from..from + some.len()], "seed {seed}");
            }
        }
    }

    #[test]
    fn a_long_run_takes_one_piece() {
        let inner = MemoryStorage::new();
        let storage = EmulatedStorage::new(Arc::new(inner.clone()));
        let file = FileName::new("arenas/1").unwrap();
        storage.create(&file).unwrap();
        for number in 0..1000 {
            let mut bytes = GeneratedBlock { number, bytes: 4096 }.contents();
            bytes.extend([7; 16]);
            storage.append(&file, &bytes).unwrap();
        }
        assert_eq!(storage.generated_bytes(), 1000 * 4096);
        assert_eq!(storage.piece_count(), 2, "the run, and the bytes behind the last block");
        assert_eq!(inner.contents(&file).unwrap().len(), 16_000);
        let mut part = [0; 20];
        storage.read_at(&file, 500 * 4112 + 4094, &mut part).unwrap();
        let last = GeneratedBlock { number: 500, bytes: 4096 }.contents();
        assert_eq!((&part[..2], &part[2..18]), (&last[4094..], &[7; 16][..]));
        assert_eq!(part[18..], MAGIC[..2]);
    }
}
