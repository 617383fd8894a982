//! Contents of logged files: an extent of the log replaces all that the file had in its place.

use super::LogReplay;
use crate::bytes::fields::{put, u8_at, u64_at};
use crate::file_systems::btrfs::key::{TreeKey, kind};
use crate::file_systems::file_system::FileSystemError;

const FORM_AT: usize = 20;
const ADDRESS_AT: usize = 21;
const OFFSET_AT: usize = 37;
const LENGTH_AT: usize = 45;
const STORED_BYTES: usize = 53;

/// The place of an extent in its file.
struct ExtentPlace {
    start: u64,
    end: u64,
    /// The bytes of the file that it stores.
    stored_bytes: u64,
    is_inline: bool,
}

impl LogReplay<'_> {
    fn place(&self, start: u64, data: &[u8]) -> Result<ExtentPlace, FileSystemError> {
        let no_end = || self.contradiction("an extent has no end");
        if u8_at(data, FORM_AT) == 0 {
            let length = u64_at(data, 8);
            let sector_bytes = u64::from(self.trees.superblock().sector_bytes);
            let end = start.checked_add(length).and_then(|end| end.checked_next_multiple_of(sector_bytes));
            let end = end.ok_or_else(no_end)?;
            return Ok(ExtentPlace { start, end, stored_bytes: length, is_inline: true });
        }
        if data.len() < STORED_BYTES || u8_at(data, FORM_AT) > 2 {
            return Err(self.contradiction("an extent is of an unknown form"));
        }
        let length = u64_at(data, LENGTH_AT);
        let end = start.checked_add(length).ok_or_else(no_end)?;
        let stored_bytes = if u64_at(data, ADDRESS_AT) == 0 { 0 } else { length };
        Ok(ExtentPlace { start, end, stored_bytes, is_inline: false })
    }

    /// Removes what a file has between two offsets, and takes it off its stored bytes.
    pub(super) fn free_range(&mut self, number: u64, start: u64, end: u64) -> Result<(), FileSystemError> {
        let key = |offset| TreeKey::new(number, kind::FILE_EXTENT, offset);
        let root = self.subvolume.root;
        let before = self.trees.last_patched_up_to(&root, &self.patch, &key(start))?;
        let before = before.filter(|item| item.key().is_beside(&key(0)));
        let mut next = Some(before.map_or(key(start), |item| item.key()));
        let mut freed = 0_u64;
        while let Some(batch) = self.next_batch(&mut next, key(end.saturating_sub(1)))? {
            for item in batch {
                freed = freed.saturating_add(self.cut(item.key(), item.data(), start, end)?);
            }
        }
        if freed > 0 {
            let mut inode = self.existing_inode(number)?;
            inode.set_stored_bytes(inode.stored_bytes().saturating_sub(freed));
            self.set_inode(number, inode)?;
        }
        Ok(())
    }

    /// Cuts a range out of an extent. Returns the stored bytes that are cut out.
    fn cut(&mut self, key: TreeKey, data: &[u8], start: u64, end: u64) -> Result<u64, FileSystemError> {
        let place = self.place(key.offset, data)?;
        if place.end <= start || place.start >= end {
            return Ok(0);
        }
        if place.start >= start && place.end <= end {
            self.remove(key)?;
            return Ok(place.stored_bytes);
        }
        if place.is_inline {
            return Err(self.contradiction("it replaces a part of an inline extent"));
        }
        if place.start < start {
            let mut left = data.to_vec();
            put(&mut left, LENGTH_AT, &start.saturating_sub(place.start).to_le_bytes());
            self.set(key, left)?;
        } else {
            self.remove(key)?;
        }
        if place.end > end {
            let offset = u64_at(data, OFFSET_AT).saturating_add(end.saturating_sub(place.start));
            let mut right = data.to_vec();
            put(&mut right, OFFSET_AT, &offset.to_le_bytes());
            put(&mut right, LENGTH_AT, &place.end.saturating_sub(end).to_le_bytes());
            self.set(TreeKey { offset: end, ..key }, right)?;
        }
        let length = place.end.min(end).saturating_sub(place.start.max(start));
        Ok(if place.stored_bytes > 0 { length } else { 0 })
    }

    /// Replays an extent of a file.
    pub(super) fn replay_extent(&mut self, key: &TreeKey, data: &[u8]) -> Result<(), FileSystemError> {
        let place = self.place(key.offset, data)?;
        self.existing_inode(key.object)?;
        if !place.is_inline && self.item(key)?.is_some_and(|item| item.data() == data) {
            return Ok(());
        }
        self.free_range(key.object, place.start, place.end)?;
        self.set(*key, data.to_vec())?;
        let mut inode = self.existing_inode(key.object)?;
        inode.set_stored_bytes(inode.stored_bytes().saturating_add(place.stored_bytes));
        self.set_inode(key.object, inode)
    }
}
