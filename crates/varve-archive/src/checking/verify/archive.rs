//! Checks an archive that vac or vbackup wrote. Every block below its root is read, and unreadable
//! data is reported with the file that needs it.

use std::collections::BTreeSet;
use std::ops::{ControlFlow, Range};

use bytes::Bytes;
use varve_block::{BlockName, BlockStore, BlockType, GetError, Score, with_causes};
use varve_content::Progress;
use varve_content::vac::{OpenVacError, VacLine};
use varve_tree::{
    Entry, ReadVentiFolderError, VENTI_ENTRY_BYTES, VacMode, VacRecord, VentiEntry, VentiFolder, VentiRoot,
};

use super::VerifyError;
use super::tree::{LeafCheck, TreeCheck};

/// The kind of the archive of a folder.
const VAC: &[u8] = b"vac";
/// The positions of the entries in such an archive.
const SOURCE: usize = 0;
const META: usize = 1;
const ROOT_META: usize = 2;
/// Upper bound on the nesting of folders: no file system has longer paths.
const DEPTH_MAX: usize = 1 << 16;
/// Upper bound on the names of one folder that are held in memory.
const NAME_COUNT_MAX: usize = 1 << 20;

/// A part of an archive that is lost.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ArchiveHarm {
    /// The file or folder in the archive. Empty for blocks that lead to all of it, and for an
    /// image.
    pub path: Vec<u8>,
    /// The lost bytes, if known.
    pub range: Option<Range<u64>>,
    pub reason: String,
}

/// The result of checking an archive.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct VerifiedArchive {
    /// Files and folders that were found.
    pub file_count: u64,
    /// The missing and damaged parts.
    pub harm: Vec<ArchiveHarm>,
}

/// Why an archive was not checked.
#[derive(Debug, thiserror::Error)]
pub enum VerifyArchiveError {
    /// A store with scores of this length cannot hold an archive of vac's.
    #[error("{0}")]
    Open(#[from] OpenVacError),
    /// The store does not answer, or the operation was cancelled.
    #[error("{0}")]
    Verify(#[from] VerifyError),
}

impl From<GetError> for VerifyArchiveError {
    fn from(error: GetError) -> Self {
        Self::Verify(error.into())
    }
}

/// Reads every block that the root of an archive leads to. Blocks that only a previous archive
/// leads to are not read.
///
/// # Errors
/// [`VerifyArchiveError`]. Missing and damaged blocks are no error, but a result.
pub fn verify_archive(
    blocks: &dyn BlockStore,
    line: &VacLine,
    progress: &Progress,
) -> Result<VerifiedArchive, VerifyArchiveError> {
    if blocks.score_bytes() != line.score.as_bytes().len() {
        return Err(OpenVacError::OtherScores.into());
    }
    let check = TreeCheck::new(LeafCheck::Read(blocks, progress), blocks, BTreeSet::new());
    let mut walker =
        ArchiveWalker { check, progress, whole: BTreeSet::new(), found: VerifiedArchive::default() };
    walker.archive(line)?;
    Ok(walker.found)
}

/// A folder that the walk is in.
struct OpenArchiveFolder<'a> {
    path_bytes: usize,
    folder: VentiFolder<'a>,
    /// The records of its files that were not checked yet.
    records: std::vec::IntoIter<VacRecord>,
    /// The numbers of its entries that have a name.
    used: BTreeSet<u32>,
    source: Entry,
    /// Stands for an intact folder.
    mark: (Score, Score),
    harm_before: usize,
}

/// Walks an archive. A folder that was found intact is not walked again.
struct ArchiveWalker<'a> {
    check: TreeCheck<'a>,
    progress: &'a Progress,
    /// The source and meta scores of folders that are intact with everything below them.
    whole: BTreeSet<(Score, Score)>,
    found: VerifiedArchive,
}

impl<'a> ArchiveWalker<'a> {
    fn archive(&mut self, line: &VacLine) -> Result<(), VerifyArchiveError> {
        let name = BlockName { score: line.score, block_type: BlockType::ROOT };
        let Some(block) = self.read(&name)? else { return Ok(()) };
        let root = match VentiRoot::decode(&block) {
            Ok(root) => root,
            Err(source) => return Err(OpenVacError::Root { score: line.score, source }.into()),
        };
        if root.kind != line.kind.as_bytes() {
            return Err(OpenVacError::Kind { line: *line, kind: root.kind }.into());
        }
        let name = BlockName { score: root.score, block_type: BlockType::DIRECTORY };
        let Some(block) = self.read(&name)? else { return Ok(()) };
        let mut bytes = block.to_vec();
        // Zeros that were cut off the last entry are restored.
        bytes.resize(bytes.len().next_multiple_of(VENTI_ENTRY_BYTES), 0);
        let entries: Vec<_> = bytes.chunks_exact(VENTI_ENTRY_BYTES).map(VentiEntry::decode).collect();
        let mut trees = Vec::new();
        for entry in entries {
            match entry {
                Ok(entry) => trees.push(entry.map(|entry| entry.tree)),
                Err(error) => {
                    trees.push(None);
                    self.report(b"", None, with_causes(&error));
                }
            }
        }
        let at = |place: usize| trees.get(place).copied().flatten();
        match (at(SOURCE), at(META), at(ROOT_META)) {
            (Some(source), Some(meta), Some(root_meta)) if root.kind == VAC => {
                self.tree(b"", &root_meta)?;
                self.folders(&source, &meta)?;
            }
            // Fossil has one entry here, for a folder that has the three.
            (Some(only), _, None) if root.kind == VAC => self.folder_of_fossil(&only)?,
            _ if trees.iter().flatten().next().is_none() => {
                self.report(b"", None, "it has no entries that lead to files".into());
            }
            _ => {
                for tree in trees.iter().flatten() {
                    self.tree(b"", tree)?;
                }
            }
        }
        Ok(())
    }

    fn folder_of_fossil(&mut self, only: &Entry) -> Result<(), VerifyArchiveError> {
        let mut inner = VentiFolder::new(self.check.blocks, only, only);
        let trees: Vec<_> = (0..=2).map(|number| tree_at(&mut inner, number)).collect();
        self.tree(b"", only)?;
        match trees.as_slice() {
            [Ok(Some(source)), Ok(Some(meta)), root_meta] => {
                if let Ok(Some(root_meta)) = root_meta {
                    self.tree(b"", root_meta)?;
                }
                self.folders(source, meta)
            }
            _ => {
                self.report_if_silent(0, b"", "it has no entries that lead to files".into());
                Ok(())
            }
        }
    }

    /// Reads a block that leads to others. If it is unreadable, reports it and returns `None`.
    fn read(&mut self, name: &BlockName) -> Result<Option<Bytes>, GetError> {
        match self.check.blocks.get(name) {
            Ok(block) => {
                self.progress.add_bytes_done(block.len() as u64);
                Ok(Some(block))
            }
            Err(error @ GetError::Failed { .. }) => Err(error),
            Err(error) => {
                self.report(b"", None, with_causes(&error));
                Ok(None)
            }
        }
    }

    fn tree(&mut self, path: &[u8], entry: &Entry) -> Result<(), VerifyError> {
        for (range, reason) in self.check.tree(entry)? {
            self.report(path, Some(range), reason);
        }
        Ok(())
    }

    /// Checks a folder with everything in it.
    fn folders(&mut self, source: &Entry, meta: &Entry) -> Result<(), VerifyArchiveError> {
        let mut path = Vec::new();
        let mut open: Vec<_> = self.enter(&path, source, meta)?.into_iter().collect();
        while let Some(last) = open.last_mut() {
            path.truncate(last.path_bytes);
            let Some(record) = last.records.next() else {
                self.unnamed(&path, &mut last.folder, &last.source, &last.used)?;
                if self.found.harm.len() == last.harm_before {
                    self.whole.insert(last.mark);
                }
                open.pop();
                continue;
            };
            path = joined(&path, &record.name);
            if let Some((source, meta)) = self.below(&path, last, &record)? {
                if open.len() >= DEPTH_MAX {
                    self.report(&path, None, format!("folders are nested more than {DEPTH_MAX} deep"));
                } else {
                    open.extend(self.enter(&path, &source, &meta)?);
                }
            }
        }
        Ok(())
    }

    /// Checks the lists of a folder. Returns `None` if it is known to be intact.
    fn enter(
        &mut self,
        path: &[u8],
        source: &Entry,
        meta: &Entry,
    ) -> Result<Option<OpenArchiveFolder<'a>>, VerifyArchiveError> {
        self.found.file_count += 1;
        let mark = (source.root(), meta.root());
        if self.whole.contains(&mark) {
            return Ok(None);
        }
        let harm_before = self.found.harm.len();
        self.tree(path, source)?;
        self.tree(path, meta)?;
        let folder = VentiFolder::new(self.check.blocks, source, meta);
        let records = self.records(&folder, path, harm_before).into_iter();
        let (path_bytes, used, source) = (path.len(), BTreeSet::new(), *source);
        Ok(Some(OpenArchiveFolder { path_bytes, folder, records, used, source, mark, harm_before }))
    }

    /// The records of the files in a folder.
    fn records(&mut self, folder: &VentiFolder<'_>, path: &[u8], harm_before: usize) -> Vec<VacRecord> {
        let (mut records, mut failure) = (Vec::new(), None);
        folder.records(&mut |record| {
            match record {
                Ok(_) if records.len() >= NAME_COUNT_MAX => {
                    failure = Some(format!(
                        "a folder has more than {NAME_COUNT_MAX} names: the others were not checked"
                    ));
                    return ControlFlow::Break(());
                }
                Ok(record) => records.push(record),
                Err(error) => failure = Some(with_causes(&error)),
            }
            ControlFlow::Continue(())
        });
        if let Some(reason) = failure {
            self.report_if_silent(harm_before, path, reason);
        }
        records
    }

    /// Checks a file inside a folder. Returns the lists of a folder inside it, which is checked
    /// next.
    fn below(
        &mut self,
        path: &[u8],
        inside: &mut OpenArchiveFolder<'a>,
        record: &VacRecord,
    ) -> Result<Option<(Entry, Entry)>, VerifyArchiveError> {
        let OpenArchiveFolder { folder, used, .. } = inside;
        let harm_before = self.found.harm.len();
        used.insert(record.entry);
        let content = self.entry_of(path, folder, record.entry, record.generation);
        if !record.mode.has(VacMode::FOLDER) {
            self.found.file_count += 1;
            content.map_or(Ok(()), |content| self.tree(path, &content))?;
            return Ok(None);
        }
        used.insert(record.meta_entry);
        let meta = self.entry_of(path, folder, record.meta_entry, record.meta_generation);
        match (content, meta) {
            (Some(source), Some(meta)) => Ok(Some((source, meta))),
            // The readable part is checked all the same.
            (one, other) => {
                for tree in one.iter().chain(&other) {
                    self.tree(path, tree)?;
                }
                self.report_if_silent(harm_before, path, "it has no content".into());
                Ok(None)
            }
        }
    }

    /// The tree of an entry of a folder.
    fn entry_of(
        &mut self,
        path: &[u8],
        folder: &mut VentiFolder<'_>,
        number: u32,
        generation: u32,
    ) -> Option<Entry> {
        match folder.entry(number) {
            Ok(Some(entry)) if entry.generation == generation => Some(entry.tree),
            Ok(_) => {
                self.report(path, None, format!("entry {number} of its folder belongs to another file"));
                None
            }
            Err(error) => {
                self.report(path, None, with_causes(&error));
                None
            }
        }
    }

    /// Reads the trees of entries without a name.
    fn unnamed(
        &mut self,
        path: &[u8],
        folder: &mut VentiFolder<'_>,
        source: &Entry,
        used: &BTreeSet<u32>,
    ) -> Result<(), VerifyError> {
        let count = u32::try_from(source.size() / VENTI_ENTRY_BYTES as u64).unwrap_or(u32::MAX);
        // Allows for more entries than names, because some entries are not in use.
        let count = count.min(u32::try_from(2 * NAME_COUNT_MAX).unwrap_or(u32::MAX));
        for number in (0..count).filter(|number| !used.contains(number)) {
            if self.progress.is_cancelled() {
                return Err(VerifyError::Cancelled);
            }
            if let Ok(Some(tree)) = tree_at(folder, number) {
                self.tree(&joined(path, format!("(entry {number})").as_bytes()), &tree)?;
            }
        }
        Ok(())
    }

    /// Reports a problem, unless a problem of the same file was reported already.
    fn report_if_silent(&mut self, harm_before: usize, path: &[u8], reason: String) {
        if self.found.harm.len() == harm_before {
            self.report(path, None, reason);
        }
    }

    fn report(&mut self, path: &[u8], range: Option<Range<u64>>, reason: String) {
        // Adjacent lost leaves are one harm.
        if let (Some(last), Some(range)) = (self.found.harm.last_mut(), &range)
            && last.path == path
            && let Some(before) = &mut last.range
            && before.end == range.start
        {
            before.end = range.end;
            return;
        }
        self.found.harm.push(ArchiveHarm { path: path.to_vec(), range, reason });
    }
}

fn tree_at(folder: &mut VentiFolder<'_>, number: u32) -> Result<Option<Entry>, ReadVentiFolderError> {
    Ok(folder.entry(number)?.map(|entry| entry.tree))
}

fn joined(path: &[u8], name: &[u8]) -> Vec<u8> {
    let parts = [path, name].into_iter().filter(|part| !part.is_empty());
    parts.collect::<Vec<_>>().join(&b'/')
}
