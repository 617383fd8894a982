//! The files of an archived folder.

use std::io::Write;
use std::ops::Range;

use bytes::Bytes;
use varve_block::{BlockName, BlockStore, BlockType};
use varve_tree::{Extent, TreeReader};
use varve_world::Workers;

use crate::files::{ContentKey, Files, Nodes, ReadProblem};
use crate::image::{ImagePart, RestoreImageError, write_image};
use crate::progress::Progress;
use crate::reading_content::{OnLoss, ReadContentError, TakeBytes};
use crate::records::node::{Node, NodeKind, NodeProblem};
use crate::records::node_list::{NodeList, ReadFolderError};

/// The report of a node that is left out because the snapshot does not have it.
#[derive(Debug, thiserror::Error)]
#[error("it {problem} when it was archived; the missing part is left out")]
struct NotArchived {
    problem: NodeProblem,
}

/// The files of all archived folders in one store.
pub struct StoredFiles<'b> {
    blocks: &'b dyn BlockStore,
}

impl<'b> StoredFiles<'b> {
    /// The files in this store.
    #[must_use]
    pub fn new(blocks: &'b dyn BlockStore) -> Self {
        Self { blocks }
    }

    /// The only leaf of a small file.
    fn single_leaf(&self, file: &Node) -> Option<BlockName> {
        let content = file.content?;
        let is_single = content.depth() == 0 && content.root() != self.blocks.empty_score();
        let block_type = BlockType::leaf(content.leaf_kind());
        is_single.then_some(BlockName { score: content.root(), block_type })
    }

    /// Rejects a leaf that is longer than its content, as the tree reader does.
    fn check_leaf(&self, file: &Node, leaf: Bytes) -> Result<Bytes, ReadContentError> {
        let Some(content) = file.content else { return Ok(leaf) };
        if leaf.len() as u64 > content.size() || content.size() > u64::from(content.leaf_bytes()) {
            let whole = Extent { offset: 0, length: content.size(), leaf: Some(content.root()) };
            for read in TreeReader::new(self.blocks, &content).read_extents(&[whole]) {
                read?;
            }
        }
        Ok(leaf)
    }
}

impl Files for StoredFiles<'_> {
    fn blocks(&self) -> &dyn BlockStore {
        self.blocks
    }

    fn nodes(&self, folder: &Node) -> Nodes<'_> {
        Box::new(NodeList::new(self.blocks, folder))
    }

    fn find(&self, folder: &Node, name: &[u8]) -> Result<Option<Node>, ReadFolderError> {
        NodeList::new(self.blocks, folder).find(name)
    }

    fn problem(&self, node: &Node) -> Option<ReadProblem> {
        let problem = node.problem?;
        let lacks_all = lacks_all(node);
        let is_worth_telling = problem != NodeProblem::Changed || lacks_all;
        is_worth_telling.then(|| ReadProblem {
            error: Box::new(NotArchived { problem }),
            lacks_all,
            is_damage: false,
        })
    }

    fn small_contents(&self, files: &[&Node]) -> Vec<Option<Result<Bytes, ReadContentError>>> {
        let names: Vec<Option<BlockName>> = files.iter().map(|file| self.single_leaf(file)).collect();
        let wanted: Vec<BlockName> = names.iter().copied().flatten().collect();
        let mut blocks = self.blocks.get_batch(&wanted).into_iter();
        let mut answer = |(name, file): (&Option<BlockName>, &&Node)| {
            let block = name.and_then(|_| blocks.next())?;
            Some(block.map_err(ReadContentError::from).and_then(|leaf| self.check_leaf(file, leaf)))
        };
        names.iter().zip(files).map(&mut answer).collect()
    }

    fn read_with(
        &self,
        file: &Node,
        range: Range<u64>,
        take: &mut TakeBytes<'_>,
        lost: &mut OnLoss<'_>,
    ) -> Result<(), ReadContentError> {
        let Some(content) = file.content else { return Ok(()) };
        ImagePart::whole(&content).read_with(self.blocks, range, take, lost)
    }

    fn write_to(
        &self,
        workers: &dyn Workers,
        file: &Node,
        into: &mut (dyn Write + Send),
        progress: &Progress,
    ) -> Result<(), RestoreImageError> {
        let Some(content) = file.content else { return Ok(()) };
        write_image(self.blocks, workers, &ImagePart::whole(&content), into, progress)
    }

    fn content_key(&self, file: &Node) -> ContentKey {
        ContentKey::Stored(file.content)
    }
}

/// Returns whether the snapshot knows of a node only that it existed.
pub(crate) fn lacks_all(node: &Node) -> bool {
    let lacks = match node.kind {
        NodeKind::File => {
            node.problem.is_some_and(|problem| problem != NodeProblem::Changed || node.size > 0)
        }
        NodeKind::SymbolicLink => node.target.is_empty(),
        NodeKind::CharacterDevice | NodeKind::BlockDevice => node.device.is_none(),
        NodeKind::Folder | NodeKind::Fifo | NodeKind::Socket => node.problem == Some(NodeProblem::Vanished),
    };
    lacks && node.content.is_none()
}
