//! The configuration of proxies: a file, or arguments of the command line, parsed into a checked
//! [`Configuration`].
//!
//! ```toml
//! serve = "front"                       # which of the stores below is served
//!
//! [store.front]
//! kind = "cache"
//! source = "far"
//! look-aside = "near"
//!
//! [store.near]
//! kind = "bounded"
//! folder = "/var/cache/varve/near"
//! size = "10G"
//!
//! [store.far]
//! kind = "server"
//! address = "tcp!venti.example.org!17034"
//! ```
//!
//! Invariants of a [`Configuration`]: every store that is named exists, no store is behind itself,
//! each can be reached from the store that is served, and all numbers are within their bounds.
//! Building it can therefore fail only because of disks and networks.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::time::Duration;

use serde::Deserialize;
use varve_venti::Address;

use crate::bounded::BOUNDED_BYTES_MIN;
use crate::buffer::{BUFFER_BYTES_MIN, BufferSettings};
use crate::shards::SHARDS_MAX;

/// The size limit of a configuration file.
pub const CONFIGURATION_BYTES_MAX: u64 = 1 << 20;
const STORES_MAX: usize = 1024;
/// The limit for the depth of stores behind each other.
const DEPTH_MAX: usize = 64;
const CACHE_BYTES: u64 = 64 << 20;
const BOUNDED_BYTES: u64 = 1 << 30;

/// A store in the configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StoreDescription {
    /// A Venti server.
    Server {
        address: Address,
        /// Attempts per request.
        attempts: u32,
        /// Time limit for an answer.
        patience: Duration,
    },
    /// A store of Varve's with SHA-1 scores.
    Folder { path: PathBuf },
    /// A bounded store of copies, which evicts the least recently used.
    Bounded {
        folder: PathBuf,
        /// The size limit.
        bytes: u64,
    },
    /// A cache.
    Cache {
        /// The store behind the cache.
        source: String,
        /// A second store, usually near and small.
        look_aside: Option<String>,
        /// Written blocks go into the look-aside, too.
        look_aside_writes: bool,
        /// Bytes of blocks that are kept in memory.
        memory_bytes: u64,
    },
    /// A write buffer.
    Buffer {
        /// The store behind the buffer.
        target: String,
        /// The folder of its log.
        folder: PathBuf,
        settings: BufferSettings,
        /// The rate limit for delivery, if there is one.
        bytes_per_second: Option<u64>,
    },
    /// Several stores, each with a part of the scores.
    Shards {
        /// The stores in the order of their scores.
        stores: Vec<String>,
    },
    /// Read-ahead.
    ReadAhead {
        /// The store behind the read-ahead.
        source: String,
        /// Bytes of blocks that are kept in memory.
        memory_bytes: u64,
    },
    /// A recorder.
    Record {
        /// The store whose work is recorded.
        source: String,
        /// The folder of its traces.
        folder: PathBuf,
    },
}

/// The store that is served, and all stores behind it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Configuration {
    serve: String,
    stores: BTreeMap<String, StoreDescription>,
}

/// Why a configuration is invalid.
#[derive(Debug, thiserror::Error)]
pub enum ConfigurationError {
    /// The file is not valid TOML, or has unknown keys.
    #[error("{}", .source.to_string().trim_end())]
    Parse { source: Box<toml::de::Error> },
    /// A value is invalid.
    #[error("[store.{store}]: {key} = {value:?}: {hint}")]
    Value {
        store: String,
        key: &'static str,
        /// The value in the file.
        value: String,
        /// The expected kind of value.
        hint: String,
    },
    /// A store is named that does not exist.
    #[error("{place} names a store {name:?}, but there is no [store.{name}]{}", .nearest.as_ref().map_or(String::new(), |near| format!("; a similar name is {near:?}")))]
    Missing {
        /// The key that names it.
        place: String,
        name: String,
        /// An existing store with a similar name.
        nearest: Option<String>,
    },
    /// Stores that are behind each other in a cycle.
    #[error("these stores form a cycle: {}", .circle.join(" -> "))]
    Circle {
        /// The names along the cycle. The last one equals the first.
        circle: Vec<String>,
    },
    /// A store that no other store uses.
    #[error("[store.{name}] is not used: no store below serve = {serve:?} names it; name it, or remove it")]
    Unreached {
        name: String,
        /// The store that is served.
        serve: String,
    },
    /// A limit is exceeded.
    #[error("{what}: at most {most}")]
    TooMany {
        what: String,
        /// The limit.
        most: usize,
    },
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ConfigurationFile {
    serve: String,
    #[serde(default)]
    store: BTreeMap<String, StoreSection>,
}

#[derive(Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", rename_all_fields = "kebab-case", deny_unknown_fields)]
enum StoreSection {
    Server {
        address: String,
        attempts: Option<u32>,
        patience: Option<u32>,
    },
    Folder {
        path: PathBuf,
    },
    Bounded {
        folder: PathBuf,
        size: Option<SizeValue>,
    },
    Cache {
        source: String,
        look_aside: Option<String>,
        #[serde(default)]
        look_aside_writes: bool,
        memory: Option<SizeValue>,
    },
    Buffer {
        target: String,
        folder: PathBuf,
        size: Option<SizeValue>,
        patience: Option<u32>,
        linger: Option<u32>,
        rate: Option<SizeValue>,
    },
    Shards {
        stores: Vec<String>,
    },
    ReadAhead {
        source: String,
        memory: Option<SizeValue>,
    },
    Record {
        source: String,
        folder: PathBuf,
    },
}

/// A number of bytes, or a text such as `64M`.
#[derive(Debug, Clone, Deserialize)]
#[serde(untagged)]
enum SizeValue {
    Bytes(u64),
    Text(String),
}

/// Parses a size such as `64M`.
fn parse_size(text: &str) -> Option<u64> {
    let digits = text.trim_end_matches(|c: char| !c.is_ascii_digit());
    let shift = match text.get(digits.len()..)? {
        "" => 0,
        "K" | "k" => 10,
        "M" | "m" => 20,
        "G" | "g" => 30,
        "T" | "t" => 40,
        _ => return None,
    };
    digits.parse::<u64>().ok()?.checked_mul(1 << shift)
}

/// Parses the keys of one store.
struct SectionReader<'a> {
    store: &'a str,
}

impl SectionReader<'_> {
    fn wrong(&self, key: &'static str, value: impl ToString, hint: impl Into<String>) -> ConfigurationError {
        let (store, value, hint) = (self.store.to_owned(), value.to_string(), hint.into());
        ConfigurationError::Value { store, key, value, hint }
    }

    fn size(
        &self,
        key: &'static str,
        given: Option<SizeValue>,
        default: u64,
        least: u64,
    ) -> Result<u64, ConfigurationError> {
        let (bytes, text) = match given {
            None => (Some(default), String::new()),
            Some(SizeValue::Bytes(bytes)) => (Some(bytes), bytes.to_string()),
            Some(SizeValue::Text(text)) => (parse_size(&text), text),
        };
        let good = bytes.filter(|bytes| (least..=1 << 60).contains(bytes));
        good.ok_or_else(|| {
            self.wrong(key, text, format!("write a number of bytes, as 64M or 10G; {least} at least"))
        })
    }

    fn seconds(
        &self,
        key: &'static str,
        given: Option<u32>,
        default: Duration,
        least: u32,
    ) -> Result<Duration, ConfigurationError> {
        match given {
            None => Ok(default),
            Some(seconds) if (least..=86_400).contains(&seconds) => Ok(Duration::from_secs(seconds.into())),
            Some(seconds) => Err(self.wrong(key, seconds, format!("write seconds, from {least} to 86400"))),
        }
    }

    fn path(&self, key: &'static str, path: PathBuf) -> Result<PathBuf, ConfigurationError> {
        if path.as_os_str().is_empty() {
            return Err(self.wrong(key, "", "write the path of a folder"));
        }
        Ok(path)
    }

    fn read(&self, section: StoreSection) -> Result<StoreDescription, ConfigurationError> {
        Ok(match section {
            StoreSection::Server { address, attempts, patience } => {
                let attempts = attempts.unwrap_or(3);
                if !(1..=100).contains(&attempts) {
                    return Err(self.wrong("attempts", attempts, "write a number from 1 to 100"));
                }
                StoreDescription::Server {
                    address: address
                        .parse()
                        .map_err(|error| self.wrong("address", &address, format!("{error}")))?,
                    attempts,
                    patience: self.seconds("patience", patience, Duration::from_secs(60), 1)?,
                }
            }
            StoreSection::Folder { path } => StoreDescription::Folder { path: self.path("path", path)? },
            StoreSection::Bounded { folder, size } => StoreDescription::Bounded {
                folder: self.path("folder", folder)?,
                bytes: self.size("size", size, BOUNDED_BYTES, BOUNDED_BYTES_MIN)?,
            },
            StoreSection::Cache { source, look_aside, look_aside_writes, memory } => {
                if look_aside_writes && look_aside.is_none() {
                    return Err(self.wrong("look-aside-writes", true, "it needs a look-aside"));
                }
                let memory_bytes = self.size("memory", memory, CACHE_BYTES, 0)?;
                StoreDescription::Cache { source, look_aside, look_aside_writes, memory_bytes }
            }
            StoreSection::Buffer { target, folder, size, patience, linger, rate } => {
                let default = BufferSettings::default();
                let settings = BufferSettings {
                    bytes_max: self.size("size", size, default.bytes_max, BUFFER_BYTES_MIN)?,
                    patience: self.seconds("patience", patience, default.patience, 0)?,
                    linger: self.seconds("linger", linger, default.linger, 0)?,
                };
                let rate = rate.map(|rate| self.size("rate", Some(rate), 0, 1));
                StoreDescription::Buffer {
                    target,
                    folder: self.path("folder", folder)?,
                    settings,
                    bytes_per_second: rate.transpose()?,
                }
            }
            StoreSection::Shards { stores } => {
                if !(1..=SHARDS_MAX).contains(&stores.len()) {
                    return Err(self.wrong("stores", stores.len(), format!("name 1 to {SHARDS_MAX} stores")));
                }
                let distinct: BTreeSet<&String> = stores.iter().collect();
                if distinct.len() != stores.len() {
                    return Err(self.wrong("stores", stores.join(", "), "name each store once"));
                }
                StoreDescription::Shards { stores }
            }
            StoreSection::ReadAhead { source, memory } => StoreDescription::ReadAhead {
                source,
                memory_bytes: self.size("memory", memory, CACHE_BYTES, 1 << 20)?,
            },
            StoreSection::Record { source, folder } => {
                StoreDescription::Record { source, folder: self.path("folder", folder)? }
            }
        })
    }
}

impl StoreDescription {
    /// The stores directly behind this one, each with the key that names it.
    #[must_use]
    pub fn behind(&self) -> Vec<(&'static str, &str)> {
        match self {
            Self::Server { .. } | Self::Folder { .. } | Self::Bounded { .. } => Vec::new(),
            Self::Cache { source, look_aside, .. } => {
                let aside = look_aside.as_deref().map(|name| ("look-aside", name));
                std::iter::once(("source", source.as_str())).chain(aside).collect()
            }
            Self::Buffer { target, .. } => vec![("target", target)],
            Self::Shards { stores } => stores.iter().map(|name| ("stores", name.as_str())).collect(),
            Self::ReadAhead { source, .. } | Self::Record { source, .. } => vec![("source", source)],
        }
    }

    /// The folder that no other store may use.
    fn folder(&self) -> Option<(&'static str, &PathBuf)> {
        match self {
            Self::Folder { path } => Some(("path", path)),
            Self::Bounded { folder, .. } | Self::Buffer { folder, .. } | Self::Record { folder, .. } => {
                Some(("folder", folder))
            }
            _ => None,
        }
    }
}

impl Configuration {
    /// Parses the text of a configuration file.
    ///
    /// # Errors
    /// [`ConfigurationError`] names the invalid key.
    pub fn from_text(text: &str) -> Result<Self, ConfigurationError> {
        let file: ConfigurationFile =
            toml::from_str(text).map_err(|source| ConfigurationError::Parse { source: Box::new(source) })?;
        let mut stores = BTreeMap::new();
        for (name, section) in file.store {
            let described = SectionReader { store: &name }.read(section)?;
            stores.insert(name, described);
        }
        Self::new(file.serve, stores)
    }

    /// Checks the relations between stores.
    ///
    /// # Errors
    /// [`ConfigurationError`].
    pub fn new(
        serve: String,
        stores: BTreeMap<String, StoreDescription>,
    ) -> Result<Self, ConfigurationError> {
        if stores.len() > STORES_MAX {
            return Err(ConfigurationError::TooMany { what: "stores".into(), most: STORES_MAX });
        }
        let configuration = Self { serve, stores };
        configuration.check_names()?;
        let mut done = BTreeSet::new();
        configuration.check_below(&configuration.serve, &mut Vec::new(), &mut done)?;
        if let Some(name) = configuration.stores.keys().find(|name| !done.contains(name.as_str())) {
            let (name, serve) = (name.clone(), configuration.serve.clone());
            return Err(ConfigurationError::Unreached { name, serve });
        }
        configuration.check_folders()?;
        Ok(configuration)
    }

    /// The name of the store that is served.
    #[must_use]
    pub fn serve(&self) -> &str {
        &self.serve
    }

    /// The store with this name, if it is in the configuration.
    #[must_use]
    pub fn store(&self, name: &str) -> Option<&StoreDescription> {
        self.stores.get(name)
    }

    fn check_names(&self) -> Result<(), ConfigurationError> {
        let named = self.stores.iter().flat_map(|(store, described)| {
            let behind = described.behind().into_iter();
            behind.map(move |(key, name)| (format!("[store.{store}]: {key}"), name))
        });
        for (place, name) in std::iter::once(("serve".to_owned(), self.serve.as_str())).chain(named) {
            if !self.stores.contains_key(name) {
                let nearest = self.nearest(name);
                return Err(ConfigurationError::Missing { place, name: name.to_owned(), nearest });
            }
        }
        Ok(())
    }

    /// A store whose name starts with the same letters, ignoring case.
    fn nearest(&self, name: &str) -> Option<String> {
        let start: String = name.to_lowercase().chars().take(3).collect();
        let known = self.stores.keys().find(|known| known.to_lowercase().starts_with(&start));
        known.filter(|_| !start.is_empty()).cloned()
    }

    fn check_below<'a>(
        &'a self,
        name: &'a str,
        above: &mut Vec<&'a str>,
        done: &mut BTreeSet<&'a str>,
    ) -> Result<(), ConfigurationError> {
        if let Some(from) = above.iter().position(|other| *other == name) {
            let circle = above[from..].iter().chain([&name]).map(ToString::to_string).collect();
            return Err(ConfigurationError::Circle { circle });
        }
        if done.contains(name) {
            return Ok(());
        }
        if above.len() >= DEPTH_MAX {
            let what = format!("nested stores, down to [store.{name}]");
            return Err(ConfigurationError::TooMany { what, most: DEPTH_MAX });
        }
        above.push(name);
        for (_, behind) in self.stores.get(name).map(StoreDescription::behind).unwrap_or_default() {
            self.check_below(behind, above, done)?;
        }
        above.pop();
        done.insert(name);
        Ok(())
    }

    fn check_folders(&self) -> Result<(), ConfigurationError> {
        let mut owners: BTreeMap<&PathBuf, &str> = BTreeMap::new();
        for (store, described) in &self.stores {
            let Some((key, folder)) = described.folder() else { continue };
            if let Some(other) = owners.insert(folder, store) {
                let value = folder.display().to_string();
                let hint = format!("[store.{other}] has the same folder: give each its own");
                return Err(ConfigurationError::Value { store: store.clone(), key, value, hint });
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
