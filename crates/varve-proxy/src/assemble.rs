//! From a configuration to stores that run.

use std::collections::BTreeMap;
use std::error::Error;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use varve_block::{BlockStore, SyncError};
use varve_venti::Address;
use varve_world::{RealWorkers, World};

use crate::background::Background;
use crate::bounded::BoundedStore;
use crate::buffer::{BufferTarget, WriteBuffer};
use crate::cache::{Cache, LookAside};
use crate::configuration::{Configuration, Described};
use crate::read_ahead::{Leads, ReadAhead};
use crate::shards::{Shard, Shards};
use crate::watched::{Part, Watched};

/// Whatever goes wrong when a store is opened.
pub type OpenFailure = Box<dyn Error + Send + Sync>;

/// What a configuration needs of the world outside.
pub trait Outside {
    /// A Venti server, which need not be there now.
    ///
    /// # Errors
    /// Whatever keeps it from ever being one.
    fn server(
        &self,
        address: &Address,
        attempts: u32,
        patience: Duration,
    ) -> Result<Arc<dyn BlockStore>, OpenFailure>;

    /// A store in a folder, opened to be written.
    ///
    /// # Errors
    /// Whatever keeps it from being opened.
    fn folder(&self, path: &Path) -> Result<Arc<dyn BlockStore>, OpenFailure>;

    /// The world with a folder as its storage, which need not be there yet.
    fn world(&self, folder: &Path) -> World;

    /// What others are told who want to use the same folders.
    fn holder(&self) -> String;

    /// What a block leads to.
    fn leads(&self) -> Leads;
}

/// Why a configuration was not built.
#[derive(Debug, thiserror::Error)]
#[error("[store.{store}]")]
pub struct AssembleError {
    store: String,
    source: OpenFailure,
}

/// Proxies that run, and what stands behind them.
pub struct Assembled {
    blocks: Arc<dyn BlockStore>,
    watched: Watched,
    background: Vec<Background>,
}

/// What is being built.
struct Builder<'a> {
    configuration: &'a Configuration,
    outside: &'a dyn Outside,
    built: BTreeMap<String, Arc<dyn BlockStore>>,
    shards: BTreeMap<String, Arc<Shards>>,
    parts: Vec<(String, Part)>,
    background: Vec<Background>,
}

impl Builder<'_> {
    /// A store, with all that stands behind it. The configuration has no circles, so this ends.
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
        described: &Described,
        behind: &BTreeMap<&str, Arc<dyn BlockStore>>,
    ) -> Result<Arc<dyn BlockStore>, OpenFailure> {
        let behind = |name: &str| Arc::clone(&behind[name]);
        let (part, blocks): (Part, Arc<dyn BlockStore>) = match described {
            Described::Server { address, attempts, patience } => {
                return self.outside.server(address, *attempts, *patience);
            }
            Described::Folder { path } => return self.outside.folder(path),
            Described::Shards { stores } => {
                let shard = |name: &String| Shard { name: self.title(name), blocks: behind(name) };
                let workers = Arc::new(RealWorkers::new(stores.len()));
                let shards = Arc::new(Shards::new(stores.iter().map(shard).collect(), workers)?);
                self.shards.insert(name.to_owned(), Arc::clone(&shards));
                (Part::Shards(Arc::clone(&shards)), shards)
            }
            Described::Bounded { folder, bytes } => {
                let holder = self.outside.holder();
                let bounded = Arc::new(BoundedStore::open(self.outside.world(folder), *bytes, &holder)?);
                (Part::Bounded(Arc::clone(&bounded)), bounded)
            }
            Described::Cache { source, look_aside, look_aside_writes, memory_bytes } => {
                let look_aside = look_aside
                    .as_deref()
                    .map(|name| LookAside { blocks: behind(name), takes_writes: *look_aside_writes });
                let cache = Arc::new(Cache::new(behind(source), look_aside, *memory_bytes)?);
                (Part::Cache(Arc::clone(&cache)), cache)
            }
            Described::Buffer { target, folder, settings, bytes_per_second } => {
                let (world, holder) = (self.outside.world(folder), self.outside.holder());
                let target = match self.shards.get(target) {
                    Some(shards) => BufferTarget::Shards(Arc::clone(shards)),
                    None => BufferTarget::Whole(behind(target)),
                };
                let buffer = Arc::new(WriteBuffer::open(world, target, *settings, &holder)?);
                self.background.push(Background::trickle(Arc::clone(&buffer), *bytes_per_second));
                (Part::Buffer(Arc::clone(&buffer)), buffer)
            }
            Described::ReadAhead { source, memory_bytes } => {
                let ahead = Arc::new(ReadAhead::new(behind(source), self.outside.leads(), *memory_bytes));
                self.background.push(Background::read_ahead(Arc::clone(&ahead)));
                (Part::ReadAhead(Arc::clone(&ahead)), ahead)
            }
        };
        self.parts.push((name.to_owned(), part));
        Ok(blocks)
    }

    /// A store's name, with where it is if that is one place.
    fn title(&self, name: &str) -> String {
        match self.configuration.store(name) {
            Some(Described::Server { address, .. }) => format!("{name} ({address})"),
            Some(Described::Folder { path }) => format!("{name} ({})", path.display()),
            _ => name.to_owned(),
        }
    }
}

impl Assembled {
    /// Opens all that a configuration describes, and starts what runs in the background.
    ///
    /// # Errors
    /// [`AssembleError`] names the store.
    pub fn new(configuration: &Configuration, outside: &dyn Outside) -> Result<Self, AssembleError> {
        let mut builder = Builder {
            configuration,
            outside,
            built: BTreeMap::new(),
            shards: BTreeMap::new(),
            parts: Vec::new(),
            background: Vec::new(),
        };
        let blocks = builder.build(configuration.serve())?;
        let Builder { parts, background, .. } = builder;
        Ok(Self { blocks, watched: Watched(parts), background })
    }

    /// What is served.
    #[must_use]
    pub fn blocks(&self) -> Arc<dyn BlockStore> {
        Arc::clone(&self.blocks)
    }

    /// How the proxies are doing, for whoever wants to look.
    #[must_use]
    pub fn watched(&self) -> &Watched {
        &self.watched
    }

    /// Ends what runs in the background; if anything was written, all of that is made durable. What is still buffered goes on its way when the
    /// buffer is opened again.
    ///
    /// # Errors
    /// [`SyncError`].
    pub fn close(mut self, was_written: bool) -> Result<(), SyncError> {
        self.background.clear();
        for (name, part) in &self.watched.0 {
            if let Part::Bounded(bounded) = part
                && let Err(error) = bounded.sync()
            {
                tracing::warn!(%error, name, "what a look-aside got last may have to be fetched again");
            }
        }
        // Of a server that is away nobody has to know more than that nothing was written to it.
        if was_written { self.blocks.sync() } else { Ok(()) }
    }
}
