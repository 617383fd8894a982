//! The files of a folder that vac archived.

use std::collections::VecDeque;
use std::io::Write;
use std::ops::{ControlFlow, Range};

use varve_block::{BlockKind, BlockStore, to_usize};
use varve_tree::{Entry, ReadVentiFolderError, TreeReader, VacRecord, VentiFolder};
use varve_world::Workers;

use super::node::{TEXT_BYTES_MAX, device_of, node_of};
use super::owners::OwnerNames;
use crate::files::stored::StoredFiles;
use crate::files::{ContentKey, Files, Nodes, ReadProblem};
use crate::image::RestoreImageError;
use crate::progress::Progress;
use crate::reading_content::{OnLoss, ReadContentError, TakeBytes};
use crate::records::node::{Node, NodeKind, NodeProblem, is_component};
use crate::records::node_list::ReadFolderError;

/// Upper bound on the names of one folder that are held in memory.
const NAME_COUNT_MAX: usize = 1 << 20;
/// Upper bound on the problems that are reported for one folder.
const TROUBLE_COUNT_MAX: usize = 100;

/// The report of a link target that vac has truncated.
#[derive(Debug, thiserror::Error)]
#[error(
    "the link's target is cut short: the archive has {there} of {size} bytes, as vac stored it on some systems"
)]
struct TargetCutShort {
    there: usize,
    size: u64,
}

/// The report of a device or a link whose content is malformed.
#[derive(Debug, thiserror::Error)]
#[error("the target or number of this {kind} is malformed; it is left out")]
struct NotWhatItSays {
    kind: NodeKind,
}

/// The files of all folders in one store that vac archived.
pub struct VacFiles<'b> {
    blocks: &'b dyn BlockStore,
    owners: OwnerNames,
    /// Reads the contents, which are like those of any other archived file.
    stored: StoredFiles<'b>,
}

impl<'b> VacFiles<'b> {
    /// The files in this store. `owners` translates the names of owners into numbers.
    #[must_use]
    pub fn new(blocks: &'b dyn BlockStore, owners: OwnerNames) -> Self {
        Self { blocks, owners, stored: StoredFiles::new(blocks) }
    }

    fn folder_of(&self, folder: &Node) -> Option<VentiFolder<'b>> {
        let is_folder = folder.kind == NodeKind::Folder;
        let (source, meta) = (folder.content.filter(|_| is_folder)?, folder.meta?);
        Some(VentiFolder::new(self.blocks, &source, &meta))
    }

    /// The node of a record.
    fn resolve(&self, folder: &mut VentiFolder<'b>, record: VacRecord) -> Result<Node, ReadFolderError> {
        let (entry, generation) = (record.entry, record.generation);
        let (meta_entry, meta_generation) = (record.meta_entry, record.meta_generation);
        let mut node = node_of(record, &self.owners);
        if !is_component(&node.name) {
            return Err(ReadFolderError::Name { name: node.name });
        }
        let wanted = if node.kind == NodeKind::Folder { BlockKind::Directory } else { BlockKind::Data };
        let content = tree(folder, &node, entry, generation, wanted)?;
        match node.kind {
            NodeKind::Folder => {
                node.content = Some(content);
                node.meta = Some(tree(folder, &node, meta_entry, meta_generation, BlockKind::Data)?);
            }
            NodeKind::File => {
                node.size = content.size();
                node.content = Some(content).filter(|content| content.size() > 0);
            }
            NodeKind::SymbolicLink if node.target.is_empty() => self.take_target(&mut node, &content),
            NodeKind::CharacterDevice | NodeKind::BlockDevice if node.device.is_none() => {
                let device = self.text(&content).and_then(|text| device_of(&text));
                match device {
                    Some((kind, device)) => (node.kind, node.device) = (kind, Some(device)),
                    None => node.problem = Some(NodeProblem::Unreadable),
                }
            }
            _ => {}
        }
        Ok(node)
    }

    /// Takes the target of a link from its content. If the size exceeds the content, the target was
    /// truncated when it was archived. The node's size, which links do not use otherwise, records
    /// that.
    fn take_target(&self, node: &mut Node, content: &Entry) {
        let text = self.text(content).unwrap_or_default();
        let target = text.split(|byte| *byte == 0).next().unwrap_or_default();
        if target.is_empty() {
            node.problem = Some(NodeProblem::Unreadable);
        } else if (target.len() as u64) < content.size() {
            node.size = content.size();
        }
        node.target = target.to_vec();
    }

    fn text(&self, content: &Entry) -> Option<Vec<u8>> {
        let length = Some(content.size()).filter(|size| *size <= TEXT_BYTES_MAX).map(to_usize)?;
        let mut text = vec![0; length];
        TreeReader::new(self.blocks, content).read_at(0, &mut text).ok()?;
        Some(text)
    }
}

/// The tree of an entry in a folder, if it matches the record.
fn tree(
    folder: &mut VentiFolder<'_>,
    node: &Node,
    number: u32,
    generation: u32,
    kind: BlockKind,
) -> Result<Entry, ReadFolderError> {
    let broken = || ReadFolderError::Broken { name: node.name.clone() };
    let found = folder
        .entry(number)
        .map_err(|source| ReadFolderError::Entry { name: node.name.clone(), source: Box::new(source) })?;
    let entry = found.filter(|entry| entry.generation == generation).ok_or_else(broken)?;
    if entry.tree.leaf_kind() == kind { Ok(entry.tree) } else { Err(broken()) }
}

impl Files for VacFiles<'_> {
    fn blocks(&self) -> &dyn BlockStore {
        self.blocks
    }

    fn nodes(&self, folder: &Node) -> Nodes<'_> {
        let Some(mut venti) = self.folder_of(folder) else { return Box::new(std::iter::empty()) };
        let (mut records, mut trouble) = (Vec::new(), Vec::new());
        venti.records(&mut |record| {
            match record {
                Ok(_) if records.len() == NAME_COUNT_MAX => {
                    trouble.push(ReadFolderError::TooMany { count: NAME_COUNT_MAX });
                    return ControlFlow::Break(());
                }
                Ok(record) => records.push(record),
                Err(error) => note(&mut trouble, error.into()),
            }
            ControlFlow::Continue(())
        });
        records.sort_by(|one, other| one.name.cmp(&other.name));
        let mut records = VecDeque::from(records);
        let mut trouble = VecDeque::from(trouble);
        let mut last: Option<Vec<u8>> = None;
        Box::new(std::iter::from_fn(move || {
            while let Some(record) = records.pop_front() {
                if last.as_ref() == Some(&record.name) {
                    note_at_end(&mut trouble, ReadFolderError::Twice { name: record.name });
                    continue;
                }
                match self.resolve(&mut venti, record) {
                    Ok(node) => {
                        last = Some(node.name.clone());
                        return Some(Ok(node));
                    }
                    Err(error) => note_at_end(&mut trouble, error),
                }
            }
            trouble.pop_front().map(Err)
        }))
    }

    fn find(&self, folder: &Node, name: &[u8]) -> Result<Option<Node>, ReadFolderError> {
        let Some(mut venti) = self.folder_of(folder) else { return Ok(None) };
        let (mut found, mut trouble) = (None, None);
        venti.records(&mut |record| {
            match record {
                Ok(record) if record.name == name => {
                    found = Some(record);
                    return ControlFlow::Break(());
                }
                Ok(_) => {}
                Err(error) => trouble = Some(error),
            }
            ControlFlow::Continue(())
        });
        match (found, trouble) {
            (Some(record), _) => self.resolve(&mut venti, record).map(Some),
            (None, Some(error)) => Err(error.into()),
            (None, None) => Ok(None),
        }
    }

    fn problem(&self, node: &Node) -> Option<ReadProblem> {
        let kind = node.kind;
        let is_link = kind == NodeKind::SymbolicLink;
        let lacks_all = is_link && node.target.is_empty() || kind.is_device() && node.device.is_none();
        if lacks_all {
            return Some(ReadProblem {
                error: Box::new(NotWhatItSays { kind }),
                lacks_all,
                is_damage: false,
            });
        }
        if is_link && node.size > 0 {
            let error = Box::new(TargetCutShort { there: node.target.len(), size: node.size });
            return Some(ReadProblem { error, lacks_all: false, is_damage: false });
        }
        self.stored.problem(node)
    }

    // There is no `small_contents` here: a single block may extend beyond the end of its file, and
    // must be cut like all others.

    fn read_with(
        &self,
        file: &Node,
        range: Range<u64>,
        take: &mut TakeBytes<'_>,
        lost: &mut OnLoss<'_>,
    ) -> Result<(), ReadContentError> {
        self.stored.read_with(file, range, take, lost)
    }

    fn write_to(
        &self,
        workers: &dyn Workers,
        file: &Node,
        into: &mut (dyn Write + Send),
        progress: &Progress,
    ) -> Result<(), RestoreImageError> {
        self.stored.write_to(workers, file, into, progress)
    }

    fn content_key(&self, file: &Node) -> ContentKey {
        ContentKey::Foreign { content: file.content, meta: file.meta }
    }
}

fn note(trouble: &mut Vec<ReadFolderError>, error: ReadFolderError) {
    if trouble.len() < TROUBLE_COUNT_MAX {
        trouble.push(error);
    }
}

fn note_at_end(trouble: &mut VecDeque<ReadFolderError>, error: ReadFolderError) {
    if trouble.len() < TROUBLE_COUNT_MAX {
        trouble.push_back(error);
    }
}

impl From<ReadVentiFolderError> for ReadFolderError {
    fn from(error: ReadVentiFolderError) -> Self {
        Self::Venti(Box::new(error))
    }
}
