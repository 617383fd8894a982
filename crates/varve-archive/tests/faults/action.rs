//! What can be done to an archive, and how often a seed draws it.

use varve_sim::{Rot, SeededDraw};

use crate::target::Spoil;

/// Something that is done to an archive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// Puts a batch of blocks of the pool: `count` of them, from number `first` on.
    Put { first: u64, count: u32, bytes: u32 },
    /// Gets some of the blocks that were put, and those that are not there.
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
    /// Verifies the log, with `data` every byte of it.
    Verify { data: bool },
    /// Repairs a store that is not damaged.
    Repair,
    /// Syncs, and saves the index.
    Checkpoint,
    /// Opens the archive for reading beside whoever writes, or again.
    OpenReader,
    /// Lets the reader get all that was acknowledged when it was opened.
    AskReader,
    /// Tries to open the archive for writing a second time.
    SecondWriter,
    /// Whoever may not read takes a snapshot of the image, or of the folder, and closes the archive or dies.
    WriteOnly { folder: bool, changes: u32, closes: bool },
    /// Closes the archive in order.
    Close,
    /// The process dies, the machine does not.
    Kill,
    /// The power goes.
    PowerCut,
    /// There is room again on a disk that was full.
    MakeRoom,
    /// What was durable is damaged at `count` places; that is noticed, and mended.
    Rot { rot: Rot, count: u32, kind: Rotten, cure: Cure },
    /// The disk does not give `count` sectors of the log, in whatever state it is; later it does again.
    Withhold { count: u32, cuts_power: bool },
    /// Somebody copies all files as they are.
    Keep,
    /// So many files are put back as they were when they were copied, if they have changed since; that is noticed, and mended.
    PutBack { count: u32, kind: Rotten, cure: Cure },
    /// All of the store is as it was when it was copied, as when a machine goes back to a snapshot of its own.
    GoBack,
    /// Copies the log to its second home.
    Replicate,
    /// Reads the second home where it is, and audits it.
    ReadReplica,
    /// Brings the store back from its second home; with `moves` its first one is gone, and the copy is used from now on.
    Clone { moves: bool },
    /// The second home is damaged at `count` places; an audit says so, and replicating mends it.
    SpoilReplica { spoil: Spoil, count: u32 },
}

/// Which files rot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rotten {
    /// The log.
    Arenas,
    /// What arenas are mended from.
    Parity,
    /// What `index/` holds.
    Hints,
    /// `config.toml`, `FORMAT.md`, and the keys.
    Settings,
}

/// What is done about damage.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cure {
    /// `repair` with all that it can take from: parity, and the second home.
    Repair,
    /// `repair` without a second home.
    RepairAlone,
    /// The same data is archived again, night by night; only then `repair`.
    Nights,
}

impl Cure {
    pub fn draw(draw: &mut SeededDraw) -> Self {
        [Self::Repair, Self::Repair, Self::RepairAlone, Self::Nights][draw.index(4)]
    }
}

/// How many actions there are to draw, in hundredths of what the first version of these tests drew.
const ALL: u64 = 144;
const FIRST: u64 = 100;

impl Action {
    pub fn draw(draw: &mut SeededDraw, is_old: bool) -> Self {
        match draw.below(if is_old { FIRST } else { ALL }) {
            0..22 => {
                // Now and then so many tiny ones that a page is due before a sync.
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

    /// Returns the action of a Venti client in place of this one: such clients take no snapshots.
    pub fn of_others(self) -> Self {
        match self {
            Self::Image { changes } => Self::File { bytes: 150_000 * changes },
            Self::Folder { changes } => Self::File { bytes: 40_000 * changes },
            Self::WriteOnly { changes, .. } => Self::Put { first: 400, count: 10 * changes, bytes: 7000 },
            other => other,
        }
    }

    /// Its name in a report.
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
        }
    }

    /// Whether it asks the second home for something.
    pub fn asks_target(self) -> bool {
        matches!(self, Self::Replicate | Self::ReadReplica | Self::Clone { .. } | Self::SpoilReplica { .. })
            || matches!(self, Self::Rot { cure: Cure::Repair, .. } | Self::PutBack { cure: Cure::Repair, .. })
    }

    /// Forms of it that do less.
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
