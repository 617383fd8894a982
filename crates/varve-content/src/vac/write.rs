//! Writes archives for vac's tools while a folder is archived.
//!
//! The bytes of the files are stored once: the archive uses the trees of the snapshot. Only folders
//! in vac's format are added. Every choice is the same as vac's, so that a store with archives of
//! vac shares its blocks.

use varve_block::{BlockStore, PutError, Score};
use varve_tree::{Entry, FixedWriter, Layout, VacFolderBuilder, VacMode, VacRecord, VacShape, put_vac_root};

use super::node::{device_text, record_of};
use super::owners::OwnerNames;
use crate::files::stored::lacks_all;
use crate::records::node::{Node, NodeKind};

/// The name and the owner that vac gives to the root folder of an archive.
const ROOT_NAME: &[u8] = b"/";
const ROOT_OWNER: &[u8] = b"vac";
const ROOT_MODE: u32 = VacMode::FOLDER | 0o777;

/// The options for an archive for vac's tools.
#[derive(Debug, Clone)]
pub struct VacOptions {
    /// The name of the archived folder in the archive. With `None`, its contents are at the top
    /// level.
    pub name: Option<Vec<u8>>,
    pub shape: VacShape,
    pub owners: OwnerNames,
}

impl VacOptions {
    /// Returns whether the archive can use the tree of a file as it is.
    pub(crate) fn can_express(&self, content: Option<&Entry>) -> bool {
        let shape = self.shape.data();
        content.is_none_or(|tree| {
            tree.layout() == Layout::Fixed
                && (tree.leaf_bytes(), tree.pointer_bytes()) == (shape.leaf_bytes, shape.pointer_bytes)
        })
    }
}

/// An archive that vac's tools can read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ArchivedVac {
    /// The score of the root.
    pub score: Score,
    /// Files whose extended attributes are missing, because they do not fit in a record.
    pub without_xattrs: u64,
    /// Files that are missing, because they were unreadable or cannot be represented.
    pub left_out: u64,
}

/// Builds an archive from nodes in the order of the walk.
pub(crate) struct VacTreeWriter<'a> {
    blocks: &'a dyn BlockStore,
    options: &'a VacOptions,
    open: Vec<OpenVacFolder<'a>>,
    next_qid: u64,
    /// True once the archived folder itself was opened.
    has_begun: bool,
    without_xattrs: u64,
    left_out: u64,
}

struct OpenVacFolder<'a> {
    builder: VacFolderBuilder<'a>,
    qid: u64,
    owner: Vec<u8>,
    group: Vec<u8>,
}

impl<'a> VacTreeWriter<'a> {
    pub(crate) fn new(blocks: &'a dyn BlockStore, options: &'a VacOptions) -> Self {
        let root = OpenVacFolder {
            builder: VacFolderBuilder::new(blocks, options.shape),
            qid: 0,
            owner: ROOT_OWNER.to_vec(),
            group: ROOT_OWNER.to_vec(),
        };
        Self {
            blocks,
            options,
            open: vec![root],
            next_qid: 1,
            has_begun: false,
            without_xattrs: 0,
            left_out: 0,
        }
    }

    /// Begins a folder. The first one is the archived folder itself.
    pub(crate) fn open(&mut self, node: &Node) {
        if !std::mem::replace(&mut self.has_begun, true) && self.options.name.is_none() {
            // The folder is the root of the archive itself.
            return;
        }
        let owners = &self.options.owners;
        let folder = OpenVacFolder {
            builder: VacFolderBuilder::new(self.blocks, self.options.shape),
            qid: self.draw_qid(),
            owner: owners.user_name(node.uid),
            group: owners.group_name(node.gid),
        };
        self.open.push(folder);
    }

    /// Ends the innermost open folder. `node` is its complete node.
    pub(crate) fn close(&mut self, node: &Node) -> Result<(), PutError> {
        if self.open.len() == 1 {
            return Ok(());
        }
        let Some(OpenVacFolder { builder, qid, .. }) = self.open.pop() else { return Ok(()) };
        let (source, meta) = builder.finish()?;
        let name = self.options.name.as_ref().filter(|_| self.open.len() == 1);
        let node = Node { name: name.unwrap_or(&node.name).clone(), ..node.clone() };
        self.push(&node, qid, &mut |parent| parent.push_folder(&source, &meta))
    }

    /// Adds a node other than a folder with contents.
    pub(crate) fn node(&mut self, node: &Node) -> Result<(), PutError> {
        if lacks_all(node) {
            // vac's tools would show it as an empty file.
            self.left_out += 1;
            return Ok(());
        }
        if node.kind == NodeKind::Folder {
            self.open(node);
            return self.close(node);
        }
        let text = match node.kind {
            NodeKind::SymbolicLink => node.target.clone(),
            _ => device_text(node).unwrap_or_default(),
        };
        let tree = match node.content {
            Some(content) => content,
            None => {
                let mut writer = FixedWriter::new(self.blocks, self.options.shape.data());
                writer.write(&text)?;
                writer.finish()?
            }
        };
        let qid = self.draw_qid();
        self.push(node, qid, &mut |parent| parent.push_file(&tree))
    }

    /// Puts the root of the archive.
    pub(crate) fn finish(mut self) -> Result<Option<ArchivedVac>, PutError> {
        let Some(root) = self.open.pop() else { return Ok(None) };
        let folder = root.builder.finish()?;
        let record = VacRecord {
            name: ROOT_NAME.to_vec(),
            meta_entry: 1,
            owner: root.owner,
            group: root.group,
            mode: VacMode(ROOT_MODE),
            qid_space: Some((0, self.next_qid)),
            ..VacRecord::default()
        };
        let score = put_vac_root(self.blocks, self.options.shape, &folder, &record, None)?;
        let Self { without_xattrs, left_out, .. } = self;
        Ok(score.map(|score| ArchivedVac { score, without_xattrs, left_out }))
    }

    fn draw_qid(&mut self) -> u64 {
        let qid = self.next_qid;
        self.next_qid += 1;
        qid
    }

    /// Adds a file or a folder to the innermost open folder.
    fn push(
        &mut self,
        node: &Node,
        qid: u64,
        push_entries: &mut dyn FnMut(&mut VacFolderBuilder<'a>) -> Result<bool, PutError>,
    ) -> Result<(), PutError> {
        let Some(parent) = self.open.last_mut() else { return Ok(()) };
        let owners = &self.options.owners;
        let mut is_in = false;
        for with_xattrs in [true, false] {
            let mut record = record_of(node, owners, with_xattrs);
            record.entry = parent.builder.next_entry();
            record.qid = qid;
            let Some(bytes) = record.encode() else { continue };
            let of_parent =
                VacRecord { owner: parent.owner.clone(), group: parent.group.clone(), ..record.clone() };
            let first_bytes = of_parent.encode().map_or(bytes.len(), |first| first.len());
            if parent.builder.push_record(&node.name, &bytes, first_bytes)? {
                self.without_xattrs += u64::from(!with_xattrs);
                is_in = push_entries(&mut parent.builder)?;
                break;
            }
        }
        self.left_out += u64::from(!is_in);
        Ok(())
    }
}
