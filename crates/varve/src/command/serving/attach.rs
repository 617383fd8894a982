//! `varve attach`

mod access_file;
mod figures;
mod newer_edition;

use std::fs::{self, DirBuilder};
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde_json::json;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::flag;
use varve_archive::{Firmware, Machine};
use varve_attach::{
    AccessLog, AttachedEdition, BlockSupply, CacheBudget, ChooseImageError, EditionOpener, FetchSettings,
    FillReport, OpenCacheError, OpenEditionError, PublicationServer, PublishedDisk, ReadDiskError,
    StoredCache, TrustError, TrustRules, TrustWarning, choose_image, fill_cache, prefetch_profile,
    published_machine, published_profile,
};
use varve_edition::{
    BlockForm, DescribedBoard, DescribedBus, DescribedFirmware, DiskProfile, EditionKey, ImageCipher,
    MachineDescription, OpenHeadError, PublishedImage,
};
use varve_machine::boot::{Bus, Hardware, sectors_of};
use varve_remote::is_on_own_network;
use varve_serve::fuse::{self, Mounted};
use varve_serve::nbd::{Endpoint, NbdServer, NbdSettings, OneDisk, Overlay, RecordedDisk, ServedDisk};
use varve_serve::published::{PublishedExport, PublishedFolder};
use varve_session::target::{self, ReaderPatience};
use varve_session::{Interrupted, NamedBy, UsageError, WithHint};
use varve_world::{Clock, RealClock, RealStorage, Storage};

use self::access_file::AccessFile;
use self::newer_edition::{EditionSerials, NewerEditionWatch};
use super::boot::machine_run::{self, BootDrive, DriveWrites, MachineStarter};
use super::serve::{memory_of_this_machine, memory_within, nbd_address, not_listening, unnamed_file};
use crate::arguments::{AttachArgs, ProfileChoice};
use crate::command::keeping::content_key::{KEY_FILE_BYTES_MAX, read_content_key};
use crate::command::keeping::profile::{NewProfile, read_profile};
use crate::exit_status::INTERRUPTED;
use crate::invocation::Invocation;
use crate::outcome::CommandOutcome;
use crate::{moment, say, show};

/// Poll interval for signals, and for an unmount by another program.
const LOOK: Duration = Duration::from_millis(100);
/// The last blocks on their way are kept if they come within this time.
const LAST_FETCHES: Duration = Duration::from_millis(500);
/// The memory of a machine without a description, and a description may always have as much.
const LEAST_MACHINE_MEMORY: u64 = 2 << 30;
const MEMORY_BOUNDS: [u64; 2] = [64 << 20, 1 << 30];

pub fn run(invocation: &Invocation, args: &AttachArgs) -> Result<CommandOutcome> {
    // A conflict in the arguments' definition would cancel what the choices for a machine require.
    if args.boot && args.nbd.is_some() {
        bail!(UsageError("--boot cannot be used with --nbd: the machine has the disk for itself".into()));
    }
    let EndOnSignal { is_over, may_die } = EndOnSignal::register().context("cannot catch signals")?;
    let folder = cache_folder(invocation, args)?;
    let place = target::shown(&args.address.place);
    let mut mirrors = named_servers(invocation, args)?;
    let rules = TrustRules {
        keys: keys(args)?,
        trusts_first_use: args.trust_first_use,
        allows_older: args.allow_older,
        is_strict: args.strict,
    };
    let opener = EditionOpener {
        place: &place,
        mirrors: &mirrors,
        rules: &rules,
        folder: folder.as_deref(),
        patience: args.patience.0,
        now: RealClock.now(),
    };
    let edition = opener.open().with_hint(edition_hint).context("the publication is not attached")?;
    warn(&edition);
    let image = chosen(args, &edition)?;
    let form = block_form(args, &image)?;
    add_servers(invocation, args, &edition, &mut mirrors);
    let log = args.log.as_deref().map(AccessFile::open).transpose()?.map(Arc::new);
    let settings = FetchSettings {
        patience: args.patience.0,
        is_over: Arc::clone(&is_over),
        ..FetchSettings::default()
    };
    let serials = Arc::new(EditionSerials::new(edition.head.fields().serial));
    let watch = NewerEditionWatch {
        place: place.clone(),
        servers: mirrors.clone(),
        rules,
        patience: args.patience.0,
        folder: folder.clone(),
        image: image.clone(),
        log: log.clone(),
        serials: Arc::clone(&serials),
    };
    let stored = folder.and_then(|folder| open_cache(invocation, folder));
    let memory = memory_within(args.memory, MEMORY_BOUNDS);
    let access_log = log.clone().map(|log| log as Arc<dyn AccessLog>);
    let source = Arc::new(BlockSupply::open(mirrors, settings, form, stored, memory, access_log)?);
    let disk = PublishedDisk::open(image.clone(), Arc::clone(&source)).with_hint(disk_hint);
    let disk = Arc::new(disk.with_context(|| format!("{} cannot be read", shown(&image)))?);

    let profile = profile(args, &disk)?;
    let recording = args.record.as_deref().map(|path| NewProfile::create(invocation, path)).transpose()?;
    let export: Arc<dyn ServedDisk> = Arc::new(PublishedExport(Arc::clone(&disk)));
    let recording = recording.map(|file| (file, Arc::new(RecordedDisk::new(Arc::clone(&export)))));
    let export = recording.as_ref().map_or(export, |(_, recorded)| Arc::clone(recorded) as _);
    may_die.store(false, Ordering::Relaxed);
    let server = args.nbd.as_ref().map(|at| nbd_server(args, at, disk.image(), &export)).transpose()?;
    let recorded = recording.as_ref().map(|(_, recorded)| Arc::clone(recorded));
    let machine = args.boot.then(|| machine(args, &disk, export, recorded)).transpose()?;
    let mounted = args.mount.as_deref().map(|folder| mount(&place, folder, &disk)).transpose()?;
    let metrics = args.metrics.map(|address| {
        let (source, serials) = (Arc::downgrade(&source), Arc::clone(&serials));
        varve_serve::metrics::serve(address, false, Arc::new(move || figures::page(&source, &serials)))
    });
    let metrics = metrics.transpose().map_err(not_listening)?;
    let is_served = server.is_some() || mounted.is_some() || machine.is_some();
    if is_served {
        let metrics = metrics.as_ref().map(|metrics| format!("http://{}/metrics", metrics.address()));
        announce(invocation, &edition, &image, server.as_ref(), mounted.as_ref(), metrics);
        if let (Some(every), false) = (args.look_every.0, args.offline) {
            watch.start(every, &is_over)?;
        }
    }
    if let Some(profile) = profile {
        prefetch_beside(profile, &disk, &is_over)?;
    }
    let filled = match (args.fill, is_served) {
        (false, _) => None,
        (true, false) => Some(fill(invocation.json, args.fill_rate, &disk, &is_over)?),
        (true, true) => {
            fill_beside(invocation.json, args.fill_rate, &disk, &is_over)?;
            None
        }
    };
    let was_interrupted = is_over.load(Ordering::Relaxed);
    let booted = machine.map(|mut machine| {
        if !invocation.quiet && !invocation.json {
            machine.announce(&image.name, image.time);
        }
        let booted = machine.run(invocation, &args.machine, &is_over);
        is_over.store(true, Ordering::Relaxed);
        booted
    });
    let has_ended = || mounted.as_ref().is_some_and(Mounted::has_ended);
    while is_served && !is_over.load(Ordering::Relaxed) && !has_ended() {
        std::thread::park_timeout(LOOK);
    }
    is_over.store(true, Ordering::Relaxed);
    drop(metrics);
    if let Some(server) = server {
        server.drain();
    }
    if let Some(mounted) = mounted {
        let at = mounted.at().display().to_string();
        mounted.unmount().with_context(|| format!("{at} is still mounted"))?;
    }
    may_die.store(true, Ordering::Relaxed);
    if let Some(log) = log {
        log.flush();
    }
    source.wait_idle(LAST_FETCHES);
    figures::tell(invocation, &source.figures());
    if let Some((file, recorded)) = recording {
        file.write_recorded(&recorded)?;
    }
    let is_incomplete = filled.is_some_and(|filled| !filled.is_complete());
    match booted {
        Some(booted) => booted,
        None if is_incomplete && was_interrupted => bail!(Interrupted("the cache is not complete")),
        None => Ok(if is_incomplete { CommandOutcome::Failed } else { CommandOutcome::Done }),
    }
}

/// The end of the program on a signal.
struct EndOnSignal {
    /// Set by a signal. Everything that waits looks at it.
    is_over: Arc<AtomicBool>,
    /// True while a signal ends the program at once. False while a disk is served: a process that
    /// dies while its mount exists leaves a dead mount behind.
    may_die: Arc<AtomicBool>,
}

impl EndOnSignal {
    fn register() -> std::io::Result<Self> {
        let (is_over, may_die) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(true)));
        for signal in [SIGHUP, SIGINT, SIGTERM] {
            flag::register_conditional_shutdown(signal, i32::from(INTERRUPTED), Arc::clone(&may_die))?;
            flag::register(signal, Arc::clone(&is_over))?;
        }
        Ok(Self { is_over, may_die })
    }
}

/// Makes the folder for seen editions and blocks. Without it, the disk is attached all the same.
fn cache_folder(invocation: &Invocation, args: &AttachArgs) -> Result<Option<Arc<dyn Storage>>> {
    if args.no_cache {
        return Ok(None);
    }
    let Some(folder) = invocation.session.cache_folder().map(|folder| folder.join("attach")) else {
        return without_cache(args, "the home folder is not known: name a folder with --cache");
    };
    let made = DirBuilder::new().recursive(true).mode(0o700).create(folder.join("heads"));
    match made {
        Ok(()) => Ok(Some(Arc::new(RealStorage::new(&folder)))),
        Err(error) => without_cache(args, &format!("{}: {error}", folder.display())),
    }
}

fn without_cache(args: &AttachArgs, reason: &str) -> Result<Option<Arc<dyn Storage>>> {
    if args.offline || args.fill {
        bail!("there is no cache: {reason}");
    }
    warning!("no cache is used, and no seen edition is remembered: {reason}");
    Ok(None)
}

fn open_cache(invocation: &Invocation, folder: Arc<dyn Storage>) -> Option<StoredCache> {
    let holder = format!("process {}", std::process::id());
    match StoredCache::open(folder, CacheBudget::new(invocation.cache_bytes), &holder) {
        Ok(cache) => Some(cache),
        Err(error @ OpenCacheError::InUse { .. }) => {
            warning!("{error}: this one goes on without; name another folder with --cache");
            None
        }
        Err(error) => {
            warning!("no blocks are kept: {}", varve_block::with_causes(&error));
            None
        }
    }
}

/// The key in the address, and those in key files.
fn keys(args: &AttachArgs) -> Result<Vec<EditionKey>> {
    let mut keys: Vec<EditionKey> = args.address.key.into_iter().collect();
    for file in &args.publishers {
        let context = || format!("cannot read the publisher's key in {}", file.display());
        let length = fs::metadata(file).with_context(context)?.len();
        if length > KEY_FILE_BYTES_MAX {
            bail!("{}: it is too long for the key of a publisher", file.display());
        }
        keys.push(fs::read_to_string(file).with_context(context)?.trim().parse().with_context(context)?);
    }
    Ok(keys)
}

/// The place itself and the mirrors on the command line.
fn named_servers(invocation: &Invocation, args: &AttachArgs) -> Result<Vec<PublicationServer>> {
    if args.offline {
        return Ok(Vec::new());
    }
    let places = [&args.address.place].into_iter().chain(&args.mirrors);
    places
        .map(|place| {
            // An address of the same publication may be given as a mirror.
            let place = place.split("#varve1-").next().unwrap_or(place).trim_end_matches('/');
            let target = invocation.session.target_for_reader(place, NamedBy::User, reader(args), true)?;
            Ok(PublicationServer { name: target::shown(place), target })
        })
        .collect()
}

/// A server is tried once, because the reader turns to another one.
fn reader(args: &AttachArgs) -> ReaderPatience {
    ReaderPatience { try_count: 1, patience: args.patience.0 }
}

/// Adds the mirrors that the edition names. One that cannot be used is left out.
fn add_servers(
    invocation: &Invocation,
    args: &AttachArgs,
    edition: &AttachedEdition,
    mirrors: &mut Vec<PublicationServer>,
) {
    if args.offline {
        return;
    }
    let named = &edition.head.fields().mirrors;
    // A publisher must not make a reader send requests to the machines behind its router.
    let may_be_own = !named.is_empty() && is_on_own_network(&args.address.place);
    for place in named {
        let place = place.trim_end_matches('/');
        let name = target::shown(place);
        if mirrors.iter().any(|mirror| mirror.name == name) {
            continue;
        }
        match invocation.session.target_for_reader(place, NamedBy::Store, reader(args), may_be_own) {
            Ok(target) => mirrors.push(PublicationServer { name, target }),
            Err(error) => warning!("the mirror {name} is not used: {error:#}"),
        }
    }
}

fn edition_hint(error: &OpenEditionError) -> Option<&'static str> {
    let OpenEditionError::Trust { source, .. } = error else { return None };
    match source {
        TrustError::NoKey { .. } => Some(
            "give the address with its key (…#varve1-KEY), a key file with --publisher, or --trust-first-use",
        ),
        TrustError::Older { .. } | TrustError::Forked { .. } | TrustError::OtherPublication => {
            Some("ask the publisher; if it is meant to be so, --allow-older believes it")
        }
        TrustError::WithdrawnKey { .. } => Some(
            "the key may be stolen: ask the publisher for the newest address, by another way than this server",
        ),
        TrustError::Expired { .. } => Some("without --strict this is only a warning"),
        TrustError::Head(OpenHeadError::Html) => Some(
            "open the address in a browser: the network may want a login, or the publication is at another path",
        ),
        TrustError::Head(OpenHeadError::Gzip) => {
            Some("the server has to send these files as they are: tell its owner to turn compression off")
        }
        TrustError::Head(_) => Some("check the key in the address"),
    }
}

fn warn(edition: &AttachedEdition) {
    let serial = edition.head.fields().serial;
    if let Some(reason) = edition.cached_because.as_ref().filter(|reason| *reason != "offline") {
        warning!("edition {serial} comes from the cache, because no server has answered: {reason}");
    }
    if let Some(reason) = &edition.not_remembered {
        warning!("edition {serial} is not remembered: {reason}");
    }
    for warning in &edition.warnings {
        match warning {
            TrustWarning::Expired { expires } => warning!(
                "edition {serial} has expired ({}): a newer one may be kept from you",
                moment::show(*expires)
            ),
            TrustWarning::FromTheFuture { time } => warning!(
                "edition {serial} is of {}: a clock is wrong, this machine's or the publisher's",
                moment::show(*time)
            ),
            TrustWarning::Older { serial, seen } => {
                warning!("edition {serial} is older than edition {seen}, which was seen before");
            }
            TrustWarning::FirstUse { key } => {
                warning!("the key {key} is trusted from now on for this place");
            }
            TrustWarning::NewKey { key } => {
                warning!("the publisher has changed the key to {key}: use it in the address");
            }
        }
    }
}

fn chosen(args: &AttachArgs, edition: &AttachedEdition) -> Result<PublishedImage> {
    let images = &edition.head.fields().images;
    let (name, at) = match args.image.as_deref().map(|text| (text, text.rsplit_once('@'))) {
        None => (None, None),
        Some((name, None)) => (Some(name), None),
        Some((text, Some((name, time)))) => {
            let at = moment::parse_last_past(time);
            let at = at.ok_or_else(|| UsageError(format!("{text:?}: write NAME@2026-05-01 or NAME")))?;
            (Some(name).filter(|name| !name.is_empty()), Some(at))
        }
    };
    choose_image(images, name, at).cloned().map_err(|error| match error {
        ChooseImageError::Several { .. } => UsageError(error.to_string()).into(),
        error => error.into(),
    })
}

/// Returns the form of the image's stored blocks, with the given content key.
fn block_form(args: &AttachArgs, image: &PublishedImage) -> Result<BlockForm> {
    let Some(file) = &args.content_key else {
        return match image.cipher {
            ImageCipher::None => Ok(BlockForm::Plain),
            ImageCipher::Aes256Gcm => Err(ReadDiskError::NoKey)
                .with_hint(disk_hint)
                .with_context(|| format!("{} cannot be read", shown(image))),
        };
    };
    // A wrong file is refused even if it is not needed.
    let key = read_content_key(file)?;
    match image.cipher {
        ImageCipher::Aes256Gcm => Ok(key.form()),
        ImageCipher::None => {
            warning!("{} is not encrypted: the content key is not used", shown(image));
            Ok(BlockForm::Plain)
        }
    }
}

fn disk_hint(error: &ReadDiskError) -> Option<&'static str> {
    match error {
        ReadDiskError::NoKey => Some(
            "give the file that its publisher has made with `publish --encrypt FILE`: --content-key FILE",
        ),
        ReadDiskError::OtherKey => Some("ask the publisher for the content key of this image"),
        _ => None,
    }
}

fn shown(image: &PublishedImage) -> String {
    format!("{}@{}", show::name(image.name.as_bytes()), moment::show(image.time))
}

/// Returns the profile to prefetch. An edition without one is attached all the same.
fn profile(args: &AttachArgs, disk: &PublishedDisk) -> Result<Option<DiskProfile>> {
    let profile = match &args.profile {
        ProfileChoice::None => return Ok(None),
        ProfileChoice::File(file) => read_profile(file)?,
        ProfileChoice::Auto => {
            let Some(part) = &disk.image().profile else {
                warning!("nothing is prefetched: the edition has no profile of this disk");
                return Ok(None);
            };
            match published_profile(disk.source(), part) {
                Ok(Some(profile)) if profile.reads().is_empty() => return Ok(None),
                Ok(Some(profile)) => profile,
                Ok(None) => bail!("the profile of the edition is invalid: attach with --profile none"),
                Err(error) => {
                    warning!("nothing is prefetched: the profile of the edition: {error}");
                    return Ok(None);
                }
            }
        }
    };
    let (size, actual) = (profile.size(), disk.image().shape.size);
    if size != actual {
        warning!(
            "the profile is that of a disk of {}, and this one has {}",
            show::bytes(size),
            show::bytes(actual)
        );
    }
    Ok(Some(profile))
}

/// Prefetches on a thread of its own, while the disk is served.
fn prefetch_beside(profile: DiskProfile, disk: &Arc<PublishedDisk>, is_over: &Arc<AtomicBool>) -> Result<()> {
    let (disk, is_over) = (Arc::clone(disk), Arc::clone(is_over));
    let prefetch = move || match prefetch_profile(&disk, &profile, &is_over) {
        Ok(report) if report.was_wrong => {
            warning!("the profile does not fit: most reads were for other blocks");
        }
        Ok(report) => tracing::info!(report.blocks, report.requested, "the profile was prefetched"),
        Err(error) => warning!("the profile is not prefetched: {error}"),
    };
    std::thread::Builder::new().name("prefetch".into()).spawn(prefetch)?;
    Ok(())
}

fn nbd_server(
    args: &AttachArgs,
    endpoint: &Endpoint,
    image: &PublishedImage,
    export: &Arc<dyn ServedDisk>,
) -> Result<NbdServer> {
    let served = match kept_overlay(args, image, export)? {
        Some(overlay) => overlay,
        None if args.writable => Arc::new(Overlay::throw_away(Arc::clone(export), unnamed_file()?)?),
        None => Arc::clone(export),
    };
    let disks = OneDisk::new(vec![image.name.clone(), shown(image)], shown(image), served);
    NbdServer::start(endpoint, Arc::new(disks), nbd_settings())
        .with_context(|| format!("cannot listen at {endpoint}"))
}

/// Reads wait for servers, so a client may have many at once.
fn nbd_settings() -> NbdSettings {
    NbdSettings { workers_per_connection: 16, ..NbdSettings::default() }
}

/// Returns the disk with the writes that `--overlay` keeps.
fn kept_overlay(
    args: &AttachArgs,
    image: &PublishedImage,
    export: &Arc<dyn ServedDisk>,
) -> Result<Option<Arc<dyn ServedDisk>>> {
    let Some(path) = &args.overlay else { return Ok(None) };
    let overlay = Overlay::keep(Arc::clone(export), &image.root.name.to_string(), path)?;
    Ok(Some(Arc::new(overlay)))
}

/// Prepares a machine with the disk as its only drive.
fn machine(
    args: &AttachArgs,
    disk: &Arc<PublishedDisk>,
    export: Arc<dyn ServedDisk>,
    recorded: Option<Arc<RecordedDisk>>,
) -> Result<MachineStarter> {
    let described = described_machine(disk);
    let hardware = hardware(args, &described, disk);
    let (drive, writes) = match kept_overlay(args, disk.image(), &export)? {
        Some(overlay) => (overlay, DriveWrites::InDisk),
        None => (export, DriveWrites::Discarded),
    };
    let drive = BootDrive {
        export: disk.image().root.name.to_string(),
        bus: args.machine.bus.map_or_else(|| described_bus(&described), machine_run::bus_of),
        pci_address: None,
        sectors: sectors_of(None, Arc::clone(disk) as _),
        boot_index: 1,
        disk: drive,
        writes,
    };
    let starter = MachineStarter::new(hardware, vec![drive], args.overlay.clone(), recorded, nbd_settings())?;
    starter.warn_of_sectors();
    Ok(starter)
}

/// Returns what the edition says about the machine of its disk. Without it the disk is started all
/// the same.
fn described_machine(disk: &PublishedDisk) -> MachineDescription {
    let Some(part) = &disk.image().machine else { return MachineDescription::default() };
    let reason = match published_machine(disk.source(), part) {
        Ok(Ok(machine)) => return machine,
        Ok(Err(error)) => error.to_string(),
        Err(error) => error.to_string(),
    };
    warning!("the description of the machine is not used: {reason}");
    MachineDescription::default()
}

/// Returns the hardware that the edition describes, overridden by the arguments. The publisher
/// cannot take more than half of the memory of this machine.
fn hardware(args: &AttachArgs, described: &MachineDescription, disk: &Arc<PublishedDisk>) -> Hardware {
    let memory = described.memory.map(|memory| bounded_memory(memory, memory_of_this_machine()));
    if args.machine_memory.is_none() && memory < described.memory {
        warning!(
            "the machine had {} of memory, and gets half of that of this one; --machine-memory gives it more",
            show::bytes(described.memory.unwrap_or_default())
        );
    }
    let machine = Machine {
        memory: memory.unwrap_or(LEAST_MACHINE_MEMORY),
        cpu_count: described.cpu_count.unwrap_or(1),
        firmware: match described.firmware {
            None => Firmware::Unknown,
            Some(DescribedFirmware::Bios) => Firmware::Bios,
            Some(DescribedFirmware::Uefi) => Firmware::Uefi,
        },
        board: match described.board {
            None => String::new(),
            Some(DescribedBoard::Pc) => "pc".into(),
            Some(DescribedBoard::Q35) => "q35".into(),
        },
        ..Machine::default()
    };
    machine_run::hardware(&args.machine, args.machine_memory, Some(&machine), Arc::clone(disk) as _)
}

/// Returns the described memory, but at most half of that of this machine, or 2 GiB.
fn bounded_memory(described: u64, own: u64) -> u64 {
    described.min((own / 2).max(LEAST_MACHINE_MEMORY))
}

fn described_bus(described: &MachineDescription) -> Bus {
    match described.bus {
        None | Some(DescribedBus::Virtio) => Bus::Virtio,
        Some(DescribedBus::Ide) => Bus::Ide,
        Some(DescribedBus::Sata) => Bus::Sata,
        Some(DescribedBus::Scsi) => Bus::Scsi,
        Some(DescribedBus::Nvme) => Bus::Nvme,
    }
}

fn mount(place: &str, folder: &Path, disk: &Arc<PublishedDisk>) -> Result<Mounted> {
    let owner = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    let files = PublishedFolder::new(Arc::clone(disk), owner);
    let options = fuse::MountOptions { source: format!("varve:{place}"), allow_other: false };
    Ok(fuse::mount(Arc::new(files), folder, &options)?)
}

fn announce(
    invocation: &Invocation,
    edition: &AttachedEdition,
    image: &PublishedImage,
    server: Option<&NbdServer>,
    mounted: Option<&Mounted>,
    metrics: Option<String>,
) {
    let nbd = server.map(|server| nbd_address(server.endpoint(), ""));
    let mounted = mounted.map(|mounted| mounted.at().display().to_string());
    let serial = edition.head.fields().serial;
    if invocation.json {
        let fields = json!({
            "name": image.name,
            "time": moment::rfc3339(image.time),
            "size": image.shape.size,
            "serial": serial,
            "cipher": image.cipher.to_string(),
            "from_cache": edition.cached_because.is_some(),
            "nbd": nbd,
            "mounted": mounted,
            "metrics": metrics,
        });
        say::record("attached", fields);
        return;
    }
    say!("{} of edition {serial}: {}", shown(image), show::bytes(image.shape.size));
    nbd.iter().for_each(|address| say!("serving at {address}"));
    metrics.iter().for_each(|address| say!("metrics at {address}"));
    if let Some(at) = mounted {
        say!("mounted on {at}; unmount it with Ctrl-C or `fusermount3 -u {at}`");
    }
}

/// Completes the cache, and reports it.
fn fill(
    json: bool,
    bytes_per_second: Option<u64>,
    disk: &PublishedDisk,
    is_over: &Arc<AtomicBool>,
) -> Result<FillReport> {
    if disk.source().stored().is_none() {
        bail!("the cache cannot be completed, because it is not used");
    }
    let filled = fill_cache(disk, bytes_per_second, is_over).context("the cache is not complete")?;
    if json {
        let fields = json!({
            "blocks": filled.blocks, "bytes": filled.bytes, "blocks_there": filled.blocks_there,
            "complete": filled.is_complete(),
        });
        say::record("filled", fields);
    } else if filled.is_complete() {
        let (blocks, bytes) = (show::count(filled.blocks, "block"), show::bytes(filled.bytes));
        say!("the cache is complete: {blocks} of {bytes}; `attach --offline` needs no server");
    } else {
        let all = show::count(filled.blocks, "block");
        let reason = match is_over.load(Ordering::Relaxed) {
            true => "the program was told to end",
            false => "the others do not fit: --cache-size or the disk of the cache is too small",
        };
        say!("the cache has {} of {all}: {reason}", filled.blocks_there);
    }
    Ok(filled)
}

/// Does the same on a thread of its own, while the disk is served.
fn fill_beside(
    json: bool,
    bytes_per_second: Option<u64>,
    disk: &Arc<PublishedDisk>,
    is_over: &Arc<AtomicBool>,
) -> Result<()> {
    let (disk, is_over) = (Arc::clone(disk), Arc::clone(is_over));
    let fill = move || {
        if let Err(error) = fill(json, bytes_per_second, &disk, &is_over) {
            warning!("{error:#}");
        }
    };
    std::thread::Builder::new().name("fill".into()).spawn(fill)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_publisher_cannot_take_all_memory() {
        const GIB: u64 = 1 << 30;
        assert_eq!(bounded_memory(GIB, 64 * GIB), GIB);
        assert_eq!(bounded_memory(16 << 40, 64 * GIB), 32 * GIB);
        assert_eq!(bounded_memory(16 << 40, GIB), LEAST_MACHINE_MEMORY);
    }
}
