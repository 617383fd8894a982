//! Files as chains of clusters, as FAT and exFAT store them.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use parking_lot::Mutex;
use varve_block::to_usize;

use crate::bytes::fields::{u16_at, u32_at};
use crate::bytes::read_at::ReadAt;
use crate::file_systems::file_system::FileSystemError;

/// The number of the first cluster.
pub(crate) const FIRST_CLUSTER: u32 = 2;
/// The bytes of the table that are read at a time.
const WINDOW_BYTES: u64 = 4096;
/// A file with more runs than this is refused: the count is controlled by the disk and would be
/// unbounded.
const RUN_COUNT_MAX: usize = 1 << 20;
/// The number of files whose chains are cached.
const CHAIN_COUNT_MAX: usize = 4;

/// The width of an entry in the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TableWidth {
    Twelve,
    Sixteen,
    /// 32 bits, of which the upper four are reserved.
    TwentyEight,
    ThirtyTwo,
}

/// Consecutive clusters of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ClusterRun {
    /// The number of clusters of the file before this run.
    pub(crate) before: u32,
    /// The first cluster.
    pub(crate) cluster: u32,
    /// The number of clusters.
    pub(crate) count: u32,
}

/// The runs of a file, in its order.
pub(crate) type ClusterChain = Arc<[ClusterRun]>;

/// The positions of clusters, and the table that chains them.
pub(crate) struct Clusters {
    volume: Arc<dyn ReadAt>,
    width: TableWidth,
    table_start: u64,
    heap_start: u64,
    cluster_bytes: u64,
    cluster_count: u32,
    /// Chains by their first cluster. The most recently used ones are at the end.
    known: Mutex<VecDeque<(u32, ClusterChain)>>,
}

/// The successor of a cluster.
enum NextCluster {
    Cluster(u32),
    End,
}

impl Clusters {
    pub(crate) fn new(
        volume: Arc<dyn ReadAt>,
        width: TableWidth,
        table_start: u64,
        heap_start: u64,
        cluster_bytes: u64,
        cluster_count: u32,
    ) -> Self {
        let known = Mutex::default();
        Self { volume, width, table_start, heap_start, cluster_bytes, cluster_count, known }
    }

    pub(crate) fn cluster_bytes(&self) -> u64 {
        self.cluster_bytes
    }

    /// Returns the number of the cluster that contains a byte of the volume, and the offset within
    /// it.
    pub(crate) fn locate(&self, position: u64) -> Option<(u32, u64)> {
        let within = position.checked_sub(self.heap_start)?;
        let number = u32::try_from(within.checked_div(self.cluster_bytes)?).ok()?;
        let cluster = number.checked_add(FIRST_CLUSTER)?;
        Some((cluster, within.checked_rem(self.cluster_bytes)?)).filter(|_| number < self.cluster_count)
    }

    /// Returns the position of a cluster in the volume.
    pub(crate) fn position(&self, cluster: u32) -> Option<u64> {
        let number = cluster.checked_sub(FIRST_CLUSTER).filter(|number| *number < self.cluster_count)?;
        self.heap_start.checked_add(u64::from(number).checked_mul(self.cluster_bytes)?)
    }

    /// Returns all clusters from `first` on, as the table chains them.
    pub(crate) fn chain(&self, first: u32, what: &str) -> Result<ClusterChain, FileSystemError> {
        if let Some(chain) = self.remembered(first) {
            return Ok(chain);
        }
        let mut runs: Vec<ClusterRun> = Vec::new();
        let mut window = TableWindow { start: u64::MAX, bytes: Vec::new() };
        let (mut cluster, mut before) = (first, 0_u32);
        loop {
            if self.position(cluster).is_none() {
                return Err(damaged(
                    what,
                    format!("it continues in cluster {cluster}, which does not exist"),
                ));
            }
            // A chain that is longer than the heap is a cycle.
            if before >= self.cluster_count {
                return Err(damaged(what, "its chain of clusters is a cycle".into()));
            }
            let run_count = runs.len();
            match runs.last_mut() {
                Some(run) if run.cluster.checked_add(run.count) == Some(cluster) => {
                    run.count = run.count.saturating_add(1);
                }
                _ if run_count == RUN_COUNT_MAX => {
                    let feature = format!("a file in more than {RUN_COUNT_MAX} pieces");
                    return Err(FileSystemError::Unsupported { what: what.into(), feature });
                }
                _ => runs.push(ClusterRun { before, cluster, count: 1 }),
            }
            before = before.saturating_add(1);
            match self.next(cluster, &mut window, what)? {
                NextCluster::Cluster(next) => cluster = next,
                NextCluster::End => break,
            }
        }
        let chain: ClusterChain = runs.into();
        self.remember(first, &chain);
        Ok(chain)
    }

    /// Fills `into` with the bytes of a chain from `offset` on.
    pub(crate) fn read(
        &self,
        chain: &[ClusterRun],
        offset: u64,
        into: &mut [u8],
        what: &str,
    ) -> Result<(), FileSystemError> {
        let (mut offset, mut rest) = (offset, into);
        while !rest.is_empty() {
            let found = self.run_at(chain, offset);
            let Some((position, left)) = found else {
                return Err(damaged(what, format!("its clusters end before byte {offset}")));
            };
            let length = rest.len().min(to_usize(left));
            let (now, later) = rest.split_at_mut_checked(length).unwrap_or_default();
            self.volume.read_at(position, now).map_err(|source| FileSystemError::Read {
                what: format!("{what} (byte {offset})"),
                source,
            })?;
            offset = offset.saturating_add(length as u64);
            rest = later;
        }
        Ok(())
    }

    /// Returns the position of a byte of a chain in the volume, and the number of bytes that follow
    /// contiguously.
    pub(crate) fn run_at(&self, chain: &[ClusterRun], offset: u64) -> Option<(u64, u64)> {
        let number = u32::try_from(offset.checked_div(self.cluster_bytes)?).ok()?;
        let place = chain.partition_point(|run| run.before <= number).checked_sub(1)?;
        let run = chain.get(place)?;
        let within = offset.checked_sub(u64::from(run.before).checked_mul(self.cluster_bytes)?)?;
        let left = u64::from(run.count).checked_mul(self.cluster_bytes)?.checked_sub(within)?;
        let position = self.position(run.cluster)?.checked_add(within)?;
        (left > 0).then_some((position, left))
    }

    /// Returns the ranges of the volume that hold the first `bytes` of a chain.
    pub(crate) fn places(&self, chain: &[ClusterRun], bytes: u64) -> Vec<Range<u64>> {
        let of_run = |run: &ClusterRun| {
            let before = u64::from(run.before).saturating_mul(self.cluster_bytes);
            let length = u64::from(run.count).saturating_mul(self.cluster_bytes);
            let start = self.position(run.cluster)?;
            let used = length.min(bytes.saturating_sub(before));
            (used > 0).then(|| start..start.saturating_add(used))
        };
        chain.iter().filter_map(of_run).collect()
    }

    fn next(
        &self,
        cluster: u32,
        window: &mut TableWindow,
        what: &str,
    ) -> Result<NextCluster, FileSystemError> {
        let number = u64::from(cluster);
        let within = match self.width {
            TableWidth::Twelve => number.saturating_add(number >> 1),
            TableWidth::Sixteen => number.saturating_mul(2),
            TableWidth::TwentyEight | TableWidth::ThirtyTwo => number.saturating_mul(4),
        };
        let entry = self.entry_bytes(self.table_start.saturating_add(within), window)?;
        let (value, end) = match self.width {
            TableWidth::Twelve if cluster & 1 == 0 => (u32::from(u16_at(&entry, 0)) & 0xfff, 0xff8),
            TableWidth::Twelve => (u32::from(u16_at(&entry, 0)) >> 4, 0xff8),
            TableWidth::Sixteen => (u32::from(u16_at(&entry, 0)), 0xfff8),
            TableWidth::TwentyEight => (u32_at(&entry, 0) & 0x0fff_ffff, 0x0fff_fff8),
            TableWidth::ThirtyTwo => (u32_at(&entry, 0), 0xffff_fff8),
        };
        if value >= end {
            return Ok(NextCluster::End);
        }
        if value < FIRST_CLUSTER {
            return Err(damaged(what, format!("it continues from cluster {cluster} to a free one")));
        }
        Ok(NextCluster::Cluster(value))
    }

    /// Returns the four bytes at an offset of the volume; zeros beyond its end.
    fn entry_bytes(&self, at: u64, window: &mut TableWindow) -> Result<[u8; 4], FileSystemError> {
        let start = at & !WINDOW_BYTES.wrapping_sub(1);
        if window.start != start {
            // Entries of twelve bits may cross the end of a window.
            let length = self.volume.size().saturating_sub(start).min(WINDOW_BYTES.saturating_add(4));
            window.bytes.clear();
            window.bytes.resize(to_usize(length), 0);
            let read = self.volume.read_at(start, &mut window.bytes);
            read.map_err(|source| FileSystemError::Read { what: "table of clusters".into(), source })?;
            window.start = start;
        }
        let within = to_usize(at.saturating_sub(start));
        Ok(crate::bytes::fields::array_at(&window.bytes, within))
    }

    fn remembered(&self, first: u32) -> Option<ClusterChain> {
        let mut known = self.known.lock();
        let place = known.iter().position(|(start, _)| *start == first)?;
        let found = known.remove(place)?;
        let chain = Arc::clone(&found.1);
        known.push_back(found);
        Some(chain)
    }

    fn remember(&self, first: u32, chain: &ClusterChain) {
        let mut known = self.known.lock();
        if known.len() == CHAIN_COUNT_MAX {
            known.pop_front();
        }
        known.push_back((first, Arc::clone(chain)));
    }
}

struct TableWindow {
    start: u64,
    bytes: Vec<u8>,
}

pub(crate) fn damaged(what: &str, problem: String) -> FileSystemError {
    FileSystemError::Damaged { what: what.into(), problem }
}
