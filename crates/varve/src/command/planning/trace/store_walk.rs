//! A trace of the snapshots of a store, from their trees. Leaves are read only to find how well
//! they compress.

use std::collections::BTreeMap;

use anyhow::{Context, Result, bail};
use varve_archive::{Snapshot, SnapshotContent};
use varve_block::{BlockName, BlockStore, BlockType};
use varve_content::{FolderStack, FolderStep, Node, NodeKind, NodeList};
use varve_store::Store;
use varve_trace::{
    BlockIds, BlockUse, SizeClass, SizeMeter, SnapshotBegin, SourceKind, TraceRecord, TraceRun, WaitingRun,
};
use varve_tree::{Entry, Visit, walk};

/// The limit for the memory of the table of numbers.
const IDS_BYTES_MAX: usize = 400 << 20;

/// Makes the records of snapshots.
pub(super) struct StoreWalk<'a> {
    store: &'a Store,
    ids: BlockIds,
    meter: Option<SizeMeter>,
    waiting: WaitingRun,
    /// The numbers of series, by host and name.
    series: BTreeMap<(String, String), u64>,
    /// The end of the last file, in bytes of the snapshot.
    place: u64,
    take: &'a mut dyn FnMut(TraceRecord) -> Result<()>,
}

impl<'a> StoreWalk<'a> {
    /// Passes the records to `take`. With `reads`, each block is read once.
    pub(super) fn new(
        store: &'a Store,
        reads: bool,
        take: &'a mut dyn FnMut(TraceRecord) -> Result<()>,
    ) -> Result<Self> {
        let ids = BlockIds::new(&*store.world().random, IDS_BYTES_MAX);
        let ids = ids.context("the system provides no random bytes")?;
        let meter = reads.then(SizeMeter::new);
        let mut walk = Self {
            store,
            ids,
            meter,
            waiting: WaitingRun::default(),
            series: BTreeMap::new(),
            place: 0,
            take,
        };
        walk.put_record(TraceRecord::Open)?;
        Ok(walk)
    }

    /// Makes the records of one snapshot.
    pub(super) fn snapshot(&mut self, snapshot: &Snapshot) -> Result<()> {
        let next = self.series.len() as u64;
        let key = (snapshot.host.clone(), snapshot.name.clone());
        let series = *self.series.entry(key).or_insert(next);
        let source = match &snapshot.content {
            SnapshotContent::Image(_) => SourceKind::Image,
            SnapshotContent::Folder(_) => SourceKind::Folder,
        };
        let time = snapshot.time.0.div_euclid(1_000_000_000);
        self.put_record(TraceRecord::Snapshot(SnapshotBegin { time, series, source }))?;
        self.place = 0;
        match &snapshot.content {
            SnapshotContent::Image(entry) => self.file(entry)?,
            SnapshotContent::Folder(root) => self.folder(root)?,
        }
        self.put_record(TraceRecord::Sync)
    }

    /// Passes on the run that waits, and the end.
    pub(super) fn finish(mut self) -> Result<()> {
        self.put_record(TraceRecord::Close)
    }

    fn folder(&mut self, root: &Node) -> Result<()> {
        let mut open = FolderStack::default();
        open.enter(NodeList::new(self.store, root), ())?;
        while let Some(step) = open.next() {
            let FolderStep::Node(node) = step else { continue };
            let node = node?;
            match node.kind {
                NodeKind::Folder => open.enter(NodeList::new(self.store, &node), ())?,
                _ => node.content.iter().try_for_each(|content| self.file(content))?,
            }
        }
        Ok(())
    }

    fn file(&mut self, content: &Entry) -> Result<()> {
        let (store, begin) = (self.store, self.place);
        let mut result = Ok(());
        walk(store, content, &mut |block| {
            if let Some(damage) = block.damage
                && result.is_ok()
            {
                result = Err(anyhow::anyhow!("{}", varve_block::with_causes(damage)));
            }
            if result.is_ok() && block.level == 0 && block.damage.is_none() {
                let bytes = block.range.end - block.range.start;
                result = self.leaf(&block.name, begin.saturating_add(block.range.start), bytes);
            }
            if result.is_ok() { Visit::Descend } else { Visit::Skip }
        });
        self.place = begin.saturating_add(content.size());
        result
    }

    fn leaf(&mut self, name: &BlockName, place: u64, bytes: u64) -> Result<()> {
        if self.ids.is_full() && !self.ids.knows(name) {
            bail!("the store has more blocks than a trace of it can distinguish in memory");
        }
        let (first_id, size_class) = match self.ids.id_of(name) {
            BlockUse::Again(id) => (id, SizeClass::UNKNOWN),
            BlockUse::First(id) => {
                let store = self.store;
                let meter = self.meter.as_mut();
                let class =
                    meter.map(|meter| store.get(name).map(|bytes| meter.class(&bytes))).transpose()?;
                (id, class.unwrap_or(SizeClass::UNKNOWN))
            }
        };
        self.put_record(TraceRecord::Put(TraceRun {
            place,
            first_id,
            block_count: 1,
            block_type: BlockType::DATA,
            block_bytes: u32::try_from(bytes).context("a leaf is larger than any block")?,
            size_class,
        }))
    }

    fn put_record(&mut self, record: TraceRecord) -> Result<()> {
        self.waiting.add(record).into_iter().flatten().try_for_each(&mut *self.take)
    }
}
