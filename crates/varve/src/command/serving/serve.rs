//! `varve serve`

pub(super) mod metrics;
mod proxies;
mod venti;
mod web;

use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Weak};

use anyhow::{Context, Result};
use serde_json::json;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGUSR1, SIGUSR2};
use signal_hook::iterator::Signals;
use varve_archive::{Archive, FilteredSnapshots, SnapshotFilter, SnapshotList};
use varve_block::{BlockStore, with_causes};
use varve_content::image::CachedBlocks;
use varve_daily::LoadedConfig;
use varve_serve::days::Days;
use varve_serve::nbd::{
    Endpoint, FoundDisk, NbdServer, NbdSettings, OneDisk, Overlay, RecordedDisk, ServedDisk, ServedDisks,
    SnapshotDisks, TimeText,
};
use varve_serve::venti::{ClientSessions, InheritedSockets, ServiceState, VentiSettings, notify};
use varve_serve::{BoundedFileSystem, ListenError, TcpServer, TlsIdentity, nfs, webdav};
use varve_session::{CommandSession, LeaseScope, LeasedSnapshotList, StoreLocation, UsageError};
use varve_store::{Store, WithoutBarren};
use varve_web::ServedStore;
use varve_world::World;

use super::mount;
use crate::arguments::{ServeArgs, TlsFiles};
use crate::command::choosing::chosen_snapshots::refuse_empty;
use crate::command::keeping::profile::NewProfile;
use crate::invocation::Invocation;
use crate::outcome::CommandOutcome;
use crate::{exit_status, moment, say};

/// The default size of the cache of decompressed blocks: this part of the machine's memory, within
/// these bounds.
const MEMORY_SHARE: u64 = 8;
const MEMORY_BOUNDS: [u64; 2] = [64 << 20, 4 << 30];

/// The caches of the store if only the web page is served. Its index of names needs the memory.
const PAGE_CACHE_BYTES: u64 = 32 << 20;

/// The notation of times in the front ends.
pub(super) const MOMENTS: TimeText = TimeText { parse_last: moment::parse_last_past, show: moment::show };

/// A front end that serves until it is closed.
trait FrontEnd {
    /// The addresses in the notation of clients.
    fn addresses(&self) -> Vec<String>;
    /// Makes a link that logs in a browser once. `None` if clients need no login.
    fn login_link(&self) -> Result<Option<String>> {
        Ok(None)
    }
    /// Ends it after the requests in flight are answered.
    fn close(self: Box<Self>) -> Result<()>;
}

impl FrontEnd for NbdServer {
    fn addresses(&self) -> Vec<String> {
        vec![nbd_address(self.endpoint(), "")]
    }

    fn close(self: Box<Self>) -> Result<()> {
        self.drain();
        Ok(())
    }
}

/// A front end for one disk whose reads become a profile.
struct RecordingFrontEnd {
    server: NbdServer,
    disk: Arc<RecordedDisk>,
    profile: NewProfile,
}

impl FrontEnd for RecordingFrontEnd {
    fn addresses(&self) -> Vec<String> {
        self.server.addresses()
    }

    fn close(self: Box<Self>) -> Result<()> {
        self.server.drain();
        self.profile.write_recorded(&self.disk)
    }
}

/// A front end for the files of snapshots, which ends when it is dropped.
struct FileFrontEnd {
    address: String,
    _server: TcpServer,
}

impl FrontEnd for FileFrontEnd {
    fn addresses(&self) -> Vec<String> {
        vec![self.address.clone()]
    }

    fn close(self: Box<Self>) -> Result<()> {
        Ok(())
    }
}

pub fn run(invocation: &Invocation, args: &ServeArgs) -> Result<CommandOutcome> {
    // First of all: an early signal is not lost, and inherited sockets keep their numbers.
    let mut inherited = InheritedSockets::from_environment()?;
    let mut signals = Signals::new([SIGHUP, SIGINT, SIGTERM, SIGUSR1, SIGUSR2])?;
    if let Some(configuration) = proxies::configuration(invocation, args)? {
        return proxies::run(invocation, args, &configuration, &mut inherited, signals);
    }
    let (archive, fault) = match args.venti.is_empty() {
        true => (invocation.session.read()?, None),
        false => open_to_write(invocation)?,
    };
    let store = archive.blocks();
    let is_written = store.is_open_to_write();
    let blocks = invocation.session.healing(&archive);
    drop(archive);
    let list = || Ok(Box::new(Archive::open_through(Arc::clone(&store), Arc::clone(&blocks) as _)?) as _);
    let listed = ServedSnapshots {
        session: &invocation.session,
        world: Some(store.world().clone()),
        list: &list,
        store: Some(&store),
    };
    let mut front_ends = snapshot_front_ends(invocation, args, &(Arc::clone(&blocks) as _), &listed)?;
    let mut counts: Box<dyn Fn() -> String> = Box::new(String::new);
    // If clients write, they use the store itself, without the replicas.
    let served: Arc<dyn BlockStore> =
        if is_written { Arc::new(WithoutBarren(Arc::clone(&store))) as _ } else { Arc::clone(&blocks) as _ };
    let mut counted = Weak::new();
    let is_degraded = fault.is_some();
    let sessions = open_sessions(args, &store)?;
    let settings = VentiSettings { fault, sessions: sessions.clone(), ..venti::settings(args)? };
    if let Some(server) = venti::start(args, &mut inherited, served, settings)? {
        let server = Arc::new(server);
        let own = Arc::clone(&server);
        counts = Box::new(move || venti::counts(&own));
        counted = Arc::downgrade(&server);
        front_ends.push(Box::new(venti::VentiFrontEnd(server)));
    }
    let metrics = args.metrics.map(|address| {
        let store = Arc::downgrade(&store);
        varve_serve::metrics::serve(address, args.expose, Arc::new(move || metrics::page(&store, &counted)))
    });
    let metrics = metrics.transpose().map_err(not_listening)?;
    announce(invocation, &front_ends, metrics.as_ref())?;
    if is_degraded {
        tell(ServiceState::Degraded);
    }
    answer_signals(invocation, &mut signals, &front_ends, &store, &*counts)?;
    tell(ServiceState::Stopping);
    end_at_next_signal(signals);
    drop((counts, metrics));
    let closed = close_all(front_ends);
    if is_written {
        drop(blocks);
        close_written(store, sessions)?;
    } else {
        invocation.session.report_lost(&blocks);
    }
    closed.map(|()| CommandOutcome::Done)
}

/// Prints the figures that signals ask for, until a signal ends the program.
fn answer_signals(
    invocation: &Invocation,
    signals: &mut Signals,
    front_ends: &[Box<dyn FrontEnd>],
    store: &Store,
    counts: &dyn Fn() -> String,
) -> Result<()> {
    for signal in signals.forever() {
        match signal {
            SIGUSR1 => {
                tell_login_links(invocation, front_ends)?;
                tell_numbers(&venti::bucket_histogram(store.memory_index_stats().as_ref()), &counts());
            }
            SIGUSR2 => tell_numbers(&venti::lookup_histogram(&store.candidates_per_lookup()), &counts()),
            _ => break,
        }
    }
    Ok(())
}

/// Closes a store to which clients have written. A connection that is still open may share it: then
/// it is only synced.
fn close_written(store: Arc<Store>, sessions: Option<Arc<ClientSessions>>) -> Result<()> {
    if let Some(sessions) = sessions {
        sessions.sync()?;
    }
    match Arc::try_unwrap(store) {
        Ok(store) => store.close()?,
        Err(shared) => shared.sync()?,
    }
    Ok(())
}

/// Closes all front ends, and returns the first error.
fn close_all(front_ends: Vec<Box<dyn FrontEnd>>) -> Result<()> {
    let closed: Vec<Result<()>> = front_ends.into_iter().map(FrontEnd::close).collect();
    closed.into_iter().collect()
}

/// Opens the record of client sessions, if it is requested or was begun earlier. A gap in it would
/// hide which blocks other sessions rely on.
fn open_sessions(words: &ServeArgs, store: &Arc<Store>) -> Result<Option<Arc<ClientSessions>>> {
    let has_door = !words.venti.is_empty() || !words.venti_read_only.is_empty();
    let is_begun = store.is_open_to_write() && words.sessions;
    if has_door && (is_begun || store.vault().sessions().is_there()?) {
        return Ok(Some(Arc::new(ClientSessions::open(Arc::clone(store))?)));
    }
    Ok(None)
}

/// Opens the store for clients that write. If its disk is full or read-only, the store is opened
/// for reading instead, so that readers are not affected. Then the reason is returned, too.
fn open_to_write(invocation: &Invocation) -> Result<(Archive, Option<String>)> {
    let error = match invocation.session.write() {
        Ok(archive) => return Ok((archive, None)),
        Err(error) if takes_no_writes(&error) => error,
        Err(error) => return Err(error),
    };
    let archive = invocation.session.read()?;
    let reason = with_causes(error.as_ref());
    tracing::error!(
        reason,
        "the store cannot be written: it is served read-only; make space on its disk, and restart the server"
    );
    Ok((archive, Some(reason)))
}

/// The error of a front end that cannot listen. An address that other machines can reach is a usage
/// error without `--expose`.
pub(super) fn not_listening(error: ListenError) -> anyhow::Error {
    match error {
        ListenError::Exposed { .. } | ListenError::ExposedNumbers { .. } => {
            UsageError(error.to_string()).into()
        }
        error => error.into(),
    }
}

/// Reports whether the disk is full or read-only, but otherwise works.
fn takes_no_writes(error: &anyhow::Error) -> bool {
    use io::ErrorKind::{FileTooLarge, QuotaExceeded, ReadOnlyFilesystem, StorageFull};
    let kinds = error.chain().filter_map(|cause| cause.downcast_ref::<io::Error>()).map(io::Error::kind);
    kinds
        .into_iter()
        .any(|kind| matches!(kind, StorageFull | QuotaExceeded | FileTooLarge | ReadOnlyFilesystem))
}

/// The snapshots that front ends show.
struct ServedSnapshots<'a> {
    session: &'a CommandSession,
    /// The world of the store that holds them; `None` if a server holds them.
    world: Option<World>,
    list: &'a dyn Fn() -> Result<Box<dyn SnapshotList>>,
    /// The store itself; `None` if a server holds the snapshots.
    store: Option<&'a Arc<Store>>,
}

impl ServedSnapshots<'_> {
    /// Opens the list for one front end.
    fn open(
        &self,
        filter: SnapshotFilter,
        scope: LeaseScope,
    ) -> Result<LeasedSnapshotList<FilteredSnapshots<Box<dyn SnapshotList>>>> {
        let list = FilteredSnapshots::new((self.list)()?, filter);
        Ok(self.session.leased(list, self.world.clone(), scope))
    }
}

/// Starts the requested front ends for snapshots. Their contents are read from `blocks`.
fn snapshot_front_ends(
    invocation: &Invocation,
    args: &ServeArgs,
    blocks: &Arc<dyn BlockStore>,
    listed: &ServedSnapshots<'_>,
) -> Result<Vec<Box<dyn FrontEnd>>> {
    let mut front_ends: Vec<Box<dyn FrontEnd>> = Vec::new();
    let list = |scope| listed.open(args.which.filter(), scope);
    if let Some(endpoint) = &args.nbd {
        let scope = if args.export.is_some() { LeaseScope::Used } else { LeaseScope::Listed };
        let cached = CachedBlocks::with_leaves_bytes(Arc::clone(blocks), memory(args));
        let snapshots = SnapshotDisks::new(list(scope)?, Arc::new(cached), MOMENTS);
        front_ends.push(nbd_front_end(invocation, args, endpoint, snapshots)?);
    }
    if args.nfs.is_some() || args.webdav.is_some() {
        let days: Arc<Days> = Arc::new(mount::days(list(LeaseScope::Listed)?, Arc::clone(blocks)));
        // NFS and WebDAV do not report which files a client has forgotten, so the table of files is
        // bounded.
        let days = Arc::new(BoundedFileSystem::new(days));
        if let Some(address) = args.nfs {
            let server = nfs::serve(address, args.expose, Arc::clone(&days) as _).map_err(not_listening)?;
            let (ip, port) = (server.address().ip(), server.address().port());
            let address = format!("nfs://{ip}/?nfsport={port}&mountport={port}");
            front_ends.push(Box::new(FileFrontEnd { address, _server: server }));
        }
        if let Some(address) = args.webdav {
            let server = webdav::serve(address, args.expose, days).map_err(not_listening)?;
            let address = format!("http://{}/", server.address());
            front_ends.push(Box::new(FileFrontEnd { address, _server: server }));
        }
    }
    let is_page_alone = front_ends.is_empty() && args.venti.is_empty() && args.venti_read_only.is_empty();
    if let Some(store) = listed.store.filter(|_| is_page_alone && args.http.is_some()) {
        store.bound_caches(PAGE_CACHE_BYTES);
    }
    let snapshots = || Ok(Box::new(list(LeaseScope::Listed)?) as _);
    let store =
        listed.store.filter(|_| args.http.is_some()).map(|store| shown_store(invocation, args, store));
    front_ends.extend(web::start(args, store, named_store(invocation), snapshots, blocks)?);
    Ok(front_ends)
}

/// Returns the store whose state the page shows.
fn shown_store(invocation: &Invocation, args: &ServeArgs, store: &Arc<Store>) -> ServedStore {
    // The state is read in the background, so nothing is asked at the terminal.
    let user = Invocation { asks: false, ..invocation.clone() }.frontend();
    // The zone of the configuration is that of the page. A configuration with faults is reported
    // when its promises are judged.
    drop(LoadedConfig::load(args.config.as_deref(), Arc::clone(&user)));
    ServedStore { store: Arc::clone(store), config: args.config.clone(), user }
}

/// Returns the store as a command in any folder names it.
fn named_store(invocation: &Invocation) -> Option<PathBuf> {
    let named = invocation.session.store_path().ok()?;
    match invocation.session.home() {
        Ok(StoreLocation::Folder(folder)) => std::path::absolute(folder).ok(),
        _ => Some(named),
    }
}

/// Prints all addresses for the user who started the server.
fn announce(
    invocation: &Invocation,
    front_ends: &[Box<dyn FrontEnd>],
    metrics: Option<&TcpServer>,
) -> Result<()> {
    for address in front_ends.iter().flat_map(|front_end| front_end.addresses()) {
        match invocation.json {
            true => say::record("serving", json!({ "address": address })),
            false => say!("serving at {address}"),
        }
    }
    if let Some(metrics) = metrics {
        let url = format!("http://{}/metrics", metrics.address());
        match invocation.json {
            true => say::record("metrics", json!({ "url": url })),
            false => say!("metrics at {url}"),
        }
    }
    tell_login_links(invocation, front_ends)?;
    tell(ServiceState::Ready);
    Ok(())
}

/// Prints links that log in a browser.
fn tell_login_links(invocation: &Invocation, front_ends: &[Box<dyn FrontEnd>]) -> Result<()> {
    for front_end in front_ends {
        match front_end.login_link()? {
            Some(url) if invocation.json => say::record("login", json!({ "url": url })),
            Some(url) => say!("log in once, within 5 minutes: {url}"),
            None => {}
        }
    }
    Ok(())
}

/// Prints the counters and the table statistics that a signal asked for.
fn tell_numbers(tables: &str, counts: &str) {
    notice!("{}", format!("{tables}{counts}").trim_end());
}

/// Sends a notice to the service manager, if there is one.
fn tell(notice: ServiceState) {
    if let Err(error) = notify(notice) {
        tracing::warn!(%error, "the service manager could not be notified");
    }
}

fn memory(args: &ServeArgs) -> u64 {
    memory_within(args.memory, MEMORY_BOUNDS)
}

/// Returns the size of a cache: as requested, or a part of the machine's memory within bounds.
pub(super) fn memory_within(requested: Option<u64>, [least, most]: [u64; 2]) -> u64 {
    requested.unwrap_or_else(|| (memory_of_this_machine() / MEMORY_SHARE).clamp(least, most))
}

/// Returns the memory of this machine in bytes.
pub(super) fn memory_of_this_machine() -> u64 {
    let system = rustix::system::sysinfo();
    (system.totalram as u64).saturating_mul(system.mem_unit.into())
}

/// Reads the TLS identity of a front end, and the authority that must sign its clients'
/// certificates.
fn identity(files: &TlsFiles) -> Result<TlsIdentity> {
    Ok(TlsIdentity::read(&files.certificate, &files.key, files.authority.as_deref())?)
}

fn nbd_front_end(
    invocation: &Invocation,
    args: &ServeArgs,
    endpoint: &Endpoint,
    snapshots: SnapshotDisks,
) -> Result<Box<dyn FrontEnd>> {
    let settings = NbdSettings {
        tls: args.nbd_tls.as_ref().map(identity).transpose()?,
        connections_max: args.nbd_clients.into(),
        ..NbdSettings::default()
    };
    let start = |disks: Arc<dyn ServedDisks>| {
        NbdServer::start(endpoint, disks, settings).with_context(|| format!("cannot listen at {endpoint}"))
    };
    let Some(name) = &args.export else { return Ok(Box::new(start(Arc::new(snapshots))?)) };
    let (names, FoundDisk { description, disk, .. }) = exported(name, &snapshots)?;
    let profile = args.profile.as_deref().map(|path| NewProfile::create(invocation, path)).transpose()?;
    let recorded = profile.map(|profile| (profile, Arc::new(RecordedDisk::new(Arc::clone(&disk)))));
    let disk = match &recorded {
        Some((_, recorded)) => Arc::clone(recorded) as Arc<dyn ServedDisk>,
        None => disk,
    };
    let id = names.last().map_or("", String::as_str);
    let disk: Arc<dyn ServedDisk> = match &args.overlay {
        Some(path) => Arc::new(Overlay::keep(disk, id, path)?),
        None if args.writable => Arc::new(Overlay::throw_away(disk, unnamed_file()?)?),
        None => disk,
    };
    let server = start(Arc::new(OneDisk::new(names, description, disk)))?;
    Ok(match recorded {
        Some((profile, disk)) => Box::new(RecordingFrontEnd { server, disk, profile }),
        None => Box::new(server),
    })
}

/// Finds the only disk that is served. Its names end with the id of its snapshot.
fn exported(name: &str, snapshots: &SnapshotDisks) -> Result<(Vec<String>, FoundDisk)> {
    refuse_empty(name)?;
    let (snapshot, found) = snapshots.find_snapshot(name, &SnapshotFilter::default())?;
    let names = vec![found.name.clone(), name.to_owned(), snapshot.name, snapshot.id.to_string()];
    Ok((names, found))
}

/// Creates a file for temporary data. The file has no name, so it disappears however this program
/// ends.
pub(super) fn unnamed_file() -> Result<std::fs::File> {
    tempfile::tempfile().with_context(|| {
        let folder = std::env::temp_dir();
        format!("cannot make a temporary file in {}: set TMPDIR to another folder", folder.display())
    })
}

/// Formats an export in the notation of NBD clients.
pub(super) fn nbd_address(endpoint: &Endpoint, export: &str) -> String {
    match endpoint {
        Endpoint::Tcp(..) => format!("nbd://{endpoint}/{export}"),
        Endpoint::Unix(path) => format!("nbd+unix:///{export}?socket={}", path.display()),
    }
}

/// Ends the program at the next signal, for a user who does not want to wait.
#[expect(clippy::disallowed_methods, reason = "signals come from the edge")]
fn end_at_next_signal(mut signals: Signals) {
    std::thread::spawn(move || {
        let is_end = |signal: &i32| ![SIGUSR1, SIGUSR2].contains(signal);
        if signals.forever().any(|signal| is_end(&signal)) {
            std::process::exit(i32::from(exit_status::INTERRUPTED));
        }
    });
}
