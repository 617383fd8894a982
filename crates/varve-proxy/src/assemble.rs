//! Builds running stores from a configuration.

use std::collections::BTreeMap;
use std::error::Error;
use std::io::Write;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use varve_block::{BlockStore, SyncError, with_causes};
use varve_venti::Address;
use varve_world::{RealWorkers, World};

use crate::background::Background;
use crate::bounded::BoundedStore;
use crate::buffer::{BufferTarget, WriteBuffer};
use crate::cache::{Cache, LookAside};
use crate::configuration::{Configuration, StoreDescription};
use crate::read_ahead::{ListReferences, ReadAheadStore};
use crate::recording::RecordingStore;
use crate::shards::{Shard, ShardedStore};
use crate::watched_proxies::{WatchedProxies, WatchedProxy};

/// Any error that can occur when a store is opened.
pub type OpenFailure = Box<dyn Error + Send + Sync>;

/// The parts that a configuration needs from its caller.
pub trait ProxyResources {
    /// Makes a client of a Venti server. The server need not be reachable yet.
    ///
    /// # Errors
    /// The client can never work.
    fn server(
        &self,
        address: &Address,
        attempts: u32,
        patience: Duration,
    ) -> Result<Arc<dyn BlockStore>, OpenFailure>;

    /// Opens the store in a folder for writing.
    ///
    /// # Errors
    /// The store cannot be opened.
    fn folder(&self, path: &Path) -> Result<Arc<dyn BlockStore>, OpenFailure>;

    /// The world with `folder` as its storage. The folder need not exist yet.
    fn world(&self, folder: &Path) -> World;

    /// The text in this process's lock files, shown to other processes that want the same folders.
    fn holder(&self) -> String;

    /// Makes a new file for a trace in `folder`, which need not exist yet.
    ///
    /// # Errors
    /// The file cannot be made.
    fn trace(&self, folder: &Path) -> Result<NewTrace, OpenFailure>;

    /// The function that lists the blocks that a block references.
    fn leads(&self) -> ListReferences;
}

/// A file for a trace, and the name of the program that writes it.
pub struct NewTrace {
    pub output: Box<dyn Write + Send>,
    /// The program with its version.
    pub maker: String,
}

/// Why a configuration was not built.
#[derive(Debug, thiserror::Error)]
#[error("[store.{store}]")]
pub struct AssembleError {
    store: String,
    source: OpenFailure,
}

/// Running proxies, with the stores behind them.
pub struct AssembledProxies {
    blocks: Arc<dyn BlockStore>,
    watched: WatchedProxies,
    recordings: Vec<(String, Arc<RecordingStore>)>,
    background: Vec<Background>,
}

/// The state of a build.
struct ProxyBuilder<'a> {
    configuration: &'a Configuration,
    outside: &'a dyn ProxyResources,
    built: BTreeMap<String, Arc<dyn BlockStore>>,
    shards: BTreeMap<String, Arc<ShardedStore>>,
    parts: Vec<(String, WatchedProxy)>,
    recordings: Vec<(String, Arc<RecordingStore>)>,
    background: Vec<Background>,
}

impl ProxyBuilder<'_> {
    /// Builds a store, with all stores behind it. Terminates because the configuration has no
    /// cycles.
    fn build(&mut self, name: &str) -> Result<Arc<dyn BlockStore>, AssembleError> {
        if let Some(known) = self.built.get(name) {
            return Ok(Arc::clone(known));
        }
        let described = self.configuration.store(name).expect("every store that is named is there");
        let mut behind = BTreeMap::new();
        for (_, other) in described.behind() {
            behind.insert(other, self.build(other)?);
        }
        let failed = |source: OpenFailure| AssembleError { store: name.to_owned(), source };
        let blocks = self.open(name, described, &behind).map_err(failed)?;
        self.built.insert(name.to_owned(), Arc::clone(&blocks));
        Ok(blocks)
    }

    fn open(
        &mut self,
        name: &str,
        described: &StoreDescription,
        behind: &BTreeMap<&str, Arc<dyn BlockStore>>,
    ) -> Result<Arc<dyn BlockStore>, OpenFailure> {
        let behind = |name: &str| Arc::clone(&behind[name]);
        let (part, blocks): (WatchedProxy, Arc<dyn BlockStore>) = match described {
            StoreDescription::Server { address, attempts, patience } => {
                return self.outside.server(address, *attempts, *patience);
            }
            StoreDescription::Folder { path } => return self.outside.folder(path),
            StoreDescription::Shards { stores } => {
                let shard = |name: &String| Shard { name: self.title(name), blocks: behind(name) };
                let workers = Arc::new(RealWorkers::new(stores.len()));
                let shards = Arc::new(ShardedStore::new(stores.iter().map(shard).collect(), workers)?);
                self.shards.insert(name.to_owned(), Arc::clone(&shards));
                (WatchedProxy::Shards(Arc::clone(&shards)), shards)
            }
            StoreDescription::Bounded { folder, bytes } => {
                let holder = self.outside.holder();
                let bounded = Arc::new(BoundedStore::open(self.outside.world(folder), *bytes, &holder)?);
                (WatchedProxy::Bounded(Arc::clone(&bounded)), bounded)
            }
            StoreDescription::Cache { source, look_aside, look_aside_writes, memory_bytes } => {
                let look_aside = look_aside
                    .as_deref()
                    .map(|name| LookAside { blocks: behind(name), takes_writes: *look_aside_writes });
                let cache = Arc::new(Cache::new(behind(source), look_aside, *memory_bytes)?);
                (WatchedProxy::Cache(Arc::clone(&cache)), cache)
            }
            StoreDescription::Buffer { target, folder, settings, bytes_per_second } => {
                let (world, holder) = (self.outside.world(folder), self.outside.holder());
                let target = match self.shards.get(target) {
                    Some(shards) => BufferTarget::Shards(Arc::clone(shards)),
                    None => BufferTarget::Whole(behind(target)),
                };
                let buffer = Arc::new(WriteBuffer::open(world, target, *settings, &holder)?);
                self.background.push(Background::trickle(Arc::clone(&buffer), *bytes_per_second));
                (WatchedProxy::Buffer(Arc::clone(&buffer)), buffer)
            }
            StoreDescription::ReadAhead { source, memory_bytes } => {
                let ahead =
                    Arc::new(ReadAheadStore::new(behind(source), self.outside.leads(), *memory_bytes));
                self.background.push(Background::read_ahead(Arc::clone(&ahead)));
                (WatchedProxy::ReadAhead(Arc::clone(&ahead)), ahead)
            }
            StoreDescription::Record { source, folder } => {
                let NewTrace { output, maker } = self.outside.trace(folder)?;
                let World { clock, random, .. } = self.outside.world(folder);
                let recording = RecordingStore::new(behind(source), output, &maker, None, &*random, clock)?;
                let recording = Arc::new(recording);
                self.recordings.push((name.to_owned(), Arc::clone(&recording)));
                return Ok(recording);
            }
        };
        self.parts.push((name.to_owned(), part));
        Ok(blocks)
    }

    /// A store's name for messages, with its address or path if it has one.
    fn title(&self, name: &str) -> String {
        match self.configuration.store(name) {
            Some(StoreDescription::Server { address, .. }) => format!("{name} ({address})"),
            Some(StoreDescription::Folder { path }) => format!("{name} ({})", path.display()),
            _ => name.to_owned(),
        }
    }
}

impl AssembledProxies {
    /// Opens all stores of a configuration, and starts the background threads.
    ///
    /// # Errors
    /// [`AssembleError`] names the store.
    pub fn new(configuration: &Configuration, outside: &dyn ProxyResources) -> Result<Self, AssembleError> {
        let mut builder = ProxyBuilder {
            configuration,
            outside,
            built: BTreeMap::new(),
            shards: BTreeMap::new(),
            parts: Vec::new(),
            recordings: Vec::new(),
            background: Vec::new(),
        };
        let blocks = builder.build(configuration.serve())?;
        let ProxyBuilder { parts, recordings, background, .. } = builder;
        Ok(Self { blocks, watched: WatchedProxies(parts), recordings, background })
    }

    /// The store that is served.
    #[must_use]
    pub fn blocks(&self) -> Arc<dyn BlockStore> {
        Arc::clone(&self.blocks)
    }

    /// The state of the proxies, for monitoring.
    #[must_use]
    pub fn watched(&self) -> &WatchedProxies {
        &self.watched
    }

    /// Stops the background threads. If anything was written, makes it durable. Blocks that are
    /// still buffered are delivered after the buffer has been opened again.
    ///
    /// # Errors
    /// [`SyncError`].
    pub fn close(mut self, was_written: bool) -> Result<(), SyncError> {
        self.background.clear();
        for (name, part) in &self.watched.0 {
            if let WatchedProxy::Bounded(bounded) = part
                && let Err(error) = bounded.sync()
            {
                tracing::warn!(%error, name, "the newest blocks of a look-aside are not durable, and may have to be fetched again");
            }
        }
        // If nothing was written, an unreachable server is no error.
        let synced = if was_written { self.blocks.sync() } else { Ok(()) };
        for (name, recording) in &self.recordings {
            if let Err(error) = recording.finish() {
                tracing::warn!(error = %with_causes(&error), name, "the trace is incomplete");
            }
        }
        synced
    }
}
