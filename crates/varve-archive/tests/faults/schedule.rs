//! A schedule: the actions of one run and the faults that strike it, all drawn from a seed.

use std::fmt;
use std::str::FromStr;

use varve_log::{ArenaMap, ClumpBytes, ParityPercent};
use varve_sim::{Fault, SeededDraw, Strike};
use varve_store::{CompareMode, DiskIndexConfig, Encryption, IndexKind, ScoreAlgorithm, StoreConfig};

use crate::action::{Action, Cure, Rotten};
use crate::target::{TargetFault, TargetStrike};

/// Seeds with smaller numbers are older than [`Action::Withhold`], and keep the draws that they
/// had.
const FIRST_TO_WITHHOLD: u64 = 1000;

/// The number that decides a whole run. Old seeds are from before there were folders, damage and
/// replicas, and keep the draws that they had.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Seed {
    pub number: u64,
    pub is_old: bool,
    /// True if few steps are drawn, so that more stores are tried in the same time.
    pub is_short: bool,
    /// True if files are put back to an earlier state. The other draws are the same as without it.
    pub puts_back: bool,
    /// True if the store has its index on disk. The other draws are the same as without it.
    pub has_disk_index: bool,
    /// True if the store compares by value. The other draws are the same as without it.
    pub is_by_value: bool,
    /// True if Venti clients fill the store: by SHA-1, and without a snapshot. The other draws are
    /// the same as without it.
    pub is_foreign: bool,
    /// True if snapshots are forgotten and their space is freed. The other draws are the same as
    /// without it.
    pub collects: bool,
    /// True if the store makes deltas. The other draws are the same as without it.
    pub has_deltas: bool,
}

/// One run. A seed draws it, and a failure shrinks it.
#[derive(Debug, Clone)]
pub struct Schedule {
    pub seed: Seed,
    pub is_sha1: bool,
    pub is_plain: bool,
    pub clump_bytes: u32,
    /// Recovery shards for each hundred data shards; 0 means no parity.
    pub parity_percent: u8,
    pub create: Vec<Strike>,
    pub steps: Vec<Step>,
    /// Only for the test of the model: a disk that no engine can survive.
    pub pretends_to_sync: bool,
}

/// An action, and the faults that strike during it. They may also strike the opening before it.
#[derive(Debug, Clone)]
pub struct Step {
    /// Seeds the draws of the action and of the disk. A step can be left out, and the other steps
    /// do not change.
    pub draw: u64,
    pub action: Action,
    pub strikes: Vec<Strike>,
    /// Faults that strike at the target of the replica.
    pub target_strikes: Vec<TargetStrike>,
}

impl Seed {
    pub fn new(number: u64) -> Self {
        Self {
            number,
            is_old: false,
            is_short: false,
            puts_back: false,
            has_disk_index: false,
            is_by_value: false,
            is_foreign: false,
            collects: false,
            has_deltas: false,
        }
    }

    pub fn old(number: u64) -> Self {
        Self { is_old: true, ..Self::new(number) }
    }

    pub fn short(number: u64) -> Self {
        Self { is_short: true, ..Self::new(number) }
    }

    pub fn putting_back(self) -> Self {
        Self { puts_back: true, ..self }
    }

    pub fn with_disk_index(self) -> Self {
        Self { has_disk_index: true, ..self }
    }

    pub fn by_value(self) -> Self {
        Self { is_by_value: true, ..self }
    }

    pub fn filled_by_others(self) -> Self {
        Self { is_foreign: true, ..self }
    }

    pub fn collecting(self) -> Self {
        Self { collects: true, ..self }
    }

    pub fn with_deltas(self) -> Self {
        Self { has_deltas: true, ..self }
    }
}

impl FromStr for Seed {
    type Err = std::num::ParseIntError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (text, has_deltas) = text.strip_prefix("delta ").map_or((text, false), |text| (text, true));
        let (text, collects) = text.strip_prefix("gc ").map_or((text, false), |text| (text, true));
        let (text, is_foreign) = text.strip_prefix("vac ").map_or((text, false), |text| (text, true));
        let (text, is_by_value) = text.strip_prefix("value ").map_or((text, false), |text| (text, true));
        let (text, has_disk_index) = text.strip_prefix("disk ").map_or((text, false), |text| (text, true));
        let (text, is_old) = text.strip_prefix("old ").map_or((text, false), |text| (text, true));
        let (text, is_short) = text.strip_prefix("short ").map_or((text, false), |text| (text, true));
        let (text, puts_back) = text.strip_prefix("back ").map_or((text, false), |text| (text, true));
        let number = text.trim().parse()?;
        Ok(Self {
            number,
            is_old,
            is_short,
            puts_back,
            has_disk_index,
            is_by_value,
            is_foreign,
            collects,
            has_deltas,
        })
    }
}

impl fmt::Display for Seed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let index = if self.has_disk_index { "disk " } else { "" };
        let age = if self.is_old { "old " } else { "" };
        let compare = if self.is_by_value { "value " } else { "" };
        let length = if self.is_short { "short " } else { "" };
        let back = if self.puts_back { "back " } else { "" };
        let filled = if self.is_foreign { "vac " } else { "" };
        let collects = if self.collects { "gc " } else { "" };
        let deltas = if self.has_deltas { "delta " } else { "" };
        write!(f, "{deltas}{collects}{filled}{compare}{index}{age}{length}{back}{}", self.number)
    }
}

impl Schedule {
    /// Draws the schedule of `seed`.
    pub fn draw(seed: Seed) -> Self {
        let mut draw = SeededDraw::new(seed.number.wrapping_mul(0x2545_f491_4f6c_dd1d));
        let clump_bytes = [4 << 10, 16 << 10, 128 << 10, 1 << 20][draw.index(4)];
        // Seeds differ in how often a fault strikes, so that some runs get far.
        let calm = 2 + draw.below(6);
        let step_count = if seed.is_short { 3 + draw.index(8) } else { 4 + draw.index(28) };
        let (is_sha1, is_plain) = (draw.once_in(4), draw.once_in(4));
        let create = if draw.once_in(8) { vec![strike(&mut draw, 30)] } else { Vec::new() };
        let parity_percent = match seed.is_old {
            true => 0,
            false => [0, 0, 10, 30, 100][draw.index(5)],
        };
        let mut steps: Vec<_> = (0..step_count).map(|_| Step::draw(&mut draw, calm, seed.is_old)).collect();
        if !seed.is_old && (seed.is_short || seed.number >= FIRST_TO_WITHHOLD) {
            for _ in 0..draw.below(if seed.is_short { 2 } else { 4 }) {
                steps.insert(draw.index(steps.len() + 1), Step::withhold(&mut draw));
            }
        }
        if seed.puts_back {
            for _ in 0..1 + draw.below(3) {
                insert_with_keep(&mut steps, &mut draw, Step::put_back);
            }
            if draw.once_in(3) {
                insert_with_keep(&mut steps, &mut draw, |draw| Step::plain(draw, Action::GoBack));
            }
        }
        if seed.collects {
            for _ in 0..if seed.is_short { 4 + draw.below(6) } else { 8 + draw.below(16) } {
                steps.insert(draw.index(steps.len() + 1), Step::of_collecting(&mut draw, calm));
            }
        }
        if seed.is_foreign {
            steps.iter_mut().for_each(|step| step.action = step.action.of_others());
        }
        let is_sha1 = is_sha1 || seed.is_foreign;
        Self { seed, is_sha1, is_plain, clump_bytes, parity_percent, create, steps, pretends_to_sync: false }
    }

    /// The settings of the store.
    pub fn config(&self) -> StoreConfig {
        let mut config = StoreConfig::new([5; 16]);
        config.compare = if self.seed.is_by_value { CompareMode::Value } else { CompareMode::Hash };
        // By value, no hash names a block, so SHA-1 does not apply.
        let is_sha1 = self.is_sha1 && !self.seed.is_by_value;
        config.score = if is_sha1 { ScoreAlgorithm::Sha1 } else { ScoreAlgorithm::Blake3 };
        config.encryption = if self.is_plain { Encryption::None } else { Encryption::Aes256Gcm };
        config.arena_map = ArenaMap::new(ArenaMap::ARENA_BYTES_MIN).expect("the smallest");
        config.clump_bytes = ClumpBytes::new(self.clump_bytes).expect("between the bounds");
        config.parity_percent = ParityPercent::new(self.parity_percent);
        config.deltas = self.seed.has_deltas;
        if self.seed.has_disk_index {
            config.index = IndexKind::Disk;
            // The memory is so small that the index is written all the time.
            config.disk_index = DiskIndexConfig {
                memory_bytes: DiskIndexConfig::MEMORY_BYTES_MIN,
                expected_blocks: 100,
                ..DiskIndexConfig::default()
            };
        }
        config
    }
}

impl Step {
    fn withhold(draw: &mut SeededDraw) -> Self {
        let action = Action::Withhold { count: 1 + draw.below(3) as u32, cuts_power: draw.once_in(2) };
        let strikes = if draw.once_in(3) {
            vec![Strike { after: draw.below(60), fault: Fault::PowerCut }]
        } else {
            Vec::new()
        };
        Self { draw: draw.number(), action, strikes, target_strikes: Vec::new() }
    }

    fn plain(draw: &mut SeededDraw, action: Action) -> Self {
        Self { draw: draw.number(), action, strikes: Vec::new(), target_strikes: Vec::new() }
    }

    fn put_back(draw: &mut SeededDraw) -> Self {
        let kind = match draw.below(6) {
            0 => Rotten::Parity,
            1..3 => Rotten::Hints,
            _ => Rotten::Arenas,
        };
        // One, some, or all.
        let count = [1, 1, 2, u32::MAX][draw.index(4)];
        let action = Action::PutBack { count, kind, cure: Cure::draw(draw) };
        let strikes = if draw.once_in(3) { vec![strike(draw, 60)] } else { Vec::new() };
        Self { draw: draw.number(), action, strikes, target_strikes: Vec::new() }
    }

    fn of_collecting(draw: &mut SeededDraw, calm: u64) -> Self {
        let action = Action::draw_of_collecting(draw);
        Self::with_strikes(draw, calm, action)
    }

    fn draw(draw: &mut SeededDraw, calm: u64, is_old: bool) -> Self {
        let action = Action::draw(draw, is_old);
        Self::with_strikes(draw, calm, action)
    }

    fn with_strikes(draw: &mut SeededDraw, calm: u64, action: Action) -> Self {
        let strike_count = if draw.once_in(calm) { 1 + draw.below(3) } else { 0 };
        let mut strikes: Vec<Strike> = (0..strike_count)
            .map(|_| {
                let calls_max = [3, 10, 40, 150][draw.index(4)];
                strike(draw, calls_max)
            })
            .collect();
        // At most one fault makes a read lie, so that the second read is true. A disk that lies
        // twice about one place is damaged.
        let mut has_lie = false;
        strikes.retain(|strike| !strike.fault.is_lie() || !std::mem::replace(&mut has_lie, true));
        let target_strikes = match action.asks_target() && draw.once_in(2) {
            true => (0..1 + draw.below(3)).map(|_| target_strike(draw)).collect(),
            false => Vec::new(),
        };
        Self { draw: draw.number(), action, strikes, target_strikes }
    }
}

/// Inserts a step that copies all files, and the step that goes back to the copy somewhere after
/// it.
fn insert_with_keep(
    steps: &mut Vec<Step>,
    draw: &mut SeededDraw,
    back: impl FnOnce(&mut SeededDraw) -> Step,
) {
    let kept = draw.index(steps.len() + 1);
    steps.insert(kept, Step::plain(draw, Action::Keep));
    let place = kept + 1 + draw.index(steps.len() - kept);
    steps.insert(place, back(draw));
}

fn strike(draw: &mut SeededDraw, calls_max: u64) -> Strike {
    // The faults that test most are drawn a little more often.
    let fault = match draw.below(14) {
        0..3 => Fault::PowerCut,
        3..5 => Fault::SyncError,
        _ => Fault::ALL[draw.index(Fault::ALL.len())],
    };
    Strike { after: draw.below(calls_max), fault }
}

fn target_strike(draw: &mut SeededDraw) -> TargetStrike {
    let fault = TargetFault::ALL[draw.index(TargetFault::ALL.len())];
    let calls_max = [2, 8, 30][draw.index(3)];
    TargetStrike { after: draw.below(calls_max), fault }
}

impl fmt::Display for Schedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "seed {}: sha1 {}, plain {}, clumps of {} bytes, parity {}%",
            self.seed, self.is_sha1, self.is_plain, self.clump_bytes, self.parity_percent
        )?;
        writeln!(f, "  create {}", Struck(&self.create, &[]))?;
        for step in &self.steps {
            let struck = Struck(&step.strikes, &step.target_strikes);
            writeln!(f, "  {:?} (draw {:#x}) {struck}", step.action, step.draw)?;
        }
        Ok(())
    }
}

struct Struck<'a>(&'a [Strike], &'a [TargetStrike]);

impl fmt::Display for Struck<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let here = self.0.iter().map(|strike| (strike.after, strike.fault.name()));
        let there = self.1.iter().map(|strike| (strike.after, strike.fault.name()));
        let each = here.chain(there).map(|(after, name)| format!("after {after} calls: {name}"));
        f.write_str(&each.collect::<Vec<_>>().join("; "))
    }
}
