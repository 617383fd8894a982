//! The three inputs, as TOML. Each file names its source. Every figure is checked here, so that the
//! search sees only positive, finite numbers.

use serde::{Deserialize, Serialize};
use varve_store::StoreConfig;

use crate::input::{LARGEST, POSITIVE, PlanInputError, check, parse_toml};
use crate::plan::Processor;

/// Upper bound on the number of drive types, and on that of server types.
const TYPES_MAX: usize = 16;
/// Upper bound on a count of cores or slots.
const COUNT_MAX: u32 = 1024;
/// Upper bound on the years of a plan.
const YEARS_MAX: f64 = 200.0;

/// Data that is archived, its changes, and its uses.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WorkloadProfile {
    pub name: String,
    /// The origin of the figures.
    pub source: String,
    /// Bytes of the disks and folders at the first snapshot.
    pub source_bytes: f64,
    /// The share by which they grow in a year.
    #[serde(default)]
    pub growth_per_year: f64,
    #[serde(default = "one")]
    pub snapshots_per_day: f64,
    /// The share of the source that each snapshot reads.
    #[serde(default = "one")]
    pub read_share: f64,
    /// The share of the source that each snapshot adds to the store.
    pub changed_share: f64,
    /// The share of the first snapshot that is a duplicate of another part of it.
    #[serde(default)]
    pub duplicate_share: f64,
    /// The share of new data that compression leaves.
    pub stored_share: f64,
    /// The share of the added data that is still kept at the end.
    #[serde(default = "one")]
    pub kept_share: f64,
    #[serde(default = "block_bytes")]
    pub block_bytes: u32,
    /// Single reads a second at the busiest time.
    #[serde(default)]
    pub looks_per_second: f64,
    /// Bytes of the most popular blocks.
    #[serde(default)]
    pub hot_bytes: f64,
    /// The share of the single reads that those blocks take.
    #[serde(default)]
    pub hot_share: f64,
    /// True if the data comes over the server's network, and is restored over it.
    #[serde(default = "yes")]
    pub over_network: bool,
    /// The speed of one core; measured if it is not given.
    pub processor: Option<Processor>,
}

/// The requirements at the end of the years.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ServiceLevel {
    /// The years for which the design is bought.
    pub years: f64,
    /// The longest time of a snapshot.
    pub snapshot_hours: f64,
    /// The slowest restore.
    pub restore_bytes_per_second: f64,
    /// The longest average time of a single read.
    pub look_ms: f64,
    /// True if stores by value may be chosen.
    #[serde(default)]
    pub by_value: bool,
}

/// Hardware with prices.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HardwareTable {
    pub name: String,
    pub source: String,
    pub currency: String,
    /// The years of power that the prices include.
    #[serde(default)]
    pub power_included_years: f64,
    /// The price of a kilowatt-hour.
    pub power_per_kwh: f64,
    pub core: CoreType,
    pub memory: MemoryType,
    #[serde(rename = "drive")]
    pub drives: Vec<DriveType>,
    #[serde(rename = "server")]
    pub servers: Vec<ServerType>,
}

/// A processor core.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CoreType {
    pub source: String,
    pub watts: f64,
    pub price: f64,
}

/// Memory, bought in units.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MemoryType {
    pub name: String,
    pub source: String,
    /// Bytes of a unit.
    pub bytes: f64,
    pub watts: f64,
    pub price: f64,
}

/// A kind of disk or SSD, of which each takes one slot.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DriveType {
    pub name: String,
    pub source: String,
    pub bytes: f64,
    /// Sequential bytes a second.
    pub read_rate: f64,
    /// Sequential bytes a second.
    pub write_rate: f64,
    /// Random reads a second, one at a time.
    pub reads_per_second: f64,
    /// Random reads a second, many at a time; as many as one at a time if it is not given.
    pub deep_reads_per_second: Option<f64>,
    pub watts: f64,
    pub price: f64,
}

/// A machine without memory, cores and drives, and its limits.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ServerType {
    pub name: String,
    pub source: String,
    pub cores: u32,
    /// Bytes a second.
    pub network_rate: f64,
    pub memory_bytes: f64,
    pub slots: u32,
    pub watts: f64,
    pub price: f64,
}

fn one() -> f64 {
    1.0
}

fn yes() -> bool {
    true
}

fn block_bytes() -> u32 {
    16 << 10
}

impl WorkloadProfile {
    /// Reads and checks a workload.
    ///
    /// # Errors
    /// If the text is no workload, or a figure is out of range.
    pub fn parse(text: &str) -> Result<Self, PlanInputError> {
        let profile: Self = parse_toml(text)?;
        profile.check()?;
        Ok(profile)
    }

    fn check(&self) -> Result<(), PlanInputError> {
        check("source_bytes", self.source_bytes, 1.0, LARGEST)?;
        check("growth_per_year", self.growth_per_year, -0.99, 10.0)?;
        check("snapshots_per_day", self.snapshots_per_day, POSITIVE, 1440.0)?;
        for (place, share) in [
            ("read_share", self.read_share),
            ("changed_share", self.changed_share),
            ("duplicate_share", self.duplicate_share),
            ("kept_share", self.kept_share),
            ("hot_share", self.hot_share),
        ] {
            check(place, share, 0.0, 1.0)?;
        }
        check("stored_share", self.stored_share, 0.001, 1.1)?;
        check("looks_per_second", self.looks_per_second, 0.0, LARGEST)?;
        check("hot_bytes", self.hot_bytes, 0.0, LARGEST)?;
        if !StoreConfig::block_bytes_is_good(self.block_bytes) {
            let problem = "write a power of two from 512 to 65536".into();
            return Err(PlanInputError::Value { place: "block_bytes".into(), problem });
        }
        if let Some(processor) = &self.processor {
            for rate in [processor.put, processor.duplicate, processor.get, processor.compare] {
                check("processor", rate, 1.0, LARGEST)?;
            }
        }
        Ok(())
    }
}

impl ServiceLevel {
    /// Reads and checks a service level.
    ///
    /// # Errors
    /// If the text is no service level, or a figure is out of range.
    pub fn parse(text: &str) -> Result<Self, PlanInputError> {
        let level: Self = parse_toml(text)?;
        check("years", level.years, POSITIVE, YEARS_MAX)?;
        check("snapshot_hours", level.snapshot_hours, POSITIVE, LARGEST)?;
        check("restore_bytes_per_second", level.restore_bytes_per_second, 0.0, LARGEST)?;
        check("look_ms", level.look_ms, POSITIVE, LARGEST)?;
        Ok(level)
    }
}

impl HardwareTable {
    /// Reads and checks a table.
    ///
    /// # Errors
    /// If the text is no table, a figure is out of range, or a name occurs twice.
    pub fn parse(text: &str) -> Result<Self, PlanInputError> {
        let table: Self = parse_toml(text)?;
        table.check()?;
        Ok(table)
    }

    fn check(&self) -> Result<(), PlanInputError> {
        let few = |what: &str, count: usize| {
            #[expect(clippy::cast_precision_loss, reason = "a small count")]
            check(&format!("the number of {what}s"), count as f64, 1.0, TYPES_MAX as f64)
        };
        few("drive", self.drives.len())?;
        few("server", self.servers.len())?;
        check("power_included_years", self.power_included_years, 0.0, YEARS_MAX)?;
        check("power_per_kwh", self.power_per_kwh, 0.0, LARGEST)?;
        priced("core", self.core.watts, self.core.price)?;
        priced("memory", self.memory.watts, self.memory.price)?;
        check("memory: bytes", self.memory.bytes, 1.0, LARGEST)?;
        let mut names: Vec<&str> = vec!["core", &self.memory.name];
        for drive in &self.drives {
            let place = |field| format!("drive {:?}: {field}", drive.name);
            check(&place("bytes"), drive.bytes, 1.0, LARGEST)?;
            check(&place("read_rate"), drive.read_rate, 1.0, LARGEST)?;
            check(&place("write_rate"), drive.write_rate, 1.0, LARGEST)?;
            check(&place("reads_per_second"), drive.reads_per_second, POSITIVE, LARGEST)?;
            check(&place("deep_reads_per_second"), drive.deep_reads(), POSITIVE, LARGEST)?;
            priced(&format!("drive {:?}", drive.name), drive.watts, drive.price)?;
            names.push(&drive.name);
        }
        for server in &self.servers {
            let place = |field| format!("server {:?}: {field}", server.name);
            check(&place("cores"), server.cores.into(), 1.0, COUNT_MAX.into())?;
            check(&place("slots"), server.slots.into(), 1.0, COUNT_MAX.into())?;
            check(&place("network_rate"), server.network_rate, 1.0, LARGEST)?;
            check(&place("memory_bytes"), server.memory_bytes, 1.0, LARGEST)?;
            priced(&format!("server {:?}", server.name), server.watts, server.price)?;
            names.push(&server.name);
        }
        names.sort_unstable();
        match names.windows(2).find(|pair| pair[0] == pair[1]) {
            None => Ok(()),
            Some(pair) => Err(PlanInputError::Value {
                place: format!("{:?}", pair[0]),
                problem: "the name occurs twice".into(),
            }),
        }
    }
}

fn priced(place: &str, watts: f64, price: f64) -> Result<(), PlanInputError> {
    check(&format!("{place}: watts"), watts, 0.0, LARGEST)?;
    check(&format!("{place}: price"), price, 0.0, LARGEST)
}

impl DriveType {
    pub(crate) fn deep_reads(&self) -> f64 {
        self.deep_reads_per_second.unwrap_or(self.reads_per_second)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::example::Example;

    #[test]
    fn the_examples_are_good_and_unknown_keys_are_not() {
        WorkloadProfile::parse(Example::Workload.text()).unwrap();
        ServiceLevel::parse(Example::Sla.text()).unwrap();
        for table in [Example::Devices, Example::Devices2012] {
            let table = HardwareTable::parse(table.text()).unwrap();
            let sources = table.drives.iter().map(|drive| &drive.source);
            let mut sources = sources.chain(table.servers.iter().map(|server| &server.source));
            assert!(sources.all(|source| source.len() > 10), "each line names its source");
        }
        let strange = format!("speed = 3\n{}", Example::Sla.text());
        assert!(matches!(ServiceLevel::parse(&strange), Err(PlanInputError::Toml(_))));
    }

    #[test]
    fn figures_out_of_range_are_refused_with_their_place() {
        let changed = Example::Workload.text().replace("changed_share = 0.01", "changed_share = 7");
        let error = WorkloadProfile::parse(&changed).unwrap_err().to_string();
        assert_eq!(error, "changed_share: 7 is not between 0 and 1");
        let endless = Example::Sla.text().replace("years = 3", "years = nan");
        assert!(ServiceLevel::parse(&endless).is_err());
        let twice = Example::Devices.text().replace("\"8 TB disk\"", "\"24 TB disk\"");
        let error = HardwareTable::parse(&twice).unwrap_err().to_string();
        assert_eq!(error, "\"24 TB disk\": the name occurs twice");
        let free = Example::Devices.text().replace("bytes = 24e12", "bytes = 0");
        let error = HardwareTable::parse(&free).unwrap_err().to_string();
        assert!(error.starts_with("drive \"24 TB disk\": bytes: 0 is not"), "{error}");
    }
}
