//! Objects as files of another machine, over SSH.
//!
//! One connection carries all calls at once. It is made at the first call, and again after it was
//! lost. Many pieces of a file are in flight, so that the latency does not limit the speed. A new
//! object arrives under a name that no store uses and no other writer has. It is made durable if
//! the server can (`fsync@openssh.com`). Then it gets its name by a hard link, which never replaces
//! (`hardlink@openssh.com`), or by a check and a rename.
//!
//! A server announces the abilities of its program, and not those of its disk. So a hard link is
//! tried before it is relied upon.

mod known_hosts;
mod login;

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::fmt;
use std::io;
use std::ops::Range;
use std::pin::pin;
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use futures_util::future::{Either, select};
use futures_util::stream::FuturesUnordered;
use futures_util::{StreamExt, TryStreamExt, stream};
use russh::client::Handle;
use russh_sftp::client::RawSftpSession;
use russh_sftp::client::error::Error as SftpError;
use russh_sftp::protocol::{FileAttributes, OpenFlags, Packet, StatusCode};
use tokio::sync::{Mutex, Semaphore, watch};
use varve_block::to_usize;
use varve_world::FileName;

use self::login::{HostKeyCheck, Login, of_ssh};
use crate::attempt_error::AttemptError;
use crate::edge::Runtime;
use crate::http::exchange::unfinished_name;
use crate::naming::location::HostLocation;
use crate::naming::object_names::is_folder_of_a_store;
use crate::naming::target_listing::TargetListing;
use crate::open_options::OpenOptions;
use crate::retry::retrying_target::{AttemptTarget, RetryPolicy};
use crate::target::{Capabilities, NonObjectKind, PutMode};
use crate::transfer::pace::Pace;

/// Every server accepts and sends this much in one message.
const PIECE_BYTES: u32 = 32 << 10;
/// The pieces of one file that are in flight.
const PIECES_AT_ONCE: usize = 64;
/// The calls that use the connection at once. The library keeps handles as text, so a handle with a
/// byte above 127 would be damaged. OpenSSH numbers handles from zero, and each call has one open.
const CALLS_AT_ONCE: usize = 32;
/// The folders that are listed at once. Each has one handle open.
const FOLDERS_AT_ONCE: usize = 8;

const FSYNC: &str = "fsync@openssh.com";
const HARDLINK: &str = "hardlink@openssh.com";
const POSIX_RENAME: &str = "posix-rename@openssh.com";
const STATVFS: &str = "statvfs@openssh.com";

/// A folder of another machine.
pub(crate) struct Sftp {
    runtime: Runtime,
    place: HostLocation,
    /// The folder as a path for the server, without a slash at its end.
    root: String,
    login: Login,
    patience: RetryPolicy,
    up: Option<Arc<Pace>>,
    down: Option<Arc<Pace>>,
    session: Mutex<Option<Arc<SftpSession>>>,
    calls: Semaphore,
    /// True if a hard link gives a file a new name, and never replaces one. Set by a trial.
    has_links: OnceLock<bool>,
}

struct SftpSession {
    /// Closed when it is dropped.
    ssh: Handle<HostKeyCheck>,
    sftp: RawSftpSession,
    extensions: BTreeSet<String>,
    /// Nothing is ever sent. The channel closes together with the connection.
    alive: watch::Receiver<()>,
}

impl Sftp {
    pub fn new(place: HostLocation, options: &OpenOptions) -> std::io::Result<Self> {
        let root = match place.path.as_str() {
            "~" => ".".into(),
            path => path.strip_prefix("~/").map_or_else(|| format!("/{path}"), str::to_owned),
        };
        Ok(Self {
            runtime: Runtime::new(options.stop.clone())?,
            root: root.trim_end_matches('/').to_owned(),
            login: Login::new(&place, options)?,
            place,
            patience: options.patience,
            up: options.up.clone(),
            down: options.down.clone(),
            session: Mutex::default(),
            calls: Semaphore::new(CALLS_AT_ONCE),
            has_links: OnceLock::new(),
        })
    }

    fn path(&self, name: &str) -> String {
        if name.is_empty() { format!("{}/", self.root) } else { format!("{}/{name}", self.root) }
    }

    /// Runs a call that moves this many bytes. The connection is given up after an error that it
    /// may have caused.
    fn call<T>(
        &self,
        bytes: u64,
        call: impl AsyncFnOnce(&SftpSession) -> Result<T, AttemptError>,
    ) -> Result<T, AttemptError> {
        let mut used = None;
        let outcome = self.runtime.wait(self.patience.time_for(bytes), async {
            let _permit = self.calls.acquire().await.map_err(|_| AttemptError::passing("closed"))?;
            let session = self.session().await?;
            used = Some(Arc::clone(&session));
            // The library does not wake up pending requests when the connection ends.
            let mut alive = session.alive.clone();
            let (called, ended) = (pin!(call(&session)), pin!(alive.changed()));
            match select(called, ended).await {
                Either::Left((outcome, _)) => outcome,
                Either::Right(_) => Err(AttemptError::passing("the connection was lost")),
            }
        });
        if let (Err(AttemptError::Passing(..)), Some(used)) = (&outcome, used) {
            self.give_up(&used);
        }
        outcome
    }

    async fn session(&self) -> Result<Arc<SftpSession>, AttemptError> {
        let mut current = self.session.lock().await;
        if let Some(session) = current.as_ref()
            && !session.ssh.is_closed()
        {
            return Ok(Arc::clone(session));
        }
        // Every wait for an answer has a time-out, also this one.
        let connected = tokio::time::timeout(self.patience.silence_max, self.connect()).await;
        let session = Arc::new(connected.map_err(|_| AttemptError::passing("the server does not answer"))??);
        *current = Some(Arc::clone(&session));
        Ok(session)
    }

    async fn connect(&self) -> Result<SftpSession, AttemptError> {
        let (sender, alive) = watch::channel(());
        let ssh = self.login.connect(sender).await?;
        let channel = ssh.channel_open_session().await.map_err(|error| of_ssh(&error))?;
        channel.request_subsystem(true, "sftp").await.map_err(|error| of_ssh(&error))?;
        let sftp = RawSftpSession::new(channel.into_stream());
        sftp.set_timeout(self.patience.silence_max.as_secs().max(1));
        let version = sftp.init().await.map_err(of_sftp)?;
        Ok(SftpSession { ssh, sftp, extensions: version.extensions.into_keys().collect(), alive })
    }

    fn give_up(&self, session: &Arc<SftpSession>) {
        // The holder of the lock is making a new session.
        if let Ok(mut current) = self.session.try_lock()
            && current.as_ref().is_some_and(|current| Arc::ptr_eq(current, session))
        {
            *current = None;
        }
    }

    async fn write(&self, session: &SftpSession, path: &str, contents: &Bytes) -> Result<(), AttemptError> {
        let flags = OpenFlags::CREATE | OpenFlags::EXCLUDE | OpenFlags::WRITE;
        let attributes = FileAttributes { permissions: Some(0o600), ..FileAttributes::empty() };
        let opened = match session.sftp.open(path, flags, attributes.clone()).await {
            Err(error) if is_absent(&error) => {
                self.make_folders(session, path).await?;
                session.sftp.open(path, flags, attributes).await
            }
            opened => opened,
        };
        let handle = opened.map_err(of_sftp)?.handle;
        let outcome = self.fill(session, &handle, contents).await;
        let closed = session.sftp.close(handle).await.map_err(of_sftp);
        outcome.and(closed.map(drop))
    }

    async fn fill(&self, session: &SftpSession, handle: &str, contents: &Bytes) -> Result<(), AttemptError> {
        let piece_bytes = PIECE_BYTES as usize;
        let starts = (0..contents.len()).step_by(piece_bytes);
        stream::iter(starts)
            .map(async |start| {
                let piece = contents.slice(start..contents.len().min(start + piece_bytes));
                if let Some(pace) = &self.up {
                    tokio::time::sleep(pace.take(piece.len())).await;
                }
                session.sftp.write(handle, start as u64, piece.to_vec()).await
            })
            .buffer_unordered(PIECES_AT_ONCE)
            .map_err(of_sftp)
            .try_for_each(async |_| Ok(()))
            .await?;
        if session.extensions.contains(FSYNC) {
            match session.sftp.fsync(handle).await {
                Err(error) if is_unsupported(&error) => {}
                synced => drop(synced.map_err(of_sftp)?),
            }
        }
        let arrived = session.sftp.fstat(handle).await.map_err(of_sftp)?.attrs.size;
        if let Some(arrived) = arrived.filter(|arrived| *arrived != contents.len() as u64) {
            return Err(AttemptError::passing(format!(
                "{arrived} bytes arrived instead of {}",
                contents.len()
            )));
        }
        Ok(())
    }

    /// Makes the folders of a path.
    async fn make_folders(&self, session: &SftpSession, path: &str) -> Result<(), AttemptError> {
        let slashes: Vec<_> = path.match_indices('/').map(|(at, _)| at).filter(|at| *at > 0).collect();
        for at in slashes {
            let folder = &path[..at];
            let attributes = FileAttributes { permissions: Some(0o700), ..FileAttributes::empty() };
            // An existing folder fails like any other error. Other problems show up when the file
            // is opened.
            match session.sftp.mkdir(folder, attributes).await {
                Ok(_) | Err(SftpError::Status(_)) => {}
                Err(error) => return Err(of_sftp(error)),
            }
        }
        Ok(())
    }

    async fn put_whole(
        &self,
        session: &SftpSession,
        name: &FileName,
        contents: &Bytes,
        mode: PutMode,
    ) -> Result<(), AttemptError> {
        let path = self.path(name.as_str());
        if mode == PutMode::Create && session.is_there(&path).await? {
            return Err(AttemptError::Exists);
        }
        let (folder, _) = path.rsplit_once('/').unwrap_or_default();
        let unfinished = format!("{folder}/{}", unfinished_name()?);
        let mut has_links = false;
        let outcome = match self.write(session, &unfinished, contents).await {
            Ok(()) if mode == PutMode::Create => match self.has_links(session, folder).await {
                Ok(found) => {
                    has_links = found;
                    session.create(&unfinished, &path, has_links).await
                }
                Err(trouble) => Err(trouble),
            },
            Ok(()) => session.replace(&unfinished, &path).await,
            Err(AttemptError::Refused(error)) => Err(session.cause(folder, contents.len(), error).await),
            Err(trouble) => Err(trouble),
        };
        // After a hard link the temporary name still exists; after a failure it may. It may stay:
        // it is invisible.
        if outcome.is_err() || has_links {
            drop(session.sftp.remove(&unfinished).await);
        }
        outcome
    }

    /// Returns true if files get their names by hard links. That is determined once, by trying it
    /// in `folder`.
    async fn has_links(&self, session: &SftpSession, folder: &str) -> Result<bool, AttemptError> {
        if let Some(known) = self.has_links.get() {
            return Ok(*known);
        }
        let has_links = session.extensions.contains(HARDLINK) && self.try_links(session, folder).await?;
        Ok(*self.has_links.get_or_init(|| has_links))
    }

    /// Tries a hard link with names that no store uses, and looks at the result: there are servers
    /// that refuse each link, because their disk has none, and servers that make none and say that
    /// they did.
    async fn try_links(&self, session: &SftpSession, folder: &str) -> Result<bool, AttemptError> {
        let [first, second, name] = [unfinished_name()?, unfinished_name()?, unfinished_name()?]
            .map(|own_name| format!("{folder}/{own_name}"));
        let outcome = async {
            self.write(session, &first, &Bytes::from_static(b"1")).await?;
            self.write(session, &second, &Bytes::from_static(b"22")).await?;
            let is_linked = session.link(&first, &name).await?;
            let is_linked_again = session.link(&second, &name).await?;
            Ok(is_linked && !is_linked_again && session.length(&name).await? == Some(1))
        };
        let outcome = outcome.await;
        for path in [first, second, name] {
            drop(session.sftp.remove(path).await);
        }
        outcome
    }

    /// Returns the folder of the target; if it does not exist, the nearest one above it.
    async fn nearest_folder(&self, session: &SftpSession) -> Result<&str, AttemptError> {
        let mut folder = self.root.as_str();
        while !folder.is_empty() && folder != "." && !session.is_folder(folder).await? {
            folder = folder.rsplit_once('/').map_or(".", |(above, _)| above);
        }
        Ok(folder)
    }

    async fn read(
        &self,
        session: &SftpSession,
        handle: &str,
        range: Range<u64>,
    ) -> Result<Bytes, AttemptError> {
        if let Some(length) = session.sftp.fstat(handle).await.map_err(of_sftp)?.attrs.size
            && length < range.end
        {
            return Err(AttemptError::Short);
        }
        let wanted = to_usize(range.end - range.start);
        let mut pieces = stream::iter(range.clone().step_by(PIECE_BYTES as usize))
            .map(|start| {
                self.read_piece(session, handle, start..range.end.min(start + u64::from(PIECE_BYTES)))
            })
            .buffered(PIECES_AT_ONCE);
        let mut contents = Vec::new();
        while let Some(piece) = pieces.next().await {
            contents.extend_from_slice(&piece?);
        }
        debug_assert_eq!(contents.len(), wanted);
        Ok(contents.into())
    }

    /// Reads a whole piece, even if it arrives in several parts.
    async fn read_piece(
        &self,
        session: &SftpSession,
        handle: &str,
        range: Range<u64>,
    ) -> Result<Vec<u8>, AttemptError> {
        let mut piece = Vec::new();
        let mut start = range.start;
        while start < range.end {
            let left = u32::try_from(range.end - start).unwrap_or(PIECE_BYTES);
            if let Some(pace) = &self.down {
                tokio::time::sleep(pace.take(left as usize)).await;
            }
            let data = match session.sftp.read(handle, start, left).await {
                Err(SftpError::Status(status)) if status.status_code == StatusCode::Eof => {
                    return Err(AttemptError::Short);
                }
                data => data.map_err(of_sftp)?.data,
            };
            if data.is_empty() || data.len() > left as usize {
                return Err(AttemptError::passing(format!(
                    "of {left} requested bytes, the server sends {}",
                    data.len()
                )));
            }
            start += data.len() as u64;
            piece.extend_from_slice(&data);
        }
        Ok(piece)
    }

    /// Lists everything below a folder. Lists several folders at once, as far as other calls do not
    /// need the connection.
    async fn list_folders(
        &self,
        session: &SftpSession,
        folder: &str,
        into: &mut TargetListing,
    ) -> Result<(), AttemptError> {
        let mut more = Vec::new();
        more.extend((1..FOLDERS_AT_ONCE).map_while(|_| self.calls.try_acquire().ok()));
        let mut left = vec![folder.to_owned()];
        let into = RefCell::new(into);
        let mut asked = FuturesUnordered::new();
        loop {
            while asked.len() <= more.len()
                && let Some(folder) = left.pop()
            {
                let into = &into;
                asked.push(async move {
                    let name = folder.clone();
                    let listed = self.list_folder(session, folder, into).await;
                    listed.map_err(|error| error.in_folder(&name))
                });
            }
            let Some(folders) = asked.next().await else { return Ok(()) };
            left.extend(folders?);
        }
    }

    /// Adds the objects of a folder, and returns its subfolders.
    async fn list_folder(
        &self,
        session: &SftpSession,
        folder: String,
        into: &RefCell<&mut TargetListing>,
    ) -> Result<Vec<String>, AttemptError> {
        let handle = match session.sftp.opendir(self.path(&folder)).await {
            Err(error) if is_absent(&error) => return Ok(Vec::new()),
            // OpenSSH reports only a general failure if the path is not a folder.
            Err(error) if is_failure(&error) && !session.is_folder(&self.path(&folder)).await? => {
                return Ok(Vec::new());
            }
            handle => handle.map_err(of_sftp)?.handle,
        };
        let outcome = take_members(session, &handle, &folder, into).await;
        let closed = session.sftp.close(handle).await.map_err(of_sftp);
        outcome.and_then(|folders| closed.map(|_| folders))
    }
}

/// Adds the objects of an open folder, and returns its subfolders.
async fn take_members(
    session: &SftpSession,
    handle: &str,
    folder: &str,
    into: &RefCell<&mut TargetListing>,
) -> Result<Vec<String>, AttemptError> {
    let mut folders = Vec::new();
    loop {
        let members = match session.sftp.readdir(handle).await {
            Err(SftpError::Status(status)) if status.status_code == StatusCode::Eof => return Ok(folders),
            members => members.map_err(of_sftp)?.files,
        };
        let mut into = into.borrow_mut();
        // Bounds the loop against a server that sends empty answers for ever.
        into.pass()?;
        for member in members {
            let name =
                if folder.is_empty() { member.filename } else { format!("{folder}/{}", member.filename) };
            match member.attrs.size {
                Some(bytes) if member.attrs.is_regular() => {
                    into.push_changed(&name, bytes, member.attrs.mtime.map(i64::from))?;
                }
                _ if member.attrs.is_dir() => {
                    into.push_other(&name, NonObjectKind::Folder)?;
                    folders.extend(is_folder_of_a_store(&name).then_some(name));
                }
                _ if member.attrs.is_symlink() => into.push_other(&name, NonObjectKind::Link)?,
                _ => into.pass()?,
            }
        }
    }
}

impl SftpSession {
    async fn is_there(&self, path: &str) -> Result<bool, AttemptError> {
        match self.sftp.lstat(path).await {
            Ok(_) => Ok(true),
            Err(error) if is_absent(&error) => Ok(false),
            Err(error) => Err(of_sftp(error)),
        }
    }

    async fn is_folder(&self, path: &str) -> Result<bool, AttemptError> {
        match self.sftp.stat(path.trim_end_matches('/')).await {
            Ok(found) => Ok(found.attrs.is_dir()),
            Err(error) if is_absent(&error) => Ok(false),
            Err(error) => Err(of_sftp(error)),
        }
    }

    /// Returns the length of a regular file; `None` if there is none.
    async fn length(&self, path: &str) -> Result<Option<u64>, AttemptError> {
        match self.sftp.lstat(path).await {
            Ok(found) => Ok(found.attrs.size.filter(|_| found.attrs.is_regular())),
            Err(error) if is_absent(&error) => Ok(None),
            Err(error) => Err(of_sftp(error)),
        }
    }

    /// Makes a hard link. Returns whether the server says that it did.
    async fn link(&self, from: &str, to: &str) -> Result<bool, AttemptError> {
        match self.sftp.hardlink(from, to).await {
            Ok(_) => Ok(true),
            Err(SftpError::Status(_)) => Ok(false),
            Err(error) => Err(of_sftp(error)),
        }
    }

    /// Names the cause of a refused upload of this many bytes, as far as the server tells it: the
    /// protocol has no status for a full disk.
    async fn cause(&self, folder: &str, byte_count: usize, refusal: io::Error) -> AttemptError {
        if self.extensions.contains(STATVFS)
            && let Ok(disk) = self.sftp.statvfs(folder).await
            && disk.blocks > 0
        {
            let free_bytes = disk.blocks_avail.saturating_mul(disk.fragment_size);
            // The part that was written is still there.
            if free_bytes < byte_count as u64 {
                let text = format!(
                    "No space left on the server's disk, where {free_bytes} bytes are free: {refusal}"
                );
                return AttemptError::Refused(io::Error::new(io::ErrorKind::StorageFull, text));
            }
            if disk.inodes > 0 && disk.inodes_avail == 0 {
                let text = format!("The server's disk can hold no more files: {refusal}");
                return AttemptError::Refused(io::Error::new(io::ErrorKind::StorageFull, text));
            }
        }
        AttemptError::Refused(refusal)
    }

    async fn create(&self, from: &str, to: &str, has_links: bool) -> Result<(), AttemptError> {
        let outcome = if has_links {
            self.sftp.hardlink(from, to).await
        } else if self.is_there(to).await? {
            return Err(AttemptError::Exists);
        } else {
            self.sftp.rename(from, to).await
        };
        match outcome {
            Ok(_) => Ok(()),
            // The server reports only a general failure.
            Err(error) if is_failure(&error) && self.is_there(to).await? => Err(AttemptError::Exists),
            Err(error) => Err(of_sftp(error)),
        }
    }

    async fn replace(&self, from: &str, to: &str) -> Result<(), AttemptError> {
        if self.extensions.contains(POSIX_RENAME) {
            let word = |text: &str| {
                [&u32::try_from(text.len()).unwrap_or(0).to_be_bytes(), text.as_bytes()].concat()
            };
            let asked = self.sftp.extended(POSIX_RENAME, [word(from), word(to)].concat());
            match asked.await.map_err(of_sftp)? {
                Packet::Status(status) if status.status_code == StatusCode::Ok => return Ok(()),
                // It was announced all the same.
                Packet::Status(status) if status.status_code == StatusCode::OpUnsupported => {}
                Packet::Status(status) => return Err(of_sftp(status.into())),
                _ => return Err(of_sftp(SftpError::UnexpectedPacket)),
            }
        }
        // Without this extension, a rename does not replace. Neither file exists for a moment.
        match self.sftp.remove(to).await {
            Err(error) if !is_absent(&error) => return Err(of_sftp(error)),
            _ => {}
        }
        self.sftp.rename(from, to).await.map(drop).map_err(of_sftp)
    }
}

fn is_absent(error: &SftpError) -> bool {
    matches!(error, SftpError::Status(status) if status.status_code == StatusCode::NoSuchFile)
}

fn is_unsupported(error: &SftpError) -> bool {
    matches!(error, SftpError::Status(status) if status.status_code == StatusCode::OpUnsupported)
}

fn is_failure(error: &SftpError) -> bool {
    matches!(error, SftpError::Status(status) if status.status_code == StatusCode::Failure)
}

/// Converts an error of the server or the library.
fn of_sftp(error: SftpError) -> AttemptError {
    let (code, text) = match &error {
        // Many servers repeat the name of the status as its text.
        SftpError::Status(status) if status.error_message == status.status_code.to_string() => {
            (Some(status.status_code), status.error_message.clone())
        }
        SftpError::Status(status) => (Some(status.status_code), error.to_string()),
        _ => (None, error.to_string()),
    };
    let text = io::Error::other(text);
    match code {
        Some(StatusCode::NoSuchFile) => AttemptError::NotFound,
        Some(StatusCode::PermissionDenied | StatusCode::OpUnsupported | StatusCode::Failure) => {
            AttemptError::Refused(text)
        }
        _ => AttemptError::Passing(text, None),
    }
}

impl fmt::Display for Sftp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "sftp://{}", self.place)
    }
}

impl AttemptTarget for Sftp {
    type Upload = ();

    fn capabilities(&self) -> Result<Capabilities, AttemptError> {
        let create_is_exclusive = self.call(0, async |session| {
            let folder = self.nearest_folder(session).await?;
            self.has_links(session, folder).await
        });
        match create_is_exclusive {
            // A reader without write access creates nothing.
            Err(AttemptError::Refused(_)) => Ok(Capabilities { create_is_exclusive: false, ranges: true }),
            other => Ok(Capabilities { create_is_exclusive: other?, ranges: true }),
        }
    }

    fn put(&self, name: &FileName, contents: &Bytes, mode: PutMode, (): &mut ()) -> Result<(), AttemptError> {
        self.call(contents.len() as u64, async |session| self.put_whole(session, name, contents, mode).await)
    }

    fn get(&self, name: &FileName, range: Range<u64>) -> Result<Bytes, AttemptError> {
        self.call(range.end - range.start, async |session| {
            let flags = OpenFlags::READ;
            let opened = session.sftp.open(self.path(name.as_str()), flags, FileAttributes::empty()).await;
            let handle = opened.map_err(of_sftp)?.handle;
            let outcome = self.read(session, &handle, range).await;
            let closed = session.sftp.close(handle).await.map_err(of_sftp);
            outcome.and_then(|contents| closed.map(|_| contents))
        })
    }

    fn length(&self, name: &FileName) -> Result<u64, AttemptError> {
        self.call(0, async |session| {
            let found = session.sftp.stat(self.path(name.as_str())).await.map_err(of_sftp)?;
            found.attrs.size.ok_or_else(|| AttemptError::refused("the server reports no length"))
        })
    }

    fn list(&self, folder: &str, into: &mut TargetListing) -> Result<(), AttemptError> {
        // At most two hours. Each answer has its own time-out.
        self.call(32 << 20, async |session| self.list_folders(session, folder, into).await)
    }

    fn remove(&self, name: &FileName) -> Result<(), AttemptError> {
        self.call(0, async |session| {
            session.sftp.remove(self.path(name.as_str())).await.map(drop).map_err(of_sftp)
        })
    }

    fn remove_leftover(&self, path: &str) -> Result<(), AttemptError> {
        self.call(0, async |session| session.sftp.remove(self.path(path)).await.map(drop).map_err(of_sftp))
    }
}
