//! The owner of every block: no block that has two owners, or a wrong bit in a bitmap, is moved.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::{ControlFlow, Range};

use super::super::inode::ExtInode;
use super::super::{ExtFileSystem, damaged};
use super::RelocationError;
use super::untouchable::{FIRST_INODE, is_boot_name};
use crate::bytes::ranges::Ranges;
use crate::file_systems::file_system::{FileKind, FileSystemError};

/// The limit on the contiguous runs of all files, because they are kept in memory.
const CLAIMS_MAX: usize = 4 << 20;

/// Contiguous blocks of one file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Claim {
    pub(super) end: u64,
    pub(super) inode: u32,
    /// The offset of the first block in the file, in blocks; `None` for a block of its map.
    pub(super) logical: Option<u64>,
    /// True if the blocks are preallocated, and read as zeros.
    pub(super) reserved: bool,
}

/// All owners.
pub(super) struct BlockClaims {
    /// By their first block. They do not overlap.
    owned: BTreeMap<u64, Claim>,
    /// The blocks that are free, and that no file and no table claims.
    pub(super) free: Ranges,
    /// The blocks of the file system's own tables.
    pub(super) layout: Ranges,
    /// The inodes that a boot loader finds without the file system.
    pub(super) boot_files: BTreeSet<u32>,
}

impl BlockClaims {
    /// Reads every inode, every map and every name.
    pub(super) fn scan(files: &ExtFileSystem) -> Result<Self, RelocationError> {
        let mut layout = Ranges::default();
        for number in files.group_numbers() {
            let group = files.group(number)?;
            let last = files.block_count().saturating_sub(1);
            let tables = [group.block_bitmap, group.inode_bitmap, group.inode_table];
            if tables.iter().any(|table| *table == 0 || *table > last) {
                return Err(RelocationError::Inconsistent(format!("group {number} has no tables")));
            }
            files.add_exact_layout(&group, &mut layout);
        }
        let mut scan =
            Scan { files, owned: BTreeMap::new(), fixed: Ranges::default(), boot_files: BTreeSet::new() };
        let mut numbers = Vec::new();
        files.for_each_inode_in_use(|number| {
            numbers.push(number);
            Ok(())
        })?;
        for number in numbers {
            scan.add(number)?;
        }
        let Scan { owned, fixed, boot_files, .. } = scan;
        let free: Ranges = files.free_blocks()?.into_iter().collect();
        let mut taken = fixed;
        taken.extend(layout.iter());
        for (start, claim) in &owned {
            let overlaps =
                |ranges: &Ranges| ranges.next_after(*start).is_some_and(|range| range.start < claim.end);
            if overlaps(&taken) {
                let problem = format!("block {start} of inode {} is a table as well", claim.inode);
                return Err(RelocationError::Inconsistent(problem));
            }
            if overlaps(&free) {
                let problem =
                    format!("block {start} of inode {} is free according to its bitmap", claim.inode);
                return Err(RelocationError::Inconsistent(problem));
            }
        }
        let free = free.without(&taken);
        Ok(Self { owned, free, layout, boot_files })
    }

    /// Iterates over the owners of a range of blocks, in ascending order.
    pub(super) fn within(&self, blocks: Range<u64>) -> impl Iterator<Item = (Range<u64>, &Claim)> {
        let before = self.owned.range(..blocks.start).next_back();
        let before = before.filter(|(_, claim)| claim.end > blocks.start);
        let all = before.into_iter().chain(self.owned.range(blocks));
        all.map(|(start, claim)| (*start..claim.end, claim))
    }
}

struct Scan<'a> {
    files: &'a ExtFileSystem,
    owned: BTreeMap<u64, Claim>,
    fixed: Ranges,
    boot_files: BTreeSet<u32>,
}

impl Scan<'_> {
    fn add(&mut self, number: u32) -> Result<(), RelocationError> {
        let files = self.files;
        let Some(inode) = files.inode_if_used(number)? else {
            return match number < FIRST_INODE {
                true => Ok(()),
                false => Err(damaged(format!("inode {number}"), "it is in use and empty").into()),
            };
        };
        if number >= FIRST_INODE && inode.links() == 0 {
            return Err(damaged(format!("inode {number}"), "it is in use and has no name").into());
        }
        if inode.xattr_block() != 0 {
            let end = inode.xattr_block().saturating_add(1);
            if end > files.block_count() {
                let problem = "the block of its attributes does not exist";
                return Err(damaged(format!("inode {number}"), problem).into());
            }
            self.fixed.add(inode.xattr_block()..end);
        }
        if files.has_blocks(&inode) {
            if number < FIRST_INODE {
                // The blocks of the inode for resizing are those of the tables.
                let claims = map_of(files, &inode, &mut |_| Ok(()))?;
                self.fixed.extend(claims.into_iter().map(|(start, claim)| start..claim.end));
            } else {
                let mut nodes = BTreeSet::new();
                let owned = &self.owned;
                let claims = map_of(files, &inode, &mut |node| {
                    let is_new = nodes.insert(node) && owner_of(owned, node).is_none();
                    if is_new {
                        Ok(())
                    } else {
                        Err(damaged(format!("map of inode {number}"), "it has a cycle"))
                    }
                })?;
                for (start, claim) in claims {
                    self.claim(start, claim)?;
                }
            }
        }
        if inode.kind() == FileKind::Folder {
            let boot_files = &mut self.boot_files;
            files.visit_children(&inode, 0, &mut |child| {
                if is_boot_name(&child.name) {
                    boot_files.extend(u32::try_from(child.id.0));
                }
                ControlFlow::Continue(())
            })?;
        }
        Ok(())
    }

    fn claim(&mut self, start: u64, claim: Claim) -> Result<(), RelocationError> {
        let before = self.owned.range(..claim.end).next_back();
        if let Some((_, other)) = before.filter(|(_, other)| other.end > start) {
            return Err(RelocationError::Shared { block: start, inodes: [other.inode, claim.inode] });
        }
        if self.owned.len() >= CLAIMS_MAX {
            return Err(RelocationError::TooLarge { what: "runs of blocks", max: CLAIMS_MAX });
        }
        self.owned.insert(start, claim);
        Ok(())
    }
}

fn owner_of(owned: &BTreeMap<u64, Claim>, block: u64) -> Option<&Claim> {
    let (_, claim) = owned.range(..=block).next_back()?;
    (claim.end > block).then_some(claim)
}

/// Returns the blocks of a file and of its map, each run with its first block.
fn map_of(
    files: &ExtFileSystem,
    inode: &ExtInode,
    check_node: &mut dyn FnMut(u64) -> Result<(), FileSystemError>,
) -> Result<Vec<(u64, Claim)>, FileSystemError> {
    let mut nodes = Vec::new();
    let mut on_node = |node: u64| {
        check_node(node)?;
        nodes.push(node);
        files.check_amount(inode, nodes.len() as u64)
    };
    let claim = |end: u64, logical: Option<u64>, reserved: bool| Claim {
        end,
        inode: inode.number,
        logical,
        reserved,
    };
    let mut claims: Vec<(u64, Claim)> = Vec::new();
    if inode.has_extents() {
        for extent in files.extent_leaves(inode, &mut on_node)?.iter().flat_map(|leaf| &leaf.extents) {
            let end = extent.physical.saturating_add(extent.count);
            claims.push((extent.physical, claim(end, Some(extent.logical), extent.reserved)));
        }
    } else {
        files.for_each_pointer(inode, &mut on_node, &mut |_, run| {
            let block = run.physical.unwrap_or(0);
            match claims.last_mut() {
                Some((start, last))
                    if last.end == block
                        && last.logical.map(|at| at.saturating_add(block.saturating_sub(*start)))
                            == Some(run.logical) =>
                {
                    last.end = block.saturating_add(1);
                }
                _ => claims.push((block, claim(block.saturating_add(1), Some(run.logical), false))),
            }
            Ok(())
        })?;
    }
    claims.extend(nodes.into_iter().map(|node| (node, claim(node.saturating_add(1), None, false))));
    Ok(claims)
}
