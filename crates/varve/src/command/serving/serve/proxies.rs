//! Front ends for proxies: other servers and stores behind caches, write buffers and the like.

use std::collections::BTreeMap;
use std::io::{self, Read};
use std::path::Path;
use std::sync::{Arc, Weak};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use parking_lot::Mutex;
use signal_hook::consts::{SIGUSR1, SIGUSR2};
use signal_hook::iterator::Signals;
use varve_block::BlockStore;
use varve_proxy::{
    AssembledProxies, BufferSettings, CONFIGURATION_BYTES_MAX, Configuration, ListReferences, NewTrace,
    OpenFailure, ProxyResources, StoreDescription,
};
use varve_remote::{VentiOptions, VentiStore};
use varve_serve::venti::{InheritedSockets, ServiceState, VentiSettings};
use varve_session::{RootsFile, StoreLocation, UsageError, VentiHome, home_at, target};
use varve_store::Store;
use varve_tree::leads_to;
use varve_venti::Address;
use varve_world::{Clock, RealClock, World};

use super::venti::{self, VentiFrontEnd};
use super::{
    CommandOutcome, FrontEnd, ServedSnapshots, announce, close_all, end_at_next_signal, metrics,
    snapshot_front_ends, tell, tell_login_links, tell_numbers,
};
use crate::arguments::ServeArgs;
use crate::command::taking::trace_file;
use crate::invocation::Invocation;

/// The default size of the front end's own block cache. It is small, because the proxies have
/// caches of their own.
const RECENT_BYTES: u64 = 16 << 20;
/// The number of attempts before a server from the command line counts as unavailable, and the time
/// limit for its answers.
const ATTEMPTS: u32 = 3;
const PATIENCE: Duration = Duration::from_secs(60);
/// Time limit for connecting to it.
const CONNECT_PATIENCE: Duration = Duration::from_secs(5);

/// Returns the proxies to serve; `None` if the store itself is served.
pub(super) fn configuration(invocation: &Invocation, args: &ServeArgs) -> Result<Option<Configuration>> {
    let is_server = || matches!(invocation.session.home(), Ok(StoreLocation::Venti(_)));
    if !args.has_proxies() && !is_server() {
        return Ok(None);
    }
    if args.shows_snapshots() {
        roots(invocation)?;
    }
    if args.sessions {
        let text = "--sessions cannot be used with proxies: give it to the server behind them";
        bail!(UsageError(text.into()));
    }
    match &args.proxies {
        Some(file) => from_file(file).map(Some),
        None => from_flags(invocation, args).map(Some),
    }
}

/// Returns the file with the catalog root: blocks behind proxies have no list of snapshots.
fn roots(invocation: &Invocation) -> Result<RootsFile> {
    match invocation.session.home() {
        Ok(StoreLocation::Venti(address)) => invocation.session.roots(&address),
        _ => invocation.session.named_roots().ok_or_else(|| {
            let text = "proxies serve blocks, not snapshots: for --nbd, --nfs and --webdav name the Venti server of the snapshots with --store, or their roots with --roots";
            UsageError(text.into()).into()
        }),
    }
}

fn from_file(file: &Path) -> Result<Configuration> {
    let mut text = String::new();
    let read = std::fs::File::open(file)
        .and_then(|opened| opened.take(CONFIGURATION_BYTES_MAX + 1).read_to_string(&mut text));
    read.with_context(|| format!("cannot read {}", file.display()))?;
    if text.len() as u64 > CONFIGURATION_BYTES_MAX {
        bail!("{} is too long for a description of proxies", file.display());
    }
    Configuration::from_text(&text).with_context(|| format!("cannot use {}", file.display()))
}

/// Builds the proxies from the command line, in the only useful order: read-ahead in front of the
/// cache, the cache in front of the write buffer, and behind it the shards or the store.
fn from_flags(invocation: &Invocation, args: &ServeArgs) -> Result<Configuration> {
    let mut stores = BTreeMap::new();
    let mut front = if args.shard.is_empty() {
        add(&mut stores, "store", &invocation.session.store_path()?)?
    } else {
        let numbered = args.shard.iter().enumerate();
        let named = numbered.map(|(number, path)| add(&mut stores, &format!("shard-{}", number + 1), path));
        let shards = named.collect::<Result<Vec<_>>>()?;
        stores.insert("shards".to_owned(), StoreDescription::Shards { stores: shards });
        "shards".to_owned()
    };
    let mut put = |stores: &mut BTreeMap<String, StoreDescription>, name: &str, described| {
        stores.insert(name.to_owned(), described);
        front = name.to_owned();
    };
    let mut target = if args.shard.is_empty() { "store" } else { "shards" };
    if let Some(folder) = &args.write_buffer {
        let settings = BufferSettings { bytes_max: args.write_buffer_size, ..BufferSettings::default() };
        let bytes_per_second = args.write_buffer_rate;
        let described = StoreDescription::Buffer {
            target: target.into(),
            folder: folder.clone(),
            settings,
            bytes_per_second,
        };
        put(&mut stores, "write-buffer", described);
        target = "write-buffer";
    }
    if let Some(path) = &args.look_aside {
        let look_aside = match home_at(path)? {
            StoreLocation::Venti(_) => add(&mut stores, "look-aside", path)?,
            _ => {
                let bounded = StoreDescription::Bounded { folder: path.clone(), bytes: args.look_aside_size };
                stores.insert("look-aside".to_owned(), bounded);
                "look-aside".to_owned()
            }
        };
        let described = StoreDescription::Cache {
            source: target.into(),
            look_aside: Some(look_aside),
            look_aside_writes: args.look_aside_writes,
            memory_bytes: args.memory.unwrap_or(4 * RECENT_BYTES),
        };
        put(&mut stores, "cache", described);
        target = "cache";
    }
    if let Some(memory_bytes) = args.read_ahead {
        put(&mut stores, "read-ahead", StoreDescription::ReadAhead { source: target.into(), memory_bytes });
    }
    Ok(Configuration::new(front, stores)?)
}

/// Adds a store or server at the end of the chain.
fn add(stores: &mut BTreeMap<String, StoreDescription>, name: &str, path: &Path) -> Result<String> {
    let described = match home_at(path)? {
        StoreLocation::Venti(address) => {
            StoreDescription::Server { address, attempts: ATTEMPTS, patience: PATIENCE }
        }
        StoreLocation::Folder(path) => StoreDescription::Folder { path },
        StoreLocation::Replica(text) => {
            bail!(
                "{} is a replica, and cannot be written: a proxy needs a Venti server, or a store's own folder",
                target::shown(&text)
            )
        }
    };
    stores.insert(name.to_owned(), described);
    Ok(name.to_owned())
}

/// The services of this machine that the proxies need. It closes its stores after everything else
/// has ended.
struct MachineResources<'a> {
    invocation: &'a Invocation,
    stores: Mutex<Vec<Arc<Store>>>,
}

impl ProxyResources for MachineResources<'_> {
    fn server(
        &self,
        address: &Address,
        attempts: u32,
        patience: Duration,
    ) -> Result<Arc<dyn BlockStore>, OpenFailure> {
        let options = VentiOptions {
            attempts,
            connect_timeout: CONNECT_PATIENCE.min(patience),
            answer_timeout: patience,
            tls: varve_session::venti_tls()?,
            ..VentiOptions::default()
        };
        Ok(Arc::new(VentiStore::connect_later(address.clone(), options)))
    }

    fn folder(&self, path: &Path) -> Result<Arc<dyn BlockStore>, OpenFailure> {
        let store = Arc::new(self.invocation.session.write_store_at(path)?);
        if store.vault().sessions().is_there()? {
            let text = "this store records sessions, which proxies cannot do: serve the store without proxies, and put the proxies in front of that server";
            return Err(format!("{}: {text}", path.display()).into());
        }
        self.stores.lock().push(Arc::clone(&store));
        Ok(store)
    }

    fn world(&self, folder: &Path) -> World {
        World::real(folder)
    }

    fn holder(&self) -> String {
        self.invocation.session.holder()
    }

    fn trace(&self, folder: &Path) -> Result<NewTrace, OpenFailure> {
        std::fs::create_dir_all(folder)?;
        let seconds = RealClock.now().0.div_euclid(1_000_000_000);
        // A server that is started twice in a second gets a second file.
        let names = (1..100).map(|number| format!("{seconds}-{number}.vtrace"));
        for name in names {
            match trace_file::create(&folder.join(name)) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                output => return Ok(NewTrace { output: output?, maker: trace_file::maker() }),
            }
        }
        Err(format!("{} has too many new traces", folder.display()).into())
    }

    fn leads(&self) -> ListReferences {
        leads_to
    }
}

/// Serves until a signal to end.
pub fn run(
    invocation: &Invocation,
    args: &ServeArgs,
    configuration: &Configuration,
    inherited: &mut InheritedSockets,
    mut signals: Signals,
) -> Result<CommandOutcome> {
    let machine = MachineResources { invocation, stores: Mutex::default() };
    let assembled = AssembledProxies::new(configuration, &machine)?;
    // An unavailable server may return, so its failures are passed on. A store that must not be
    // written to reports that itself.
    let settings = VentiSettings {
        failures_pass: true,
        recent_bytes: args.memory.unwrap_or(RECENT_BYTES),
        ..venti::settings(args)?
    };
    let blocks = assembled.blocks();
    let list = || Ok(Box::new(VentiHome::open(roots(invocation)?, Arc::clone(&blocks))?) as _);
    let listed = ServedSnapshots { session: &invocation.session, world: None, list: &list, store: None };
    let mut front_ends = snapshot_front_ends(invocation, args, &blocks, &listed)?;
    let server = venti::start(args, inherited, Arc::clone(&blocks), settings)?.map(Arc::new);
    front_ends
        .extend(server.iter().map(|server| Box::new(VentiFrontEnd(Arc::clone(server))) as Box<dyn FrontEnd>));
    let counted = server.as_ref().map_or_else(Weak::new, Arc::downgrade);
    let metrics = args.metrics.map(|address| {
        let watched = assembled.watched().clone();
        let page = move || metrics::proxies_page(&watched, &counted);
        varve_serve::metrics::serve(address, args.expose, Arc::new(page))
    });
    let metrics = metrics.transpose().map_err(super::not_listening)?;
    announce(invocation, &front_ends, metrics.as_ref())?;
    for signal in signals.forever() {
        let counts = || server.as_deref().map(venti::counts).unwrap_or_default();
        match signal {
            SIGUSR1 | SIGUSR2 => {
                if signal == SIGUSR1 {
                    tell_login_links(invocation, &front_ends)?;
                }
                tell_numbers(&assembled.watched().report(), &counts());
            }
            _ => break,
        }
    }
    tell(ServiceState::Stopping);
    end_at_next_signal(signals);
    let was_written = server.as_ref().is_some_and(|server| server.counts().writes > 0);
    drop((server, metrics, blocks));
    let closed = close_all(front_ends);
    let synced = assembled.close(was_written);
    for store in machine.stores.into_inner() {
        if let Ok(store) = Arc::try_unwrap(store) {
            store.close()?;
        }
    }
    synced.context("some written blocks are not durable behind the proxies")?;
    closed.map(|()| CommandOutcome::Done)
}
