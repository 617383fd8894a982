//! Opens an archive by its score.

use varve_block::{BlockName, BlockStore, BlockType, GetError, Score};
use varve_tree::{
    DecodeVentiEntryError, DecodeVentiRootError, Entry, ReadVentiFolderError, VENTI_ENTRY_BYTES, VentiEntry,
    VentiFolder, VentiRoot,
};

use super::line::VacLine;
use super::node::node_of;
use super::owners::OwnerNames;
use crate::records::node::{Node, NodeKind};

/// The kind of the archive of a folder.
const VAC: &[u8] = b"vac";
/// The positions of the three entries of an archive.
const SOURCE: usize = 0;
const META: usize = 1;
const ROOT_META: usize = 2;

/// An archive that another program made.
#[derive(Debug, Clone)]
pub struct VacArchive {
    pub root: VentiRoot,
    pub content: VacContent,
}

/// The contents of an archive.
#[derive(Debug, Clone)]
pub enum VacContent {
    /// A folder, by its root node, which is valid only for [`VacFiles`](super::VacFiles).
    Folder(Box<Node>),
    /// An image or a file, byte for byte.
    Image(Entry),
}

/// Why an archive cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenVacError {
    /// The store's scores are not those of Venti.
    #[error("the store does not have SHA-1 scores, which vac needs: make a store with `init --score sha1`")]
    OtherScores,
    /// There is no such archive. No stored data is lost, so this is not damage.
    #[error("{name} is not in the store")]
    NotFound { name: BlockName },
    /// A block is unreadable.
    #[error("{0}")]
    Get(#[from] GetError),
    /// The root is malformed.
    #[error("{score} is not the root of a vac archive")]
    Root {
        /// The requested score.
        score: Score,
        source: DecodeVentiRootError,
    },
    /// The archive is of another kind than the line claims.
    #[error("{line} is the root of an archive of another kind: {}", String::from_utf8_lossy(kind))]
    Kind {
        /// The requested archive.
        line: VacLine,
        /// The actual kind.
        kind: Vec<u8>,
    },
    #[error("one of the archive's first entries is malformed")]
    Entry(#[from] DecodeVentiEntryError),
    /// The entries that lead to its files are missing.
    #[error("the archive has no entries that lead to files")]
    NoEntries,
    /// The records of the folder itself are unreadable.
    #[error("the records of the archive's root folder cannot be read")]
    Folder(#[from] ReadVentiFolderError),
}

impl VacArchive {
    /// Reads the first blocks of the archive that `line` names.
    ///
    /// # Errors
    /// [`OpenVacError`].
    pub fn open(blocks: &dyn BlockStore, line: &VacLine, owners: &OwnerNames) -> Result<Self, OpenVacError> {
        if blocks.score_bytes() != line.score.as_bytes().len() {
            return Err(OpenVacError::OtherScores);
        }
        let name = BlockName { score: line.score, block_type: BlockType::ROOT };
        let block = blocks.get(&name).map_err(|error| match error {
            GetError::NotFound { name } => OpenVacError::NotFound { name },
            error => OpenVacError::Get(error),
        })?;
        let decoded = VentiRoot::decode(&block);
        let root = decoded.map_err(|source| OpenVacError::Root { score: line.score, source })?;
        if root.kind != line.kind.as_bytes() {
            return Err(OpenVacError::Kind { line: *line, kind: root.kind });
        }
        let mut entries = entries_of(blocks, &root.score)?;
        if root.kind != VAC {
            let image = entries.first().copied().flatten().ok_or(OpenVacError::NoEntries)?;
            return Ok(Self { root, content: VacContent::Image(image.tree) });
        }
        if at(&entries, ROOT_META).is_none() {
            // Fossil has one entry here, for a folder that has the three.
            let only = at(&entries, SOURCE).ok_or(OpenVacError::NoEntries)?;
            entries = inner_entries(blocks, &only.tree)?;
        }
        let content = VacContent::Folder(Box::new(root_node(blocks, &entries, owners)?));
        Ok(Self { root, content })
    }
}

fn at(entries: &[Option<VentiEntry>], place: usize) -> Option<VentiEntry> {
    entries.get(place).copied().flatten()
}

/// The entries of one block.
fn entries_of(blocks: &dyn BlockStore, score: &Score) -> Result<Vec<Option<VentiEntry>>, OpenVacError> {
    let block = blocks.get(&BlockName { score: *score, block_type: BlockType::DIRECTORY })?;
    let mut bytes = block.to_vec();
    // Zeros that were cut off the last entry are restored.
    bytes.resize(bytes.len().next_multiple_of(VENTI_ENTRY_BYTES), 0);
    let first = bytes.chunks_exact(VENTI_ENTRY_BYTES).take(ROOT_META + 1);
    Ok(first.map(VentiEntry::decode).collect::<Result<_, _>>()?)
}

fn inner_entries(blocks: &dyn BlockStore, source: &Entry) -> Result<Vec<Option<VentiEntry>>, OpenVacError> {
    let mut folder = VentiFolder::new(blocks, source, source);
    Ok((0..=2).map(|number| folder.entry(number)).collect::<Result<_, _>>()?)
}

/// The root node of the archived folder. Attributes that are unreadable are omitted.
fn root_node(
    blocks: &dyn BlockStore,
    entries: &[Option<VentiEntry>],
    owners: &OwnerNames,
) -> Result<Node, OpenVacError> {
    let (Some(source), Some(meta)) = (at(entries, SOURCE), at(entries, META)) else {
        return Err(OpenVacError::NoEntries);
    };
    let mut node = Node { mode: 0o755, ..Node::new(Vec::new(), NodeKind::Folder) };
    if let Some(root_meta) = at(entries, ROOT_META) {
        let folder = VentiFolder::new(blocks, &source.tree, &root_meta.tree);
        let mut record = Err(OpenVacError::NoEntries);
        folder.records(&mut |found| {
            record = found.map_err(OpenVacError::from);
            std::ops::ControlFlow::Break(())
        });
        match record {
            Ok(record) => node = node_of(record, owners),
            Err(error) => tracing::warn!(%error, "the record of the archive's root folder is ignored"),
        }
    }
    node.name.clear();
    node.kind = NodeKind::Folder;
    node.content = Some(source.tree);
    node.meta = Some(meta.tree);
    node.target.clear();
    node.device = None;
    Ok(node)
}
