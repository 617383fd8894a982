//! One candidate: where each dataset lies, what that costs, and whether it meets the level.

use serde::Serialize;

use super::demand::{Demand, EngineDemand, FREE_SHARE};
use super::inputs::{DriveType, HardwareTable, ServerType, ServiceLevel};
use crate::cost::{CaseCost, SplitCost};

/// Drives of one type, as its position in the table, and their number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Drives {
    pub drive: usize,
    pub count: u32,
}

/// The place of the index.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum PlacedIndex {
    InMemory,
    /// In files on the arenas' drives.
    BesideArenas,
    On(Drives),
}

/// The place of the cache for single reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum PlacedCache {
    Nowhere,
    /// In so many units of memory.
    InMemory(u32),
    On(Drives),
}

/// A design to be judged. It has positions and counts only, so that a search copies no names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Candidate {
    /// The position in the demand's engines.
    pub engine: usize,
    /// The position in the table's servers.
    pub server: usize,
    pub arenas: Drives,
    pub index: PlacedIndex,
    pub cache: PlacedCache,
}

/// The kinds of parts of a design, without their counts and the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Architecture {
    pub engine: usize,
    pub arenas: usize,
    pub index: PlacedIndex,
    pub cache: PlacedCache,
}

impl Candidate {
    pub(super) fn architecture(&self) -> Architecture {
        let one = |drives: Drives| Drives { count: 1, ..drives };
        Architecture {
            engine: self.engine,
            arenas: self.arenas.drive,
            index: match self.index {
                PlacedIndex::On(drives) => PlacedIndex::On(one(drives)),
                place => place,
            },
            cache: match self.cache {
                PlacedCache::On(drives) => PlacedCache::On(one(drives)),
                PlacedCache::InMemory(_) => PlacedCache::InMemory(1),
                PlacedCache::Nowhere => PlacedCache::Nowhere,
            },
        }
    }

    /// Returns the drives of a type that the design needs.
    pub(super) fn drive_count(&self, drive: usize) -> u32 {
        self.all_drives().filter(|drives| drives.drive == drive).map(|drives| drives.count).sum()
    }

    fn all_drives(&self) -> impl Iterator<Item = Drives> {
        let index = if let PlacedIndex::On(drives) = self.index { Some(drives) } else { None };
        let cache = if let PlacedCache::On(drives) = self.cache { Some(drives) } else { None };
        [Some(self.arenas), index, cache].into_iter().flatten()
    }
}

/// A thing that has a price.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Priced {
    Core,
    Memory,
    Drive(usize),
    Server(usize),
}

/// The cost of each thing over the years: its price, and its power.
#[derive(Debug, Clone)]
pub(super) struct Market {
    pub core: f64,
    pub memory: f64,
    pub drives: Vec<f64>,
    pub servers: Vec<f64>,
}

impl Market {
    /// Adds prices and power. The price of one thing may be multiplied by a factor.
    pub(super) fn of(table: &HardwareTable, years: f64, scaled: Option<(Priced, f64)>) -> Self {
        let charged_years = (years - table.power_included_years).max(0.0);
        let watt = charged_years * 365.25 * 24.0 / 1000.0 * table.power_per_kwh;
        let cost = |thing, price: f64, watts: f64| {
            let factor = scaled.filter(|(scaled, _)| *scaled == thing).map_or(1.0, |(_, factor)| factor);
            price * factor + watts * watt
        };
        let drives = table.drives.iter().enumerate();
        let servers = table.servers.iter().enumerate();
        Self {
            core: cost(Priced::Core, table.core.price, table.core.watts),
            memory: cost(Priced::Memory, table.memory.price, table.memory.watts),
            drives: drives.map(|(at, one)| cost(Priced::Drive(at), one.price, one.watts)).collect(),
            servers: servers.map(|(at, one)| cost(Priced::Server(at), one.price, one.watts)).collect(),
        }
    }

    pub(super) fn drives(&self, drives: Drives) -> f64 {
        self.drives[drives.drive] * f64::from(drives.count)
    }

    pub(super) fn index(&self, index: PlacedIndex) -> f64 {
        if let PlacedIndex::On(drives) = index { self.drives(drives) } else { 0.0 }
    }

    /// Returns the cost of a candidate with so many cores and units of memory. The units hold a
    /// cache in memory, too.
    fn cost(&self, candidate: &Candidate, cores: u32, memory_units: u32) -> f64 {
        self.servers[candidate.server]
            + self.core * f64::from(cores)
            + self.memory * f64::from(memory_units)
            + self.drives(candidate.arenas)
            + self.index(candidate.index)
            + if let PlacedCache::On(drives) = candidate.cache { self.drives(drives) } else { 0.0 }
    }

    pub(super) fn cache(&self, cache: PlacedCache) -> f64 {
        match cache {
            PlacedCache::Nowhere => 0.0,
            PlacedCache::InMemory(units) => self.memory * f64::from(units),
            PlacedCache::On(drives) => self.drives(drives),
        }
    }
}

/// The figures of a candidate that meets the level.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Judged {
    pub cost: f64,
    pub cores: u32,
    pub memory_units: u32,
    pub snapshot_seconds: f64,
    pub restore_rate: f64,
    pub look_seconds: f64,
    /// The share of the arenas' drives that is full at the end.
    pub full_share: f64,
}

/// Everything that a candidate is judged by.
pub(super) struct Setting<'a> {
    pub demand: &'a Demand,
    pub table: &'a HardwareTable,
    pub market: &'a Market,
    pub level: &'a ServiceLevel,
}

/// Returns the time of some work on drives that share it.
fn time(cost: &CaseCost, drive: &DriveType, count: u32) -> f64 {
    let one = cost.seeks / drive.deep_reads()
        + cost.read_bytes / drive.read_rate
        + cost.written_bytes / drive.write_rate;
    one / f64::from(count)
}

/// Returns the time of a single transfer, which one drive serves.
fn latency(cost: &CaseCost, drive: &DriveType) -> f64 {
    cost.seeks / drive.reads_per_second + cost.read_bytes / drive.read_rate
}

/// Rounds a need up to whole parts; `None` if it is more than a limit.
fn whole(need: f64, limit: u32) -> Option<u32> {
    // A need that is whole but for rounding is not one more.
    let parts = (need - 1e-9).ceil().max(0.0);
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "compared with the limit")]
    (parts <= f64::from(limit)).then_some(parts as u32)
}

impl Setting<'_> {
    pub(super) fn engine(&self, candidate: &Candidate) -> &EngineDemand {
        &self.demand.engines[candidate.engine]
    }

    pub(super) fn server(&self, candidate: &Candidate) -> &ServerType {
        &self.table.servers[candidate.server]
    }

    /// Returns the bytes that the arenas' drives must hold.
    pub(super) fn arena_bytes(&self, engine: usize, index: PlacedIndex) -> f64 {
        let beside = match index {
            PlacedIndex::On(_) => 0.0,
            // The checkpoint of an index in memory lies there, too.
            PlacedIndex::InMemory | PlacedIndex::BesideArenas => self.demand.engines[engine].index_bytes,
        };
        self.demand.needs.log_bytes + beside
    }

    pub(super) fn holds(&self, drives: Drives, bytes: f64) -> bool {
        self.table.drives[drives.drive].bytes * f64::from(drives.count) * (1.0 - FREE_SHARE) >= bytes
    }

    /// Judges a candidate. `None` if it does not meet the level, or does not fit together.
    pub(super) fn judge(&self, candidate: &Candidate) -> Option<Judged> {
        let (demand, level) = (self.demand, self.level);
        let (engine, server) = (self.engine(candidate), self.server(candidate));
        if !self.has_room_on_drives(candidate) {
            return None;
        }
        let memory_units = self.memory_units(candidate)?;
        let network = if demand.over_network { 1.0 / server.network_rate } else { 0.0 };
        let snapshot =
            self.time_on_drives(candidate, &engine.snapshot).max(demand.network_bytes / server.network_rate);
        let restore = self.time_on_drives(candidate, &engine.restore).max(network);
        let snapshot_limit = level.snapshot_hours * 3600.0;
        let (hits, hit_seconds, hit_load) = self.cache(candidate);
        let miss_load = self.time_on_drives(candidate, &engine.look);
        let misses = demand.looks_per_second * (1.0 - hits);
        if snapshot > snapshot_limit
            || restore * level.restore_bytes_per_second > 1.0
            || misses * miss_load > 1.0
            || demand.looks_per_second * hits * hit_load > 1.0
        {
            return None;
        }
        let look_seconds = hits * hit_seconds + (1.0 - hits) * self.miss_seconds(candidate);
        if look_seconds * 1000.0 > level.look_ms {
            return None;
        }
        let busy = (engine.snapshot_core / snapshot_limit)
            .max(engine.restore_core * level.restore_bytes_per_second)
            + demand.looks_per_second * engine.look_core;
        let cores = whole(busy, server.cores)?.max(1);
        let core = |seconds: f64| seconds / f64::from(cores);
        Some(Judged {
            cost: self.market.cost(candidate, cores, memory_units),
            cores,
            memory_units,
            snapshot_seconds: snapshot.max(core(engine.snapshot_core)),
            restore_rate: 1.0 / restore.max(core(engine.restore_core)).max(1e-15),
            look_seconds,
            full_share: self.full_share(candidate),
        })
    }

    /// Returns true if the server takes all drives, and they hold the arenas and the index.
    fn has_room_on_drives(&self, candidate: &Candidate) -> bool {
        let drives: u32 = candidate.all_drives().map(|drives| drives.count).sum();
        let arena_bytes = self.arena_bytes(candidate.engine, candidate.index);
        let index_fits = match candidate.index {
            PlacedIndex::On(place) => self.holds(place, self.engine(candidate).index_bytes),
            PlacedIndex::InMemory | PlacedIndex::BesideArenas => true,
        };
        drives <= self.server(candidate).slots && self.holds(candidate.arenas, arena_bytes) && index_fits
    }

    /// Returns the units of memory for the engine and the cache; `None` if the server does not take
    /// as many.
    fn memory_units(&self, candidate: &Candidate) -> Option<u32> {
        let unit = self.table.memory.bytes;
        let cached = match candidate.cache {
            PlacedCache::InMemory(units) => unit * f64::from(units),
            PlacedCache::Nowhere | PlacedCache::On(_) => 0.0,
        };
        let limit = whole((self.server(candidate).memory_bytes / unit).floor(), u32::MAX)?;
        Some(whole((self.engine(candidate).memory_bytes + cached) / unit, limit)?.max(1))
    }

    /// Returns the time of some work on the drives of the arenas and of the index.
    fn time_on_drives(&self, candidate: &Candidate, work: &SplitCost) -> f64 {
        let on = |drives: Drives, cost| time(cost, &self.table.drives[drives.drive], drives.count);
        let arenas = on(candidate.arenas, &work.log);
        match candidate.index {
            PlacedIndex::InMemory => arenas,
            PlacedIndex::BesideArenas => arenas + on(candidate.arenas, &work.index),
            PlacedIndex::On(place) => arenas.max(on(place, &work.index)),
        }
    }

    /// Returns the time of a single read that the cache does not serve.
    fn miss_seconds(&self, candidate: &Candidate) -> f64 {
        let engine = self.engine(candidate);
        let index_drive = match candidate.index {
            PlacedIndex::InMemory => None,
            PlacedIndex::BesideArenas => Some(candidate.arenas.drive),
            PlacedIndex::On(place) => Some(place.drive),
        };
        let drives = &self.table.drives;
        let index_seconds = index_drive.map_or(0.0, |at| latency(&engine.look.index, &drives[at]));
        latency(&engine.look.log, &drives[candidate.arenas.drive]) + index_seconds + engine.look_core
    }

    /// Returns the share of the arenas' drives that is full at the end.
    fn full_share(&self, candidate: &Candidate) -> f64 {
        let room = self.table.drives[candidate.arenas.drive].bytes * f64::from(candidate.arenas.count);
        self.arena_bytes(candidate.engine, candidate.index) / room
    }

    /// Returns the share of the single reads that the cache serves, the time of one of them, and
    /// the time for which it keeps the cache's drives busy.
    fn cache(&self, candidate: &Candidate) -> (f64, f64, f64) {
        let (bytes, seconds, load) = match candidate.cache {
            PlacedCache::Nowhere => return (0.0, 0.0, 0.0),
            PlacedCache::InMemory(units) => (self.table.memory.bytes * f64::from(units), 0.0, 0.0),
            PlacedCache::On(place) => {
                let drive = &self.table.drives[place.drive];
                let frame =
                    CaseCost { seeks: 1.0, read_bytes: self.demand.frame_bytes, ..CaseCost::default() };
                let bytes = drive.bytes * f64::from(place.count);
                (bytes, latency(&frame, drive), time(&frame, drive, place.count))
            }
        };
        let held = if self.demand.hot_bytes > 0.0 { (bytes / self.demand.hot_bytes).min(1.0) } else { 1.0 };
        let engine = self.engine(candidate);
        (self.demand.hot_share * held, seconds + engine.look_core, load)
    }
}

/// A part of a design, and what it costs over the years.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct CostPart {
    pub part: String,
    pub count: u32,
    /// Price and power of all of them.
    pub cost: f64,
}

/// A design with its cost and predicted service.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct StoreDesign {
    /// `by hash, index in memory`
    pub engine: &'static str,
    pub server: String,
    /// `9 x 7.2K disk`
    pub arenas: String,
    pub index: String,
    pub cache: String,
    /// The kinds of parts, without counts.
    pub architecture: String,
    pub cores: u32,
    pub memory_bytes: f64,
    /// Price and power over the years.
    pub cost: f64,
    pub parts: Vec<CostPart>,
    pub snapshot_hours: f64,
    pub restore_bytes_per_second: f64,
    pub look_ms: f64,
    /// The share of the arenas' drives that is full at the end.
    pub full_share: f64,
}

impl Setting<'_> {
    fn drives_text(&self, drives: Drives) -> String {
        format!("{} x {}", drives.count, self.table.drives[drives.drive].name)
    }

    /// Names the kinds of parts of a design.
    pub(super) fn architecture_text(&self, architecture: &Architecture) -> String {
        let drive = |at: usize| self.table.drives[at].name.as_str();
        let index = match architecture.index {
            PlacedIndex::InMemory => "index in memory".to_owned(),
            PlacedIndex::BesideArenas => "index beside them".to_owned(),
            PlacedIndex::On(place) => format!("index on {}", drive(place.drive)),
        };
        let cache = match architecture.cache {
            PlacedCache::Nowhere => "no cache".to_owned(),
            PlacedCache::InMemory(_) => "cache in memory".to_owned(),
            PlacedCache::On(place) => format!("cache on {}", drive(place.drive)),
        };
        let value = if self.demand.engines[architecture.engine].engine.by_value { ", by value" } else { "" };
        format!("arenas on {}, {index}, {cache}{value}", drive(architecture.arenas))
    }

    /// Describes a candidate that was judged.
    pub(super) fn describe(&self, candidate: &Candidate, verdict: &Judged) -> StoreDesign {
        let server = self.server(candidate).name.clone();
        let market = self.market;
        let part = |part: &str, count: u32, one: f64| CostPart {
            part: part.to_owned(),
            count,
            cost: one * f64::from(count),
        };
        let mut parts = vec![
            part(&server, 1, market.servers[candidate.server]),
            part("core", verdict.cores, market.core),
            part(&self.table.memory.name, verdict.memory_units, market.memory),
        ];
        for (at, drive) in self.table.drives.iter().enumerate() {
            let count = candidate.drive_count(at);
            if count > 0 {
                parts.push(part(&drive.name, count, market.drives[at]));
            }
        }
        StoreDesign {
            engine: self.engine(candidate).engine.name(),
            server,
            arenas: self.drives_text(candidate.arenas),
            index: match candidate.index {
                PlacedIndex::InMemory => "in memory".into(),
                PlacedIndex::BesideArenas => "beside the arenas".into(),
                PlacedIndex::On(place) => self.drives_text(place),
            },
            cache: match candidate.cache {
                PlacedCache::Nowhere => "none".into(),
                PlacedCache::InMemory(units) => {
                    format!("{:.0} GB of memory", self.table.memory.bytes * f64::from(units) / 1e9)
                }
                PlacedCache::On(place) => self.drives_text(place),
            },
            architecture: self.architecture_text(&candidate.architecture()),
            cores: verdict.cores,
            memory_bytes: self.table.memory.bytes * f64::from(verdict.memory_units),
            cost: verdict.cost,
            parts,
            snapshot_hours: verdict.snapshot_seconds / 3600.0,
            restore_bytes_per_second: verdict.restore_rate,
            look_ms: verdict.look_seconds * 1000.0,
            full_share: verdict.full_share,
        }
    }
}
