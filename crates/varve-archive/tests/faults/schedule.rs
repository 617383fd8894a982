//! What is done, and what goes wrong: all that a seed decides.

use std::fmt;

use varve_log::{ArenaMap, ClumpBytes};
use varve_sim::{Draw, Fault, Strike};
use varve_store::{Encryption, ScoreAlgorithm, StoreConfig};

/// A run, as a seed draws it and a failure shrinks it.
#[derive(Debug, Clone)]
pub struct Schedule {
    pub seed: u64,
    pub is_sha1: bool,
    pub is_plain: bool,
    pub clump_bytes: u32,
    pub create: Vec<Strike>,
    pub steps: Vec<Step>,
    /// For the test of the model: a disk that no engine can survive.
    pub pretends_to_sync: bool,
}

/// An action, and what strikes while it is carried out: while the archive is opened for it, too.
#[derive(Debug, Clone)]
pub struct Step {
    /// Decides all that the action and the disk draw, so that steps can be left out and the others stay as they are.
    pub draw: u64,
    pub action: Action,
    pub strikes: Vec<Strike>,
}

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
    /// Stores a file as a tree cut by content.
    File { bytes: u32 },
    /// Restores some snapshots and files.
    Restore { count: u32 },
    /// Verifies the log, with `data` every byte of it.
    Verify { data: bool },
    /// Syncs, and saves the index.
    Checkpoint,
    /// Opens the archive for reading beside whoever writes, or again.
    OpenReader,
    /// Lets the reader get all that was acknowledged when it was opened.
    AskReader,
    /// Tries to open the archive for writing a second time.
    SecondWriter,
    /// Closes the archive in order.
    Close,
    /// The process dies, the machine does not.
    Kill,
    /// The power goes.
    PowerCut,
    /// There is room again on a disk that was full.
    MakeRoom,
}

impl Action {
    fn draw(draw: &mut Draw) -> Self {
        match draw.below(100) {
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
            _ => Self::MakeRoom,
        }
    }

    /// Its name in a report.
    pub fn name(self) -> &'static str {
        match self {
            Self::Put { .. } => "put",
            Self::Get { .. } => "get",
            Self::Sync => "sync",
            Self::Image { .. } => "snapshot of an image",
            Self::File { .. } => "file cut by content",
            Self::Restore { .. } => "restore",
            Self::Verify { .. } => "verify",
            Self::Checkpoint => "checkpoint",
            Self::OpenReader => "open to read",
            Self::AskReader => "read beside a writer",
            Self::SecondWriter => "second writer",
            Self::Close => "close",
            Self::Kill => "kill",
            Self::PowerCut => "power cut between calls",
            Self::MakeRoom => "room again",
        }
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
            Self::File { bytes } => half(bytes).map(|bytes| Self::File { bytes }).into_iter().collect(),
            Self::Restore { count } => half(count).map(|count| Self::Restore { count }).into_iter().collect(),
            Self::Verify { data: true } => vec![Self::Verify { data: false }],
            _ => Vec::new(),
        }
    }
}

impl Schedule {
    /// What `seed` draws.
    pub fn draw(seed: u64) -> Self {
        let mut draw = Draw::new(seed.wrapping_mul(0x2545_f491_4f6c_dd1d));
        let clump_bytes = [4 << 10, 16 << 10, 128 << 10, 1 << 20][draw.index(4)];
        // How often something goes wrong differs from seed to seed: some should come far.
        let calm = 2 + draw.below(6);
        let step_count = 4 + draw.index(28);
        Self {
            seed,
            is_sha1: draw.once_in(4),
            is_plain: draw.once_in(4),
            clump_bytes,
            create: if draw.once_in(8) { vec![strike(&mut draw, 30)] } else { Vec::new() },
            steps: (0..step_count).map(|_| Step::draw(&mut draw, calm)).collect(),
            pretends_to_sync: false,
        }
    }

    /// What the store is made with.
    pub fn config(&self) -> StoreConfig {
        let mut config = StoreConfig::new([5; 16]);
        config.score = if self.is_sha1 { ScoreAlgorithm::Sha1 } else { ScoreAlgorithm::Blake3 };
        config.encryption = if self.is_plain { Encryption::None } else { Encryption::Aes256Gcm };
        config.arena_map = ArenaMap::new(ArenaMap::ARENA_BYTES_MIN).expect("the smallest");
        config.clump_bytes = ClumpBytes::new(self.clump_bytes).expect("between the bounds");
        config
    }
}

impl Step {
    fn draw(draw: &mut Draw, calm: u64) -> Self {
        let action = Action::draw(draw);
        let strike_count = if draw.once_in(calm) { 1 + draw.below(3) } else { 0 };
        let mut strikes: Vec<Strike> = (0..strike_count)
            .map(|_| {
                let calls_max = [3, 10, 40, 150][draw.index(4)];
                strike(draw, calls_max)
            })
            .collect();
        // One lie at a time: what is read a second time is true. A disk that lies twice of one place is damaged, not faulty.
        let mut has_lie = false;
        strikes.retain(|strike| !strike.fault.is_lie() || !std::mem::replace(&mut has_lie, true));
        Self { draw: draw.number(), action, strikes }
    }
}

fn strike(draw: &mut Draw, calls_max: u64) -> Strike {
    // Those that test most come a little more often.
    let fault = match draw.below(14) {
        0..3 => Fault::PowerCut,
        3..5 => Fault::SyncError,
        _ => Fault::ALL[draw.index(Fault::ALL.len())],
    };
    Strike { after: draw.below(calls_max), fault }
}

impl fmt::Display for Schedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "seed {}: sha1 {}, plain {}, clumps of {} bytes",
            self.seed, self.is_sha1, self.is_plain, self.clump_bytes
        )?;
        writeln!(f, "  create {}", Struck(&self.create))?;
        for step in &self.steps {
            writeln!(f, "  {:?} (draw {:#x}) {}", step.action, step.draw, Struck(&step.strikes))?;
        }
        Ok(())
    }
}

struct Struck<'a>(&'a [Strike]);

impl fmt::Display for Struck<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let each =
            self.0.iter().map(|strike| format!("after {} calls: {}", strike.after, strike.fault.name()));
        f.write_str(&each.collect::<Vec<_>>().join("; "))
    }
}
