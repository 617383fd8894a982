//! Opens the edition, and the disk in it that is chosen.

use std::fs::{self, DirBuilder};
use std::os::unix::fs::DirBuilderExt;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use varve_attach::{
    AccessLog, AttachedEdition, BlockSupply, CacheBudget, ChooseImageError, EditionOpener, FetchSettings,
    OpenCacheError, OpenEditionError, PublicationServer, PublishedDisk, ReadDiskError, StoredCache,
    TrustError, TrustRules, TrustWarning, choose_image,
};
use varve_edition::{BlockForm, EditionKey, ImageCipher, OpenHeadError, PublishedImage};
use varve_remote::is_on_own_network;
use varve_session::target::{self, ReaderPatience};
use varve_session::{NamedBy, UsageError, WithHint};
use varve_world::{Clock, RealClock, RealStorage, Storage};

use super::access_file::AccessFile;
use super::newer_edition::{EditionSerials, NewerEditionWatch};
use super::{figures, shown};
use crate::arguments::AttachArgs;
use crate::command::keeping::content_key::{KEY_FILE_BYTES_MAX, read_content_key};
use crate::command::serving::serve::memory_within;
use crate::invocation::Invocation;
use crate::moment;

/// The last blocks on their way are kept if they come within this time.
const LAST_FETCHES: Duration = Duration::from_millis(500);
const MEMORY_BOUNDS: [u64; 2] = [64 << 20, 1 << 30];

/// The chosen disk of an edition, ready to be read.
pub(super) struct AttachedDisk {
    /// The address of the publication, as it is shown.
    pub(super) place: String,
    pub(super) edition: AttachedEdition,
    pub(super) disk: Arc<PublishedDisk>,
    pub(super) serials: Arc<EditionSerials>,
    log: Option<Arc<AccessFile>>,
}

impl AttachedDisk {
    /// Opens the disk that the arguments choose. Returns the watch for newer editions, too, which
    /// is not started yet.
    pub(super) fn open(
        invocation: &Invocation,
        args: &AttachArgs,
        is_over: &Arc<AtomicBool>,
    ) -> Result<(Self, NewerEditionWatch)> {
        let folder = cache_folder(invocation, args)?;
        let place = target::shown(&args.address.place);
        let mut servers = named_servers(invocation, args)?;
        let rules = TrustRules {
            keys: keys(args)?,
            trusts_first_use: args.trust_first_use,
            allows_older: args.allow_older,
            is_strict: args.strict,
        };
        let opener = EditionOpener {
            place: &place,
            mirrors: &servers,
            rules: &rules,
            folder: folder.as_deref(),
            patience: args.patience.0,
            now: RealClock.now(),
        };
        let edition = opener.open().with_hint(edition_hint).context("the publication is not attached")?;
        warn(&edition);
        let image = chosen(args, &edition)?;
        let form = block_form(args, &image)?;
        add_servers(invocation, args, &edition, &mut servers);
        let log = args.log.as_deref().map(AccessFile::open).transpose()?.map(Arc::new);
        let serials = Arc::new(EditionSerials::new(edition.head.fields().serial));
        let watch = NewerEditionWatch {
            place: place.clone(),
            servers: servers.clone(),
            rules,
            patience: args.patience.0,
            folder: folder.clone(),
            image: image.clone(),
            log: log.clone(),
            serials: Arc::clone(&serials),
        };
        let settings = FetchSettings {
            patience: args.patience.0,
            is_over: Arc::clone(is_over),
            ..FetchSettings::default()
        };
        let stored = folder.and_then(|folder| open_cache(invocation, folder));
        let memory = memory_within(args.memory, MEMORY_BOUNDS);
        let access_log = log.clone().map(|log| log as Arc<dyn AccessLog>);
        let source = Arc::new(BlockSupply::open(servers, settings, form, stored, memory, access_log)?);
        let disk = PublishedDisk::open(image.clone(), source).with_hint(disk_hint);
        let disk = Arc::new(disk.with_context(|| format!("{} cannot be read", shown(&image)))?);
        Ok((Self { place, edition, disk, serials, log }, watch))
    }

    /// Keeps the last blocks on their way, and prints the figures.
    pub(super) fn finish(&self, invocation: &Invocation) {
        if let Some(log) = &self.log {
            log.flush();
        }
        let source = self.disk.source();
        source.wait_idle(LAST_FETCHES);
        figures::tell(invocation, &source.figures());
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
