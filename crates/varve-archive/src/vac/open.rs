//! From the score of an archive to what it holds.

use varve_block::{BlockName, BlockStore, BlockType, GetError, Score};
use varve_tree::{
    DecodeVentiEntryError, DecodeVentiRootError, Entry, ReadVentiFolderError, VENTI_ENTRY_BYTES, VentiEntry,
    VentiFolder, VentiRoot,
};

use super::line::VacLine;
use super::node::node_of;
use super::owners::OwnerNames;
use crate::records::node::{Node, NodeKind};

/// What tells the archive of a folder.
const VAC: &[u8] = b"vac";
/// Where the three entries of an archive stand.
const SOURCE: usize = 0;
const META: usize = 1;
const ROOT_META: usize = 2;

/// An archive that another program made.
#[derive(Debug, Clone)]
pub struct VacArchive {
    /// Its root.
    pub root: VentiRoot,
    /// What it shows.
    pub content: VacContent,
}

/// What an archive shows.
#[derive(Debug, Clone)]
pub enum VacContent {
    /// A folder, by its root: understood by [`VacFiles`](super::VacFiles) alone.
    Folder(Box<Node>),
    /// An image or a file, byte for byte.
    Image(Entry),
}

/// Why an archive cannot be looked into.
#[derive(Debug, thiserror::Error)]
pub enum OpenVacError {
    /// The store's scores are others than Venti's.
    #[error(
        "the scores of this store are no SHA-1 hashes, as those of vac are: make a store with `init --score sha1`"
    )]
    OtherScores,
    /// A block cannot be had.
    #[error(transparent)]
    Get(#[from] GetError),
    /// The root is none.
    #[error("{score} is not the root of an archive")]
    Root {
        /// What was asked for.
        score: Score,
        /// What is wrong.
        source: DecodeVentiRootError,
    },
    /// It is of another kind than was said.
    #[error("{line} is the root of an archive of another kind: {}", String::from_utf8_lossy(kind))]
    Kind {
        /// What was asked for.
        line: VacLine,
        /// What it says of itself.
        kind: Vec<u8>,
    },
    /// An entry is malformed.
    #[error("the archive begins with entries of which one is malformed")]
    Entry(#[from] DecodeVentiEntryError),
    /// What leads to its files is not there.
    #[error("the archive has no entries that lead to files")]
    NoEntries,
    /// What tells of the folder itself cannot be read.
    #[error("what the archive says of its own folder cannot be read")]
    Folder(#[from] ReadVentiFolderError),
}

impl VacArchive {
    /// Reads the beginning of the archive that `line` names.
    ///
    /// # Errors
    /// [`OpenVacError`].
    pub fn open(blocks: &dyn BlockStore, line: &VacLine, owners: &OwnerNames) -> Result<Self, OpenVacError> {
        if blocks.score_bytes() != line.score.as_bytes().len() {
            return Err(OpenVacError::OtherScores);
        }
        let block = blocks.get(&BlockName { score: line.score, block_type: BlockType::ROOT })?;
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
    // What was cut off of the last one is zeros.
    bytes.resize(bytes.len().next_multiple_of(VENTI_ENTRY_BYTES), 0);
    let first = bytes.chunks_exact(VENTI_ENTRY_BYTES).take(ROOT_META + 1);
    Ok(first.map(VentiEntry::decode).collect::<Result<_, _>>()?)
}

fn inner_entries(blocks: &dyn BlockStore, source: &Entry) -> Result<Vec<Option<VentiEntry>>, OpenVacError> {
    let mut folder = VentiFolder::new(blocks, source, source);
    Ok((0..=2).map(|number| folder.entry(number)).collect::<Result<_, _>>()?)
}

/// The folder that was archived. It is read without what is said of it, if that cannot be.
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
            Err(error) => tracing::warn!(%error, "what the archive says of its own folder is passed over"),
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
