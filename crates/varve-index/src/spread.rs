//! Spreads the entries of an index over several disks: a file is cut into pieces of 256 KiB, which
//! are distributed to the folders of the disks in turn.
//!
//! ```text
//! file      │ piece 0 │ piece 1 │ piece 2 │ piece 3 │ piece 4 ▪▪│
//! .1-of-2   │ piece 0 │ piece 2 │ piece 4 ▪▪│
//! .2-of-2   │ piece 1 │ piece 3 │
//! ```
//!
//! A file exists if all its parts exist, and its length is their sum; parts whose lengths do not
//! fit together are no file. The name of a part includes the number of parts, so a part that was
//! written for another set of folders is never used. The contents are not checked here: each page
//! of an index has a code that identifies its index.

use std::collections::BTreeSet;
use std::io;
use std::sync::Arc;

use varve_block::to_usize;
use varve_world::{FileLock, FileName, LockError, Storage};

/// The bytes of a piece: the unit in which a pass reads and writes.
const PIECE_BYTES: u64 = 256 << 10;

/// A store's folder, with the index's files of entries in other folders.
pub struct SpreadStorage {
    own: Arc<dyn Storage>,
    places: Vec<Arc<dyn Storage>>,
    is_spread: fn(&FileName) -> bool,
}

/// Returns true for a file of entries of an index on disk.
fn is_run(file: &FileName) -> bool {
    file.as_str().starts_with("index/disk-")
}

/// Returns the name of the file to which a part belongs.
fn whole_of(part: &FileName) -> Option<FileName> {
    let (whole, number) = part.as_str().rsplit_once('.')?;
    let (number, count) = number.split_once("-of-")?;
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    (is_number(number) && is_number(count)).then(|| FileName::new(whole).ok())?
}

impl SpreadStorage {
    /// Puts the files of entries into the folders `places`, of which there is at least one. All
    /// other files stay in the store's own folder.
    #[must_use]
    pub fn new(own: Arc<dyn Storage>, places: Vec<Arc<dyn Storage>>) -> Self {
        assert!(!places.is_empty(), "a file lies somewhere");
        Self { own, places, is_spread: is_run }
    }

    fn count(&self) -> u64 {
        self.places.len() as u64
    }

    /// Returns the parts of a file and their folders.
    fn parts(&self, file: &FileName) -> impl Iterator<Item = (&dyn Storage, FileName)> {
        let count = self.places.len();
        let name = move |number: usize| FileName::new(&format!("{file}.{}-of-{count}", number + 1));
        self.places.iter().enumerate().map(move |(number, place)| {
            (place.as_ref(), name(number).expect("a plain name with a plain ending"))
        })
    }

    /// Returns the length of part `number` of a file of `length` bytes.
    fn part_length(&self, number: u64, length: u64) -> u64 {
        let (pieces, rest) = (length / PIECE_BYTES, length % PIECE_BYTES);
        let (rounds, begun) = (pieces / self.count(), pieces % self.count());
        let more = match number.cmp(&begun) {
            std::cmp::Ordering::Less => PIECE_BYTES,
            std::cmp::Ordering::Equal => rest,
            std::cmp::Ordering::Greater => 0,
        };
        rounds * PIECE_BYTES + more
    }

    /// Cuts the bytes from `offset` on at the ends of pieces. Returns, for each, the length, the
    /// number of the part, and the offset in the part.
    fn cut(&self, offset: u64, length: usize) -> impl Iterator<Item = (usize, usize, u64)> {
        let count = self.count();
        let (mut offset, mut left) = (offset, length as u64);
        std::iter::from_fn(move || {
            if left == 0 {
                return None;
            }
            let (piece, within) = (offset / PIECE_BYTES, offset % PIECE_BYTES);
            let taken = left.min(PIECE_BYTES - within);
            let place = piece / count * PIECE_BYTES + within;
            (offset, left) = (offset + taken, left - taken);
            // Neither exceeds a length in memory or the number of folders.
            Some((to_usize(taken), to_usize(piece % count), place))
        })
    }

    fn each_part(
        &self,
        file: &FileName,
        mut act: impl FnMut(&dyn Storage, &FileName) -> io::Result<()>,
    ) -> io::Result<()> {
        self.parts(file).try_for_each(|(place, part)| act(place, &part))
    }

    fn remove_by(
        &self,
        file: &FileName,
        remove: impl Fn(&dyn Storage, &FileName) -> io::Result<()>,
    ) -> io::Result<()> {
        if !(self.is_spread)(file) {
            return remove(&*self.own, file);
        }
        let mut is_there = remove(&*self.own, file).is_ok();
        for place in &self.places {
            let parts = place.list(file.folder())?;
            for part in parts.iter().filter(|part| whole_of(part).as_ref() == Some(file)) {
                remove(&**place, part)?;
                is_there = true;
            }
        }
        if is_there { Ok(()) } else { Err(io::ErrorKind::NotFound.into()) }
    }
}

impl Storage for SpreadStorage {
    fn create(&self, file: &FileName) -> io::Result<()> {
        if !(self.is_spread)(file) {
            return self.own.create(file);
        }
        for (number, (place, part)) in self.parts(file).enumerate() {
            if let Err(error) = place.create(&part) {
                for (place, part) in self.parts(file).take(number) {
                    let _ = place.remove(&part);
                }
                return Err(error);
            }
        }
        Ok(())
    }

    fn append(&self, file: &FileName, bytes: &[u8]) -> io::Result<u64> {
        if !(self.is_spread)(file) {
            return self.own.append(file, bytes);
        }
        let begin = self.length(file)?;
        let parts: Vec<_> = self.parts(file).collect();
        let mut rest = bytes;
        for (length, number, _) in self.cut(begin, bytes.len()) {
            let (piece, after) = rest.split_at(length);
            let (place, part) = &parts[number];
            place.append(part, piece)?;
            rest = after;
        }
        Ok(begin)
    }

    fn read_at(&self, file: &FileName, offset: u64, into: &mut [u8]) -> io::Result<()> {
        if !(self.is_spread)(file) {
            return self.own.read_at(file, offset, into);
        }
        let mut rest = into;
        for (length, number, at) in self.cut(offset, rest.len()) {
            let (piece, after) = rest.split_at_mut(length);
            let (place, part) = self.parts(file).nth(number).expect("one for each place");
            place.read_at(&part, at, piece)?;
            rest = after;
        }
        Ok(())
    }

    fn length(&self, file: &FileName) -> io::Result<u64> {
        if !(self.is_spread)(file) {
            return self.own.length(file);
        }
        let lengths: Vec<_> =
            self.parts(file).map(|(place, part)| place.length(&part)).collect::<Result<_, _>>()?;
        let length = lengths.iter().fold(0_u64, |sum, part| sum.saturating_add(*part));
        match (0..).zip(&lengths).find(|(number, part)| self.part_length(*number, length) != **part) {
            None => Ok(length),
            Some((number, part)) => {
                let text = format!(
                    "part {} of {file} has {part} bytes, which does not match the other parts",
                    number + 1
                );
                Err(io::Error::new(io::ErrorKind::InvalidData, text))
            }
        }
    }

    fn truncate(&self, file: &FileName, length: u64) -> io::Result<()> {
        if !(self.is_spread)(file) {
            return self.own.truncate(file, length);
        }
        if self.length(file)? < length {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let mut number = 0;
        self.each_part(file, |place, part| {
            number += 1;
            place.truncate(part, self.part_length(number - 1, length))
        })
    }

    fn sync_soon(&self, file: &FileName) {
        if (self.is_spread)(file) {
            self.parts(file).for_each(|(place, part)| place.sync_soon(&part));
        } else {
            self.own.sync_soon(file);
        }
    }

    fn sync(&self, file: &FileName) -> io::Result<()> {
        if !(self.is_spread)(file) {
            return self.own.sync(file);
        }
        // The names of the parts are synced too: a later sync of the store's own folder promises
        // that the file exists.
        self.each_part(file, |place, part| {
            place.sync(part)?;
            place.sync_folder(part.folder())
        })
    }

    fn sync_folder(&self, folder: &str) -> io::Result<()> {
        self.own.sync_folder(folder)
    }

    fn rename(&self, from: &FileName, to: &FileName) -> io::Result<()> {
        if !(self.is_spread)(from) {
            return self.own.rename(from, to);
        }
        self.parts(from).zip(self.parts(to)).try_for_each(|((place, from), (_, to))| place.rename(&from, &to))
    }

    /// Removes the file, and parts with its name that were written for other sets of folders.
    fn remove(&self, file: &FileName) -> io::Result<()> {
        self.remove_by(file, |place, part| place.remove(part))
    }

    fn remove_and_free_soon(&self, file: &FileName) -> io::Result<()> {
        self.remove_by(file, |place, part| place.remove_and_free_soon(part))
    }

    /// A file is listed if any part of it exists.
    fn list(&self, folder: &str) -> io::Result<Vec<FileName>> {
        let mut files: BTreeSet<_> = self.own.list(folder)?.into_iter().collect();
        for place in &self.places {
            let listed = place.list(folder)?;
            files.extend(listed.iter().filter_map(whole_of).filter(|file| (self.is_spread)(file)));
        }
        Ok(files.into_iter().collect())
    }

    fn lock(&self, file: &FileName, holder: &str) -> Result<Box<dyn FileLock>, LockError> {
        self.own.lock(file, holder)
    }
}

#[cfg(test)]
mod tests {
    use varve_world::{MemoryStorage, contract};

    use super::*;

    fn spread(count: usize) -> (SpreadStorage, Vec<MemoryStorage>) {
        let places: Vec<_> = (0..count).map(|_| MemoryStorage::new()).collect();
        let folders = places.iter().map(|place| Arc::new(place.clone()) as Arc<dyn Storage>).collect();
        (SpreadStorage::new(Arc::new(MemoryStorage::new()), folders), places)
    }

    #[test]
    fn it_keeps_the_contract_with_all_files_spread_and_with_none() {
        // A file that is locked is the store's own, and is never spread.
        let is_spread = |file: &FileName| !file.as_str().ends_with("lock");
        for count in [1, 3] {
            contract::check(&mut || spread(count).0);
            contract::check(&mut || SpreadStorage { is_spread, ..spread(count).0 });
        }
    }

    #[test]
    fn pieces_lie_in_the_folders_in_turn_and_are_put_together_again() {
        let file = FileName::new("index/disk-0000000001").unwrap();
        let piece = to_usize(PIECE_BYTES);
        let bytes: Vec<u8> =
            (0..=250_u8).cycle().flat_map(|byte| [byte; 1000]).take(piece * 7 + 1000).collect();
        for count in 1..5 {
            let (spread, places) = spread(count);
            spread.create(&file).unwrap();
            for part in bytes.chunks(piece / 3 + 7) {
                spread.append(&file, part).unwrap();
            }
            assert_eq!(spread.length(&file).unwrap(), bytes.len() as u64);
            for (offset, length) in
                [(0, bytes.len()), (piece - 1, 2), (5 * piece + 3, piece), (7 * piece, 1000)]
            {
                let mut read = vec![0; length];
                spread.read_at(&file, offset as u64, &mut read).unwrap();
                assert!(read == bytes[offset..offset + length], "{offset} in {count} parts");
            }
            for (number, place) in places.iter().enumerate() {
                let part = FileName::new(&format!("{file}.{}-of-{count}", number + 1)).unwrap();
                assert!(
                    place.contents(&part).unwrap()[..piece] == bytes[number * piece..(number + 1) * piece]
                );
            }
        }
    }

    #[test]
    fn parts_that_do_not_fit_are_no_file() {
        let file = FileName::new("index/disk-0000000001").unwrap();
        let (spread, places) = spread(2);
        spread.create(&file).unwrap();
        spread.append(&file, &vec![1; 3 << 20]).unwrap();
        let part = FileName::new("index/disk-0000000001.2-of-2").unwrap();
        places[1].truncate(&part, 4096).unwrap();
        assert_eq!(spread.length(&file).unwrap_err().kind(), io::ErrorKind::InvalidData);
        places[1].remove(&part).unwrap();
        assert_eq!(spread.length(&file).unwrap_err().kind(), io::ErrorKind::NotFound);
        // The remaining part is listed, and can be removed.
        assert_eq!(spread.list("index").unwrap(), std::slice::from_ref(&file));
        spread.remove(&file).unwrap();
        assert!(places[0].names().is_empty());
    }
}
