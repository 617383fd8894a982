//! Finds the newest believable head: at the place itself, at its mirrors, or in the cache folder.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use varve_edition::{
    EditionHead, HEAD_BYTES_MAX, HEAD_NAME, ObjectName, PublishedImage, TrustRecord, TrustRecordError,
};
use varve_remote::{TargetError, WholeObject};
use varve_world::{FileName, LockError, Storage, Timestamp};

use crate::edge::{sleep, within};
use crate::fetcher::PublicationServer;
use crate::trust::{BelievedHead, TrustError, TrustRules, TrustWarning, believe_head};

const RECORD: &str = "trust";
const RECORD_LOCK: &str = "trust.lock";
const RECORD_BYTES_MAX: u64 = 16 << 20;
/// Another process changes the record for a moment only.
const LOCK_TRIES: u32 = 100;
const LOCK_PAUSE: Duration = Duration::from_millis(50);
/// A cached head: the server's mark for it in the first line, and then the head.
const CACHED_HEAD_BYTES_MAX: u64 = HEAD_BYTES_MAX as u64 + 4096;

/// The reason why no edition was opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenEditionError {
    #[error("{place}")]
    Target { place: String, source: TargetError },
    #[error("{place}: there is no publication: no object is named head")]
    NoHead { place: String },
    #[error("{place}")]
    Trust { place: String, source: TrustError },
    #[error("{place} was never attached with this cache, and nothing is fetched offline")]
    NotCached { place: String },
    #[error("the file {RECORD} in the cache folder")]
    Record(#[source] TrustRecordError),
    #[error("the file {RECORD} in the cache folder cannot be used")]
    Storage(#[source] io::Error),
}

/// A believed edition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AttachedEdition {
    pub head: EditionHead,
    pub warnings: Vec<TrustWarning>,
    /// The reason why the head comes from the cache; `None` if a server has sent it now.
    pub cached_because: Option<String>,
    /// The reason why the memory in the cache folder was not written, if there is a folder: an
    /// older edition may be believed the next time.
    pub not_remembered: Option<String>,
}

/// Opens editions, with a memory in the cache folder if there is one.
pub struct EditionOpener<'a> {
    /// The place in the address. The memory is kept for it.
    pub place: &'a str,
    /// The place itself, and then other places with the same objects.
    pub mirrors: &'a [PublicationServer],
    pub rules: &'a TrustRules,
    pub folder: Option<&'a dyn Storage>,
    /// The time that each server has for its head; `None`: as long as its connection allows.
    pub patience: Option<Duration>,
    pub now: Timestamp,
}

impl EditionOpener<'_> {
    /// Asks the mirrors in their order, until one has a head that is believed. If no server
    /// answers, or if there are no mirrors, the cached head is used.
    ///
    /// # Errors
    /// [`OpenEditionError`]. A head that is not believed is never replaced by the cached one.
    pub fn open(&self) -> Result<AttachedEdition, OpenEditionError> {
        let record = self.read_record()?;
        let cached = self.read_cached_head();
        let first_error = match self.ask(&record, cached.as_ref()) {
            Ok(answer) => {
                let mark = if answer.is_from_place { &answer.mark } else { "" };
                // A full disk keeps nobody from reading.
                let remembered = self.remember(answer.record, &answer.bytes, mark);
                let not_remembered = remembered.err().map(|error| varve_block::with_causes(&error));
                return Ok(AttachedEdition { not_remembered, ..edition(answer.believed, None) });
            }
            Err(error) => error,
        };
        let reason = match &first_error {
            None => "offline".to_owned(),
            Some(error @ OpenEditionError::Target { .. }) => varve_block::with_causes(error),
            Some(_) => return Err(first_error.unwrap_or(self.not_cached())),
        };
        let Some(cached) = cached else { return Err(first_error.unwrap_or(self.not_cached())) };
        let mut new = record;
        let believed = believe_head(&cached.bytes, self.place, self.rules, &mut new, self.now);
        let believed =
            believed.map_err(|source| OpenEditionError::Trust { place: self.place.to_owned(), source })?;
        Ok(edition(believed, Some(reason)))
    }

    /// Asks the mirrors for their head as [`open`](Self::open) does, and remembers nothing: without
    /// a server, the edition of the last `open` is still used.
    ///
    /// # Errors
    /// [`OpenEditionError`], also when no server answers.
    pub fn look(&self) -> Result<AttachedEdition, OpenEditionError> {
        let record = self.read_record()?;
        match self.ask(&record, self.read_cached_head().as_ref()) {
            Ok(answer) => Ok(edition(answer.believed, None)),
            Err(error) => Err(error.unwrap_or(self.not_cached())),
        }
    }

    /// Asks the mirrors in their order, until one has a head that is believed. Otherwise returns
    /// the first error, if there is any mirror.
    fn ask(
        &self,
        record: &TrustRecord,
        cached: Option<&CachedHead>,
    ) -> Result<BelievedAnswer, Option<OpenEditionError>> {
        let mut first_error: Option<OpenEditionError> = None;
        let mut keep = |error| first_error = first_error.take().or(Some(error));
        for mirror in self.mirrors {
            let place = || mirror.name.clone();
            let is_from_place = mirror.name == self.place;
            // A mark means something only to the server that gave it.
            let known = cached.filter(|_| is_from_place);
            let mark = known.map(|cached| cached.mark.as_str()).filter(|mark| !mark.is_empty());
            let (bytes, mark) = match self.get_head(mirror, mark) {
                Ok(Some(head)) => (head.bytes.to_vec(), head.mark.unwrap_or_default()),
                Ok(None) => match cached {
                    Some(cached) => (cached.bytes.clone(), cached.mark.clone()),
                    None => continue,
                },
                Err(TargetError::NotFound { .. }) => {
                    keep(OpenEditionError::NoHead { place: place() });
                    continue;
                }
                Err(source) => {
                    keep(OpenEditionError::Target { place: place(), source });
                    continue;
                }
            };
            let mut new = record.clone();
            match believe_head(&bytes, self.place, self.rules, &mut new, self.now) {
                Ok(believed) => {
                    return Ok(BelievedAnswer { believed, record: new, bytes, mark, is_from_place });
                }
                Err(source) => keep(OpenEditionError::Trust { place: place(), source }),
            }
        }
        Err(first_error)
    }

    /// Asks a server for its head. A server that sends it slowly does not keep others from being
    /// asked, whatever the time-outs of its target.
    fn get_head(
        &self,
        mirror: &PublicationServer,
        mark: Option<&str>,
    ) -> Result<Option<WholeObject>, TargetError> {
        let (target, mark) = (Arc::clone(&mirror.target), mark.map(str::to_owned));
        let get = move || target.get_whole(&file(HEAD_NAME), HEAD_BYTES_MAX as u64, mark.as_deref());
        let failed = |source| TargetError::Failed { what: HEAD_NAME.to_owned(), source };
        match within("head", self.patience, get).map_err(failed)? {
            Some(answer) => answer,
            None => {
                let seconds = self.patience.unwrap_or_default().as_secs_f32();
                let text = format!("it has not come within {seconds} s");
                Err(failed(io::Error::new(io::ErrorKind::TimedOut, text)))
            }
        }
    }

    fn not_cached(&self) -> OpenEditionError {
        OpenEditionError::NotCached { place: self.place.to_owned() }
    }

    fn read_record(&self) -> Result<TrustRecord, OpenEditionError> {
        let Some(folder) = self.folder else { return Ok(TrustRecord::default()) };
        match folder.read_whole(&file(RECORD), RECORD_BYTES_MAX) {
            Ok(bytes) => {
                TrustRecord::parse(&String::from_utf8_lossy(&bytes)).map_err(OpenEditionError::Record)
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(TrustRecord::default()),
            Err(error) => Err(OpenEditionError::Storage(error)),
        }
    }

    /// Adds to the record what another process may have added to as well, and keeps the head for
    /// times without a server.
    fn remember(&self, new: TrustRecord, head: &[u8], mark: &str) -> Result<(), OpenEditionError> {
        let Some(folder) = self.folder else { return Ok(()) };
        let _lock = lock(folder).map_err(OpenEditionError::Storage)?;
        let mut record = self.read_record()?;
        let before = record.clone();
        record.merge(new);
        if record != before {
            folder.replace(&file(RECORD), record.to_text().as_bytes()).map_err(OpenEditionError::Storage)?;
        }
        let contents = [mark.as_bytes(), b"\n", head].concat();
        let name = self.cached_head();
        if folder.read_whole(&name, CACHED_HEAD_BYTES_MAX).ok().as_deref() != Some(&contents[..])
            && let Err(error) = folder.replace(&name, &contents)
        {
            tracing::warn!(%error, "the head of the edition is not kept: it is needed to work offline");
        }
        Ok(())
    }

    /// The file of the head of this place.
    fn cached_head(&self) -> FileName {
        file(&format!("heads/{}", ObjectName::of(self.place.as_bytes())))
    }

    fn read_cached_head(&self) -> Option<CachedHead> {
        let contents = self.folder?.read_whole(&self.cached_head(), CACHED_HEAD_BYTES_MAX).ok()?;
        let end = contents.iter().position(|byte| *byte == b'\n')?;
        let (mark, head) = contents.split_at_checked(end)?;
        let mark = std::str::from_utf8(mark).ok()?.to_owned();
        Some(CachedHead { mark, bytes: head.get(1..)?.to_vec() })
    }
}

/// A believed head that a server has sent.
struct BelievedAnswer {
    believed: BelievedHead,
    /// The memory of believed heads with this one.
    record: TrustRecord,
    bytes: Vec<u8>,
    mark: String,
    /// True if the place itself has sent it, and no mirror.
    is_from_place: bool,
}

struct CachedHead {
    mark: String,
    bytes: Vec<u8>,
}

fn edition(believed: BelievedHead, cached_because: Option<String>) -> AttachedEdition {
    let BelievedHead { head, warnings } = believed;
    AttachedEdition { head, warnings, cached_because, not_remembered: None }
}

fn file(name: &str) -> FileName {
    FileName::new(name).expect("the names of the cache folder are valid")
}

fn lock(folder: &dyn Storage) -> io::Result<Box<dyn varve_world::FileLock>> {
    for _ in 0..LOCK_TRIES {
        match folder.lock(&file(RECORD_LOCK), "") {
            Ok(lock) => return Ok(lock),
            Err(LockError::Held { .. }) => sleep(LOCK_PAUSE),
            Err(LockError::Storage { source, .. }) => return Err(source),
        }
    }
    Err(io::Error::new(io::ErrorKind::TimedOut, "another process keeps it locked"))
}

/// The reason why no image was chosen.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ChooseImageError {
    #[error("the edition has no image")]
    Empty,
    #[error("the edition has several images: name one of them: {}", names.join(", "))]
    Several { names: Vec<String> },
    #[error("the edition has no image {name:?}: it has {}", names.join(", "))]
    Unknown { name: String, names: Vec<String> },
    #[error("the oldest image {name:?} is younger than that")]
    TooOld { name: String },
}

/// Chooses the newest image of a name that is not younger than `at`. Without a name, there must be
/// only one.
///
/// # Errors
/// [`ChooseImageError`].
pub fn choose_image<'a>(
    images: &'a [PublishedImage],
    name: Option<&str>,
    at: Option<Timestamp>,
) -> Result<&'a PublishedImage, ChooseImageError> {
    let mut names: Vec<String> = images.iter().map(|image| image.name.clone()).collect();
    names.sort();
    names.dedup();
    let name = match (name, &names[..]) {
        (Some(name), _) => name.to_owned(),
        (None, []) => return Err(ChooseImageError::Empty),
        (None, [only]) => only.clone(),
        (None, _) => return Err(ChooseImageError::Several { names }),
    };
    let named = images.iter().filter(|image| image.name == name);
    let newest = named.clone().filter(|image| at.is_none_or(|at| image.time <= at));
    match newest.max_by_key(|image| image.time) {
        Some(image) => Ok(image),
        None if named.count() > 0 => Err(ChooseImageError::TooOld { name }),
        None => Err(ChooseImageError::Unknown { name, names }),
    }
}
