//! `config.toml`: the settings that are chosen when a store is made.

use serde::{Deserialize, Serialize};
use varve_block::{PLACED_SCORE_BYTES, SHA1_BYTES, from_hex, has_kind, to_hex};
use varve_log::{ArenaMap, ClumpBytes, CompressionLevel, ParityPercent};

/// The newest format that this program reads and writes, for stores that compare by value. All
/// other stores have format 1.
pub(crate) const FORMAT: u32 = 2;
const FORMAT_OF_HASHES: u32 = 1;

/// The hash that names blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ScoreAlgorithm {
    /// BLAKE3 of 256 bits, keyed in an encrypted store.
    Blake3,
    /// SHA-1, for stores that speak Venti.
    Sha1,
}

/// The way to recognise a duplicate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CompareMode {
    /// By score. The score is a hash of the block.
    Hash,
    /// Byte by byte. The score is the place where the block was first written.
    Value,
}

/// The place of the index.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum IndexKind {
    /// In memory, about nine bytes a block.
    Memory,
    /// On disk, with a fixed amount of memory and two bytes a block.
    Disk,
}

/// The read-ahead after a look-up that had to read an index on disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Prefetch {
    /// Reads neighbours in the arena's directory, once a second look-up leads near the first. The
    /// number of neighbours grows up to the whole directory, which Foundation reads at once.
    Arena,
    /// Reads the whole directory, after four such look-ups in a row have led to one arena, as Venti
    /// does.
    Four,
    /// Reads nothing ahead: for blocks that are requested one by one, far from each other.
    None,
}

/// The settings of an index on disk. All of them may be changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DiskIndexConfig {
    /// The memory that it may take, without its filter.
    pub memory_bytes: u64,
    /// The number of blocks that its filter is made for. The filter grows when there are more.
    pub expected_blocks: u64,
    /// The leading bits of fingerprints that it keeps. A change takes effect when the index is made
    /// anew.
    pub fingerprint_bits: u32,
    pub prefetch: Prefetch,
}

impl DiskIndexConfig {
    /// The least memory that it works with. It then writes all the time, which is for tests.
    pub const MEMORY_BYTES_MIN: u64 = 4 << 10;
    /// The most blocks that it can be made for at first.
    pub const EXPECTED_BLOCKS_MAX: u64 = 1 << 36;
    /// The fewest and the most bits of a fingerprint.
    pub const FINGERPRINT_BITS: std::ops::RangeInclusive<u32> = 32..=64;
    /// A log seldom has more than one block for this many of its bytes.
    const BYTES_OF_LOG_PER_BLOCK: u64 = 1 << 10;

    /// Returns the settings for a log of `log_bytes` that may have been chosen by somebody without
    /// a key. If the settings expect more blocks than such a log is likely to have, the default
    /// replaces the expectation, so that no memory is allocated for them. The index grows in any
    /// case.
    #[must_use]
    pub fn for_log_of(self, log_bytes: u64) -> Self {
        let default = Self::default().expected_blocks;
        let is_likely = self.expected_blocks <= default.max(log_bytes / Self::BYTES_OF_LOG_PER_BLOCK);
        Self { expected_blocks: if is_likely { self.expected_blocks } else { default }, ..self }
    }
}

impl Default for DiskIndexConfig {
    fn default() -> Self {
        Self {
            memory_bytes: 192 << 20,
            expected_blocks: 1 << 20,
            fingerprint_bits: 48,
            prefetch: Prefetch::Arena,
        }
    }
}

/// The protection against a reader of the disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Encryption {
    /// Everything is encrypted and authenticated.
    #[serde(rename = "aes-256-gcm")]
    Aes256Gcm,
    /// Anyone can read. Accidents are detected, forgery is not.
    #[serde(rename = "none")]
    None,
}

/// The settings that are chosen when a store is made. `docs/internals/format.md`, section 1.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoreConfig {
    pub id: [u8; 16],
    pub score: ScoreAlgorithm,
    pub compare: CompareMode,
    pub encryption: Encryption,
    pub arena_map: ArenaMap,
    pub index: IndexKind,
    /// The settings of an index on disk.
    pub disk_index: DiskIndexConfig,
    /// The block size of disk images archived from now on.
    pub block_bytes: u32,
    /// The compression level of clumps written from now on.
    pub compression_level: CompressionLevel,
    /// The size of clumps written from now on.
    pub clump_bytes: ClumpBytes,
    /// The number of recovery shards for a hundred shards of data. Arenas get them when they are
    /// sealed.
    pub parity_percent: Option<ParityPercent>,
    /// True if blocks that differ little from the ones that they have replaced are stored as deltas
    /// from now on. Programs from before deltas cannot read the store then.
    pub deltas: bool,
}

#[derive(Serialize, Deserialize)]
struct ConfigFile {
    format: u32,
    id: String,
    score: ScoreAlgorithm,
    compare: CompareMode,
    encryption: Encryption,
    arena_bytes: u64,
    index: IndexKind,
    // Absent in a store with its index in memory, and in stores that are older than this choice.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    index_memory: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    index_blocks: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    index_fingerprint_bits: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    index_prefetch: Option<Prefetch>,
    block_bytes: u32,
    compression_level: i32,
    clump_bytes: u32,
    #[serde(default)]
    parity_percent: u8,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    deltas: bool,
}

impl ConfigFile {
    /// Returns the settings of an index on disk, or the key and the value that are invalid.
    fn disk_index(&self) -> Result<DiskIndexConfig, (&'static str, u64)> {
        let default = DiskIndexConfig::default();
        let memory_bytes = self.index_memory.unwrap_or(default.memory_bytes);
        if !(DiskIndexConfig::MEMORY_BYTES_MIN..=1 << 44).contains(&memory_bytes) {
            return Err(("index_memory", memory_bytes));
        }
        let expected_blocks = self.index_blocks.unwrap_or(default.expected_blocks);
        if !(1..=DiskIndexConfig::EXPECTED_BLOCKS_MAX).contains(&expected_blocks) {
            return Err(("index_blocks", expected_blocks));
        }
        let fingerprint_bits = self.index_fingerprint_bits.unwrap_or(default.fingerprint_bits);
        if !DiskIndexConfig::FINGERPRINT_BITS.contains(&fingerprint_bits) {
            return Err(("index_fingerprint_bits", fingerprint_bits.into()));
        }
        let prefetch = self.index_prefetch.unwrap_or(default.prefetch);
        Ok(DiskIndexConfig { memory_bytes, expected_blocks, fingerprint_bits, prefetch })
    }
}

/// The reason why `config.toml` does not describe a store that this program can open.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    #[error(
        "the store has format {format}; this program reads formats up to {FORMAT}: use a newer version of it"
    )]
    NewerFormat { format: u32 },
    #[error("config.toml cannot be parsed")]
    Parse(#[source] Box<toml::de::Error>),
    #[error("config.toml: {key} = {value} is invalid")]
    Value { key: &'static str, value: String },
}

has_kind!(ConfigError:
    Self::NewerFormat { .. } => NewerVersion,
    Self::Parse(_) | Self::Value { .. } => SettingsLost,
);

impl StoreConfig {
    /// The smallest block size of a disk image.
    pub(crate) const BLOCK_BYTES_MIN: u32 = 512;
    /// The largest block size of a disk image.
    pub const BLOCK_BYTES_MAX: u32 = 64 << 10;

    /// Returns the default settings for a store with this identity.
    #[must_use]
    pub fn new(id: [u8; 16]) -> Self {
        Self {
            id,
            score: ScoreAlgorithm::Blake3,
            compare: CompareMode::Hash,
            encryption: Encryption::Aes256Gcm,
            arena_map: ArenaMap::new(64 << 20).expect("64 MiB is between the bounds"),
            index: IndexKind::Memory,
            disk_index: DiskIndexConfig::default(),
            block_bytes: 16 << 10,
            compression_level: CompressionLevel::default(),
            clump_bytes: ClumpBytes::default(),
            parity_percent: None,
            deltas: false,
        }
    }

    /// Returns true if images can be cut into blocks of this size.
    #[must_use]
    pub fn block_bytes_is_good(block_bytes: u32) -> bool {
        block_bytes.is_power_of_two()
            && (Self::BLOCK_BYTES_MIN..=Self::BLOCK_BYTES_MAX).contains(&block_bytes)
    }

    /// Returns the text of `config.toml`.
    #[must_use]
    pub fn to_text(&self) -> String {
        let disk_index = (self.index == IndexKind::Disk).then_some(self.disk_index);
        let file = ConfigFile {
            format: self.format(),
            id: to_hex(&self.id),
            score: self.score,
            compare: self.compare,
            encryption: self.encryption,
            arena_bytes: self.arena_map.arena_bytes(),
            index: self.index,
            index_memory: disk_index.map(|index| index.memory_bytes),
            index_blocks: disk_index.map(|index| index.expected_blocks),
            index_fingerprint_bits: disk_index.map(|index| index.fingerprint_bits),
            index_prefetch: disk_index.map(|index| index.prefetch),
            block_bytes: self.block_bytes,
            compression_level: self.compression_level.get(),
            clump_bytes: self.clump_bytes.get(),
            parity_percent: self.parity_percent.map_or(0, ParityPercent::get),
            deltas: self.deltas,
        };
        let table = toml::to_string(&file).expect("plain values always serialise");
        format!("# A Varve store. FORMAT.md beside this file says how to read it.\n{table}")
    }

    /// Parses `config.toml`.
    ///
    /// # Errors
    /// [`ConfigError`].
    pub fn from_text(text: &str) -> Result<Self, ConfigError> {
        #[derive(Deserialize)]
        struct Format {
            format: u32,
        }
        let parse = |error| ConfigError::Parse(Box::new(error));
        let Format { format } = toml::from_str(text).map_err(parse)?;
        if format > FORMAT {
            return Err(ConfigError::NewerFormat { format });
        }
        let file: ConfigFile = toml::from_str(text).map_err(parse)?;
        let bad = |key, value: &dyn ToString| ConfigError::Value { key, value: value.to_string() };
        let id =
            from_hex(&file.id).ok().and_then(|id| id.try_into().ok()).ok_or_else(|| bad("id", &file.id))?;
        let arena_map =
            ArenaMap::new(file.arena_bytes).ok_or_else(|| bad("arena_bytes", &file.arena_bytes))?;
        let compression_level = CompressionLevel::new(file.compression_level)
            .ok_or_else(|| bad("compression_level", &file.compression_level))?;
        let clump_bytes =
            ClumpBytes::new(file.clump_bytes).ok_or_else(|| bad("clump_bytes", &file.clump_bytes))?;
        if !Self::block_bytes_is_good(file.block_bytes) {
            return Err(bad("block_bytes", &file.block_bytes));
        }
        let parity_percent = match file.parity_percent {
            0 => None,
            percent => Some(ParityPercent::new(percent).ok_or_else(|| bad("parity_percent", &percent))?),
        };
        if file.compare == CompareMode::Value && file.score != ScoreAlgorithm::Blake3 {
            return Err(bad("score", &"sha1"));
        }
        if file.compare == CompareMode::Value && file.deltas {
            return Err(bad("deltas", &true));
        }
        let disk_index = file.disk_index().map_err(|(key, value)| bad(key, &value))?;
        // A store with its index in memory has no use for them, and does not write them.
        let disk_index = if file.index == IndexKind::Disk { disk_index } else { DiskIndexConfig::default() };
        let config = Self {
            id,
            score: file.score,
            compare: file.compare,
            encryption: file.encryption,
            arena_map,
            index: file.index,
            disk_index,
            block_bytes: file.block_bytes,
            compression_level,
            clump_bytes,
            parity_percent,
            deltas: file.deltas,
        };
        // A program that confused the two formats would read every block wrongly.
        if format != config.format() {
            return Err(bad("format", &format));
        }
        Ok(config)
    }

    fn format(&self) -> u32 {
        match self.compare {
            CompareMode::Hash => FORMAT_OF_HASHES,
            CompareMode::Value => FORMAT,
        }
    }

    /// Returns a hash of all settings that must never change. The keys are bound to it.
    #[must_use]
    pub fn binding(&self) -> [u8; 32] {
        let score = match self.score {
            ScoreAlgorithm::Blake3 => "blake3",
            ScoreAlgorithm::Sha1 => "sha1",
        };
        let encryption = match self.encryption {
            Encryption::Aes256Gcm => "aes-256-gcm",
            Encryption::None => "none",
        };
        let compare = match self.compare {
            CompareMode::Hash => "hash",
            CompareMode::Value => "value",
        };
        let text = format!(
            "varve store 1\nid = {}\nscore = {score}\ncompare = {compare}\nencryption = {encryption}\narena_bytes = {}\n",
            to_hex(&self.id),
            self.arena_map.arena_bytes()
        );
        *blake3::hash(text.as_bytes()).as_bytes()
    }

    /// Returns the length of this store's scores in bytes.
    #[must_use]
    pub fn score_bytes(&self) -> usize {
        match (self.compare, self.score) {
            (CompareMode::Value, _) => PLACED_SCORE_BYTES,
            (CompareMode::Hash, ScoreAlgorithm::Blake3) => 32,
            (CompareMode::Hash, ScoreAlgorithm::Sha1) => SHA1_BYTES,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_config_survives_the_round_trip() {
        let mut config = StoreConfig::new([7; 16]);
        assert_eq!(StoreConfig::from_text(&config.to_text()).unwrap(), config);
        config.compare = CompareMode::Value;
        assert!(config.to_text().contains("format = 2"), "which older programs refuse");
        assert_eq!(StoreConfig::from_text(&config.to_text()).unwrap(), config);
        let nonsense = config.to_text().replace("blake3", "sha1");
        assert!(StoreConfig::from_text(&nonsense).unwrap_err().to_string().contains("score = sha1"));
        config.compare = CompareMode::Hash;
        config.score = ScoreAlgorithm::Sha1;
        config.encryption = Encryption::None;
        config.block_bytes = 512;
        config.parity_percent = ParityPercent::new(7);
        assert_eq!(StoreConfig::from_text(&config.to_text()).unwrap(), config);
    }

    #[test]
    fn deltas_are_off_unless_a_config_says_so() {
        let config = StoreConfig { deltas: true, ..StoreConfig::new([7; 16]) };
        assert_eq!(StoreConfig::from_text(&config.to_text()).unwrap(), config);
        let off = StoreConfig { deltas: false, ..config };
        assert!(!off.to_text().contains("deltas"), "older programs know no such key");
        let by_value = StoreConfig { compare: CompareMode::Value, ..off };
        let complaint =
            StoreConfig::from_text(&format!("{}deltas = true\n", by_value.to_text())).unwrap_err();
        assert!(complaint.to_string().contains("deltas = true"), "{complaint}");
    }

    #[test]
    fn a_config_from_before_there_was_parity_has_none() {
        let config = StoreConfig::new([7; 16]);
        let older = config.to_text().replace("parity_percent = 0\n", "");
        assert!(!older.contains("parity"));
        assert_eq!(StoreConfig::from_text(&older).unwrap(), config);
    }

    #[test]
    fn an_index_on_disk_has_settings_and_one_in_memory_has_none() {
        let mut config = StoreConfig::new([7; 16]);
        assert!(!config.to_text().contains("index_"));
        config.index = IndexKind::Disk;
        config.disk_index = DiskIndexConfig {
            memory_bytes: 5 << 20,
            expected_blocks: 7,
            fingerprint_bits: 40,
            prefetch: Prefetch::Four,
        };
        let text = config.to_text();
        assert_eq!(StoreConfig::from_text(&text).unwrap(), config);
        // Written for experiments by versions that could keep an index as Venti does.
        let plain = text.replace("index_blocks", "index_plain = true\nindex_blocks");
        assert_eq!(StoreConfig::from_text(&plain).unwrap(), config);
        for (from, to) in [
            ("index_memory = 5242880", "index_memory = 5"),
            ("index_blocks = 7", "index_blocks = 0"),
            ("index_blocks = 7", "index_blocks = 9000000000000000000"),
            ("index_fingerprint_bits = 40", "index_fingerprint_bits = 31"),
            ("index_fingerprint_bits = 40", "index_fingerprint_bits = 65"),
        ] {
            let complaint = StoreConfig::from_text(&text.replace(from, to)).unwrap_err().to_string();
            assert!(complaint.contains(to), "{complaint}");
        }
        let in_memory = StoreConfig::from_text(&text.replace("\"disk\"", "\"memory\"")).unwrap();
        assert_eq!(in_memory.disk_index, DiskIndexConfig::default());
        assert_eq!(StoreConfig::from_text(&in_memory.to_text()).unwrap(), in_memory);
        let bare: Vec<_> = text.lines().filter(|line| !line.starts_with("index_")).collect();
        let disk_index = DiskIndexConfig::default();
        assert_eq!(StoreConfig::from_text(&bare.join("\n")).unwrap(), StoreConfig { disk_index, ..config });
    }

    #[test]
    fn no_more_blocks_are_expected_than_a_log_gives_reason_for() {
        let expecting = |expected_blocks| DiskIndexConfig { expected_blocks, ..DiskIndexConfig::default() };
        let default = DiskIndexConfig::default();
        for (expected, log_bytes, taken) in [
            (1 << 36, 0, default.expected_blocks),
            (1 << 36, 1 << 40, default.expected_blocks),
            (1 << 30, 1 << 40, 1 << 30),
            (1 << 20, 0, 1 << 20),
            (7, 1 << 50, 7),
        ] {
            assert_eq!(expecting(expected).for_log_of(log_bytes), expecting(taken), "{expected} {log_bytes}");
        }
    }

    #[test]
    fn nonsense_is_named() {
        let text = StoreConfig::new([7; 16]).to_text();
        let complaint =
            |from: &str, to: &str| StoreConfig::from_text(&text.replace(from, to)).unwrap_err().to_string();
        assert!(complaint("format = 1", "format = 3").contains("format 3"));
        assert!(complaint("format = 1", "format = 2").contains("format = 2"));
        assert!(complaint("compare = \"hash\"", "compare = \"value\"").contains("format = 1"));
        assert!(complaint("block_bytes = 16384", "block_bytes = 8191").contains("block_bytes = 8191"));
        assert!(complaint("arena_bytes = 67108864", "arena_bytes = 5").contains("arena_bytes = 5"));
        assert!(complaint("compression_level = 3", "compression_level = 99").contains("99"));
        assert!(complaint("parity_percent = 0", "parity_percent = 101").contains("parity_percent = 101"));
        assert!(complaint("0707", "07").contains("id"));
        assert!(complaint("blake3", "md5").contains("cannot be parsed"));
        assert!(complaint("format = 1", "").contains("cannot be parsed"));
    }

    #[test]
    fn the_binding_covers_what_must_not_change() {
        let config = StoreConfig::new([7; 16]);
        assert_eq!(config.binding(), StoreConfig { block_bytes: 512, ..config.clone() }.binding());
        assert_ne!(config.binding(), StoreConfig { id: [8; 16], ..config.clone() }.binding());
        assert_ne!(config.binding(), StoreConfig { score: ScoreAlgorithm::Sha1, ..config.clone() }.binding());
        assert_ne!(config.binding(), StoreConfig { compare: CompareMode::Value, ..config.clone() }.binding());
        assert_ne!(config.binding(), StoreConfig { encryption: Encryption::None, ..config }.binding());
    }
}
