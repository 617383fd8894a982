//! The actions on an archive, and how often a seed draws each.

use varve_sim::{Rot, SeededDraw};

use crate::target::Spoil;

/// An action on an archive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// Puts a batch of `count` blocks of the pool, beginning with number `first`.
    Put { first: u64, count: u32, bytes: u32 },
    /// Gets some of the blocks that were put. Some of them were never acknowledged and may be
    /// absent.
    Get { count: u32 },
    /// Makes everything durable.
    Sync,
    /// Changes the image, and takes a snapshot of it.
    Image { changes: u32 },
    /// Changes the folder, and takes a snapshot of it.
    Folder { changes: u32 },
    /// Stores a file as a tree cut by content.
    File { bytes: u32 },
    /// Restores some snapshots and files.
    Restore { count: u32 },
    /// Verifies the log; `data` includes every byte of it.
    Verify { data: bool },
    /// Repairs a store that is not damaged.
    Repair,
    /// Syncs, and saves the index.
    Checkpoint,
    /// Opens or reopens the archive for reading, possibly beside a writer.
    OpenReader,
    /// The reader gets everything that was acknowledged when it was opened.
    AskReader,
    /// Tries to open the archive for writing a second time.
    SecondWriter,
    /// A client with a write-only key takes a snapshot of the image, or of the folder, and closes
    /// the archive or dies.
    WriteOnly { folder: bool, changes: u32, closes: bool },
    /// Closes the archive in order.
    Close,
    /// The process dies, and the machine goes on.
    Kill,
    /// The power fails.
    PowerCut,
    /// A full disk has space again.
    MakeRoom,
    /// Durable data is damaged at `count` places. The damage is noticed and repaired.
    Rot { rot: Rot, count: u32, kind: Rotten, cure: Cure },
    /// The disk withholds `count` sectors of the log, in any state of the log, and returns them
    /// later.
    Withhold { count: u32, cuts_power: bool },
    /// Copies all files as they are.
    Keep,
    /// Puts `count` of the copied files back, if they have changed since the copy. This is noticed
    /// and repaired.
    PutBack { count: u32, kind: Rotten, cure: Cure },
    /// Puts the whole store back to the copied state, as when a virtual machine goes back to a
    /// snapshot of its own.
    GoBack,
    /// Replicates the log.
    Replicate,
    /// Reads the replica at its target, and audits it.
    ReadReplica,
    /// Clones the store from its replica. With `moves` the original is gone, and the clone replaces
    /// it.
    Clone { moves: bool },
    /// The replica is damaged at `count` places. An audit reports it, and replicating again mends
    /// it.
    SpoilReplica { spoil: Spoil, count: u32 },
    /// Forgets `count` snapshots. Without undo the next collection frees their space.
    Forget { count: u32, has_undo: bool },
    /// Brings back `count` snapshots from the trash.
    UndoForget { count: u32 },
    /// Puts a hold on a snapshot, which then cannot be forgotten, and may release it.
    Hold { releases: bool },
    /// Some hours pass on the clock of the sessions that open later.
    Wait { hours: u32 },
    /// Plans a collection, in batches of `arenas_max` arenas.
    PlanCollection { arenas_max: u32 },
    /// Carries out the next batch of the planned collection.
    ApplyBatch,
    /// Plans a collection, and carries it out to its end.
    Collect { arenas_max: u32 },
    /// Opens a reader that has a lease on its snapshots.
    OpenLeasedReader,
    /// Replicates, and removes the earlier generations of rewritten arenas from the replica.
    DropSuperseded,
}

/// The kind of files that are damaged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rotten {
    /// The log.
    Arenas,
    /// The recovery data of arenas.
    Parity,
    /// All of `index/`.
    Hints,
    /// `config.toml`, `FORMAT.md`, and the keys.
    Settings,
}

/// The response to damage.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cure {
    /// `repair` with all its sources: parity and the replica.
    Repair,
    /// `repair` without a replica.
    RepairAlone,
    /// The same data is archived again, night after night, before `repair` runs.
    Nights,
}

impl Cure {
    pub fn draw(draw: &mut SeededDraw) -> Self {
        [Self::Repair, Self::Repair, Self::RepairAlone, Self::Nights][draw.index(4)]
    }
}

/// The range of the draw. The actions of the first version of these tests take the first hundred.
const ALL: u64 = 144;
const FIRST: u64 = 100;

impl Action {
    pub fn draw(draw: &mut SeededDraw, is_old: bool) -> Self {
        match draw.below(if is_old { FIRST } else { ALL }) {
            0..22 => {
                // One batch in 12 has so many tiny blocks that a page is due before a sync.
                let (count, bytes) = match draw.below(12) {
                    0 => (3000 + draw.index(4000), 9 + draw.index(40)),
                    1..4 => (1 + draw.index(30), 20_000 + draw.index(40_000)),
                    _ => (1 + draw.index(40), 1 + draw.index(9000)),
                };
                Self::Put { first: draw.below(300), count: count as u32, bytes: bytes as u32 }
            }
            22..30 => Self::Get { count: 1 + draw.below(60) as u32 },
            30..42 => Self::Sync,
            42..57 => Self::Image { changes: 1 + draw.below(3) as u32 },
            57..62 => Self::File { bytes: 1 + draw.below(600_000) as u32 },
            62..67 => Self::Restore { count: 1 + draw.below(4) as u32 },
            67..71 => Self::Verify { data: draw.once_in(2) },
            71..76 => Self::Checkpoint,
            76..80 => Self::OpenReader,
            80..83 => Self::AskReader,
            83..85 => Self::SecondWriter,
            85..90 => Self::Close,
            90..94 => Self::Kill,
            94..98 => Self::PowerCut,
            98..100 => Self::MakeRoom,
            100..108 => Self::Folder { changes: 1 + draw.below(4) as u32 },
            108..114 => Self::WriteOnly {
                folder: draw.once_in(2),
                changes: 1 + draw.below(3) as u32,
                closes: draw.once_in(2),
            },
            114..116 => Self::Repair,
            116..126 => Self::Rot {
                rot: Rot::ALL[draw.index(Rot::ALL.len())],
                count: 1 + draw.below(3) as u32,
                kind: match draw.below(10) {
                    0 => Rotten::Parity,
                    1 => Rotten::Hints,
                    2 => Rotten::Settings,
                    _ => Rotten::Arenas,
                },
                cure: Cure::draw(draw),
            },
            126..135 => Self::Replicate,
            135..138 => Self::ReadReplica,
            138..141 => Self::Clone { moves: draw.once_in(2) },
            _ => Self::SpoilReplica {
                spoil: Spoil::ALL[draw.index(Spoil::ALL.len())],
                count: 1 + draw.below(3) as u32,
            },
        }
    }

    /// Draws a step of forgetting and collecting, or one that these steps must not harm.
    pub fn draw_of_collecting(draw: &mut SeededDraw) -> Self {
        let arenas_max = |draw: &mut SeededDraw| [1, 1, 2, u32::MAX][draw.index(4)];
        match draw.below(100) {
            0..20 => Self::Forget { count: 1 + draw.below(4) as u32, has_undo: draw.once_in(2) },
            20..26 => Self::UndoForget { count: 1 + draw.below(2) as u32 },
            26..31 => Self::Hold { releases: draw.once_in(2) },
            31..35 => Self::Wait { hours: 1 + draw.below(4) as u32 },
            35..45 => Self::PlanCollection { arenas_max: arenas_max(draw) },
            45..60 => Self::ApplyBatch,
            60..70 => Self::Collect { arenas_max: arenas_max(draw) },
            70..74 => Self::OpenLeasedReader,
            74..78 => Self::AskReader,
            78..84 => Self::DropSuperseded,
            84..88 => Self::WriteOnly {
                folder: draw.once_in(2),
                changes: 1 + draw.below(3) as u32,
                closes: draw.once_in(2),
            },
            _ => Self::Image { changes: 1 + draw.below(6) as u32 },
        }
    }

    /// Returns the action of a Venti client in place of this one: such clients take no snapshots.
    pub fn of_others(self) -> Self {
        match self {
            Self::Image { changes } => Self::File { bytes: 150_000 * changes },
            Self::Folder { changes } => Self::File { bytes: 40_000 * changes },
            Self::WriteOnly { changes, .. } => Self::Put { first: 400, count: 10 * changes, bytes: 7000 },
            other => other,
        }
    }

    /// The action's name in a report.
    pub fn name(self) -> &'static str {
        match self {
            Self::Put { .. } => "put",
            Self::Get { .. } => "get",
            Self::Sync => "sync",
            Self::Image { .. } => "snapshot of an image",
            Self::Folder { .. } => "snapshot of a folder",
            Self::File { .. } => "file cut by content",
            Self::Restore { .. } => "restore",
            Self::Verify { .. } => "verify",
            Self::Repair => "repair of what is whole",
            Self::Checkpoint => "checkpoint",
            Self::OpenReader => "open to read",
            Self::AskReader => "read beside a writer",
            Self::SecondWriter => "second writer",
            Self::WriteOnly { .. } => "night with a write-only key",
            Self::Close => "close",
            Self::Kill => "kill",
            Self::PowerCut => "power cut between calls",
            Self::MakeRoom => "room again",
            Self::Rot { .. } => "damage, and its cure",
            Self::Withhold { .. } => "sectors that cannot be read for a while",
            Self::Keep => "files are copied",
            Self::PutBack { .. } => "files put back as they were, and the cure",
            Self::GoBack => "the whole store as it was",
            Self::Replicate => "replicate",
            Self::ReadReplica => "read and audit a replica",
            Self::Clone { .. } => "clone",
            Self::SpoilReplica { .. } => "damage of a replica",
            Self::Forget { .. } => "forget",
            Self::UndoForget { .. } => "undo of forgetting",
            Self::Hold { .. } => "hold",
            Self::Wait { .. } => "hours pass",
            Self::PlanCollection { .. } => "plan of a collection",
            Self::ApplyBatch => "batch of a collection",
            Self::Collect { .. } => "collection",
            Self::OpenLeasedReader => "open to read with a lease",
            Self::DropSuperseded => "superseded generations are removed",
        }
    }

    /// True if the action uses the replica.
    pub fn asks_target(self) -> bool {
        matches!(self, Self::Replicate | Self::ReadReplica | Self::Clone { .. } | Self::SpoilReplica { .. })
            || self == Self::DropSuperseded
            || matches!(self, Self::Rot { cure: Cure::Repair, .. } | Self::PutBack { cure: Cure::Repair, .. })
    }

    /// Forms of the action that do less.
    pub fn lesser(self) -> Vec<Self> {
        let half = |count: u32| (count > 1).then_some(count / 2);
        match self {
            Self::Put { first, count, bytes } => {
                let fewer = half(count).map(|count| Self::Put { first, count, bytes });
                let shorter = half(bytes).map(|bytes| Self::Put { first, count, bytes });
                fewer.into_iter().chain(shorter).collect()
            }
            Self::Get { count } => half(count).map(|count| Self::Get { count }).into_iter().collect(),
            Self::Image { changes } => {
                half(changes).map(|changes| Self::Image { changes }).into_iter().collect()
            }
            Self::Folder { changes } => {
                half(changes).map(|changes| Self::Folder { changes }).into_iter().collect()
            }
            Self::File { bytes } => half(bytes).map(|bytes| Self::File { bytes }).into_iter().collect(),
            Self::Restore { count } => half(count).map(|count| Self::Restore { count }).into_iter().collect(),
            Self::Verify { data: true } => vec![Self::Verify { data: false }],
            Self::Forget { count, has_undo } => {
                half(count).map(|count| Self::Forget { count, has_undo }).into_iter().collect()
            }
            Self::UndoForget { count } => {
                half(count).map(|count| Self::UndoForget { count }).into_iter().collect()
            }
            Self::Hold { releases: true } => vec![Self::Hold { releases: false }],
            Self::WriteOnly { folder, changes, closes } => {
                half(changes).map(|changes| Self::WriteOnly { folder, changes, closes }).into_iter().collect()
            }
            Self::Rot { rot, count, kind, cure } => {
                half(count).map(|count| Self::Rot { rot, count, kind, cure }).into_iter().collect()
            }
            Self::Withhold { count, cuts_power } => {
                half(count).map(|count| Self::Withhold { count, cuts_power }).into_iter().collect()
            }
            Self::PutBack { count, kind, cure } => {
                half(count).map(|count| Self::PutBack { count, kind, cure }).into_iter().collect()
            }
            Self::SpoilReplica { spoil, count } => {
                half(count).map(|count| Self::SpoilReplica { spoil, count }).into_iter().collect()
            }
            _ => Vec::new(),
        }
    }
}
