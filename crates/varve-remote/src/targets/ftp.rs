//! Objects as files of an FTP server, in clear text or over TLS.
//!
//! Each call needs its own control connection; free ones are kept for later calls. A data
//! connection ends in the same way after a complete file and after a lost connection, so lengths
//! are queried and compared. FTP cannot create exclusively. A new object arrives under a name that
//! no store uses and no other writer has. It is renamed after a check that its name is free.

mod call_watch;
mod ftp_entries;

use std::fmt;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use suppaftp::types::{FileType, Mode};
use suppaftp::{FtpError, RustlsConnector, RustlsFtpStream, Status};
use varve_block::to_usize;
use varve_world::{FileName, StopSignal};

use self::call_watch::{CallWatch, Sockets};
use self::ftp_entries::{FtpEntry, of_list, of_mlsd};
use crate::attempt_error::{AttemptError, chain};
use crate::http::exchange::unfinished_name;
use crate::naming::location::HostLocation;
use crate::naming::object_names::is_folder_of_a_store;
use crate::naming::password::Password;
use crate::naming::target_listing::TargetListing;
use crate::open_options::OpenOptions;
use crate::retry::retrying_target::{AttemptTarget, RetryPolicy};
use crate::target::{Capabilities, NonObjectKind, PutMode};
use crate::transfer::pace::Pace;
use crate::{edge, tls};

/// The bytes that are sent or received between two checks of the pace.
const PIECE_BYTES: usize = 64 << 10;
/// The connections that are kept for later calls. Servers allow few from one address.
const FREE_COUNT_MAX: usize = 4;
/// The longest line of a listing.
const LINE_BYTES_MAX: u64 = 8 << 10;

/// A folder of an FTP server.
pub(crate) struct Ftp {
    place: HostLocation,
    tls: Option<Arc<rustls::ClientConfig>>,
    user: String,
    password: Option<Password>,
    patience: RetryPolicy,
    /// Returns true if the caller no longer waits for answers.
    stop: StopSignal,
    up: Option<Arc<Pace>>,
    down: Option<Arc<Pace>>,
    free: Mutex<Vec<FtpConnection>>,
}

/// A control connection after login.
struct FtpConnection {
    stream: RustlsFtpStream,
    /// Those of the control connection and of the transfer. The latter is let go before the
    /// transfer is finished: its end is that no handle of it is left.
    sockets: Sockets,
    /// The folder, as an absolute path on the server, without a slash at its end.
    root: String,
    /// True if the server supports machine-readable listings.
    has_mlsd: bool,
    /// True after an aborted transfer: the server may have sent a reply that was not read.
    is_doubtful: bool,
}

impl Ftp {
    pub fn new(place: HostLocation, is_encrypted: bool, options: &OpenOptions) -> io::Result<Self> {
        let tls = if is_encrypted {
            Some(Arc::new(tls::client_config(options.authorities.as_deref())?))
        } else {
            None
        };
        Ok(Self {
            tls,
            user: place.user.clone().unwrap_or_else(|| "anonymous".into()),
            password: place.password.clone().or_else(|| options.password.clone()),
            place,
            patience: options.patience,
            stop: options.stop.clone(),
            up: options.up.clone(),
            down: options.down.clone(),
            free: Mutex::default(),
        })
    }

    /// Runs a call that moves this many bytes on a connection. The connection is closed after an
    /// error that it may have caused.
    fn call<T>(
        &self,
        bytes: u64,
        call: impl FnOnce(&mut FtpConnection, &CallWatch) -> Result<T, AttemptError>,
    ) -> Result<T, AttemptError> {
        let mut connection = self.connection()?;
        let watch = self.watch(bytes, &connection.sockets)?;
        let outcome = call(&mut connection, &watch);
        let ended_by = watch.end();
        if ended_by.is_none() && !matches!(outcome, Err(AttemptError::Passing(..))) {
            let mut free = self.free.lock();
            if free.len() < FREE_COUNT_MAX {
                free.push(connection);
            }
        }
        match (outcome, ended_by) {
            (Err(AttemptError::Passing(..)), Some(reason)) => Err(reason),
            (outcome, _) => outcome,
        }
    }

    fn watch(&self, bytes: u64, sockets: &Sockets) -> Result<CallWatch, AttemptError> {
        CallWatch::begin(self.patience, bytes, self.stop.clone(), Arc::clone(sockets))
            .map_err(AttemptError::of_io)
    }

    fn connection(&self) -> Result<FtpConnection, AttemptError> {
        loop {
            let Some(mut connection) = self.free.lock().pop() else { return self.connect() };
            if !connection.is_doubtful {
                return Ok(connection);
            }
            connection.is_doubtful = false;
            let watch = self.watch(0, &connection.sockets)?;
            let is_good = connection.stream.noop().is_ok();
            if watch.end().is_none() && is_good {
                return Ok(connection);
            }
        }
    }

    fn connect(&self) -> Result<FtpConnection, AttemptError> {
        let host = self.place.host.trim_matches(['[', ']']);
        let addresses = (host, self.place.port.unwrap_or(21)).to_socket_addrs();
        let mut outcome = Err(AttemptError::refused(format!("{host} has no address")));
        for address in addresses.map_err(|error| AttemptError::Passing(error, None))? {
            let sockets = Sockets::default();
            let watch = self.watch(0, &sockets)?;
            outcome = self.connect_to(host, address, sockets);
            if let Some(reason) = watch.end() {
                outcome = Err(reason);
            }
            if outcome.is_ok() {
                break;
            }
        }
        outcome
    }

    fn connect_to(
        &self,
        host: &str,
        address: SocketAddr,
        sockets: Sockets,
    ) -> Result<FtpConnection, AttemptError> {
        let silence_max = self.patience.silence_max;
        let dialled = Arc::clone(&sockets);
        let dial = move |address: SocketAddr| {
            let socket = TcpStream::connect_timeout(&address, silence_max)?;
            let mut sockets = dialled.lock();
            // The first one is the control connection. Of the others, only the last is in use.
            sockets.truncate(1);
            sockets.push(socket.try_clone()?);
            socket.set_read_timeout(Some(silence_max))?;
            socket.set_write_timeout(Some(silence_max))?;
            socket.set_nodelay(true)?;
            drop(sockets);
            Ok::<_, io::Error>(socket)
        };
        let socket = dial(address).map_err(AttemptError::of_io)?;
        let mut stream = RustlsFtpStream::connect_with_stream(socket).map_err(of_ftp)?;
        // Data connections go to the address of the control connection. The address in the server's
        // reply is ignored.
        stream = stream.passive_stream_builder(move |named| {
            dial(SocketAddr::new(address.ip(), named.port())).map_err(FtpError::ConnectionError)
        });
        if address.is_ipv6() {
            stream.set_mode(Mode::ExtendedPassive);
        }
        if let Some(config) = &self.tls {
            let connector = RustlsConnector::from(Arc::clone(config));
            stream = stream.into_secure(connector, host).map_err(of_login)?;
        }
        let password = self.password.as_ref().map_or("anonymous@", Password::reveal);
        stream.login(self.user.as_str(), password).map_err(of_login)?;
        stream.transfer_type(FileType::Binary).map_err(of_ftp)?;
        let has_mlsd = stream.feat().is_ok_and(|features| features.contains_key("MLST"));
        let root = if self.place.path.starts_with('/') {
            self.place.path.clone()
        } else {
            let start = stream.pwd().map_err(of_ftp)?;
            format!("{}/{}", start.trim_end_matches('/'), self.place.path)
        };
        let root = root.trim_end_matches('/').to_owned();
        Ok(FtpConnection { stream, sockets, root, has_mlsd, is_doubtful: false })
    }

    fn put_whole(
        &self,
        connection: &mut FtpConnection,
        watch: &CallWatch,
        name: &FileName,
        contents: &Bytes,
        mode: PutMode,
    ) -> Result<(), AttemptError> {
        let path = connection.path(name.as_str());
        if mode == PutMode::Create && connection.is_there(&path)? {
            return Err(AttemptError::Exists);
        }
        let (folder, _) = path.rsplit_once('/').unwrap_or_default();
        let unfinished = format!("{folder}/{}", unfinished_name()?);
        let outcome = self.upload(connection, watch, &unfinished, contents).and_then(|()| {
            // Checks again, because the upload may have taken a long time.
            if mode == PutMode::Create && connection.is_there(&path)? {
                return Err(AttemptError::Exists);
            }
            connection.rename(&unfinished, &path, mode)
        });
        if matches!(outcome, Err(AttemptError::Exists | AttemptError::Refused(_))) {
            // The file may stay: it is invisible.
            drop(connection.stream.rm(&unfinished));
        }
        outcome
    }

    fn upload(
        &self,
        connection: &mut FtpConnection,
        watch: &CallWatch,
        path: &str,
        contents: &Bytes,
    ) -> Result<(), AttemptError> {
        let opened = match connection.stream.put_with_stream(path) {
            Err(FtpError::UnexpectedResponse(response)) if is_turned_away(response.status) => {
                connection.make_folders(path)?;
                connection.stream.put_with_stream(path)
            }
            opened => opened,
        };
        let mut data = opened.map_err(of_ftp)?;
        let mut outcome = Ok(());
        for piece in contents.chunks(PIECE_BYTES) {
            if let Some(pace) = &self.up {
                wait(pace.take(piece.len()), watch);
            }
            outcome = data.write_all(piece);
            if outcome.is_err() {
                break;
            }
        }
        let outcome = outcome.and_then(|()| data.flush());
        connection.sockets.lock().truncate(1);
        let finished = data.finish().map_err(of_ftp);
        // The server's reply says more than the error of the aborted transfer.
        if let (Err(_), Err(AttemptError::Refused(error))) = (&outcome, &finished) {
            return Err(AttemptError::refused(error.to_string()));
        }
        outcome.map_err(|error| AttemptError::Passing(error, None))?;
        finished?;
        let arrived = connection.size(path)?;
        if arrived != contents.len() as u64 {
            return Err(AttemptError::passing(format!(
                "{arrived} bytes arrived instead of {}",
                contents.len()
            )));
        }
        Ok(())
    }

    fn read(
        &self,
        connection: &mut FtpConnection,
        watch: &CallWatch,
        name: &FileName,
        range: Range<u64>,
    ) -> Result<Bytes, AttemptError> {
        let path = connection.path(name.as_str());
        let length = connection.size(&path)?;
        if range.end > length {
            return Err(AttemptError::Short);
        }
        let wanted = to_usize(range.end - range.start);
        let start = to_usize(range.start);
        if start > 0 {
            connection.stream.resume_transfer(start).map_err(of_ftp)?;
        }
        let mut data = connection.stream.retr_as_stream(&path).map_err(of_object)?;
        let mut contents = Vec::new();
        let mut piece = vec![0; PIECE_BYTES.min(wanted)];
        while contents.len() < wanted {
            let room = piece.len().min(wanted - contents.len());
            let taken = data.read(&mut piece[..room]).map_err(|error| AttemptError::Passing(error, None))?;
            if taken == 0 {
                return Err(AttemptError::passing("the transfer ended early"));
            }
            if let Some(pace) = &self.down {
                wait(pace.take(taken), watch);
            }
            contents.extend_from_slice(&piece[..taken]);
        }
        connection.sockets.lock().truncate(1);
        match data.finish() {
            Ok(()) => {}
            // The server wanted to send more, and replies once or twice.
            Err(FtpError::UnexpectedResponse(_)) if range.end < length => {}
            Err(error) => return Err(of_ftp(error)),
        }
        connection.is_doubtful = range.end < length;
        Ok(contents.into())
    }
}

impl FtpConnection {
    fn path(&self, name: &str) -> String {
        format!("{}/{name}", self.root)
    }

    fn size(&mut self, path: &str) -> Result<u64, AttemptError> {
        self.stream.size(path).map(|size| size as u64).map_err(of_object)
    }

    fn is_there(&mut self, path: &str) -> Result<bool, AttemptError> {
        match self.size(path) {
            Ok(_) => Ok(true),
            Err(AttemptError::NotFound) => Ok(false),
            Err(other) => Err(other),
        }
    }

    /// Makes the folders of a path.
    fn make_folders(&mut self, path: &str) -> Result<(), AttemptError> {
        let slashes: Vec<_> = path.match_indices('/').map(|(at, _)| at).filter(|at| *at > 0).collect();
        for at in slashes {
            match self.stream.mkdir(&path[..at]) {
                // An existing folder is also refused. Other problems show up when the file is put.
                Ok(()) | Err(FtpError::UnexpectedResponse(_)) => {}
                Err(error) => return Err(of_ftp(error)),
            }
        }
        Ok(())
    }

    fn rename(&mut self, from: &str, to: &str, mode: PutMode) -> Result<(), AttemptError> {
        match self.stream.rename(from, to) {
            // Some servers do not rename over an existing file. Then neither file exists for a
            // moment.
            Err(FtpError::UnexpectedResponse(response))
                if mode == PutMode::Replace && is_turned_away(response.status) =>
            {
                if self.is_there(to)? {
                    self.stream.rm(to).map_err(of_ftp)?;
                }
                self.stream.rename(from, to).map_err(of_ftp)
            }
            outcome => outcome.map_err(of_ftp),
        }
    }

    fn list_folders(
        &mut self,
        watch: &CallWatch,
        folder: &str,
        into: &mut TargetListing,
    ) -> Result<(), AttemptError> {
        let mut left = vec![folder.to_owned()];
        while let Some(folder) = left.pop() {
            watch.restart();
            // Without a slash at its end, a file would be listed as its own member.
            let path = if folder.is_empty() { self.path("") } else { format!("{}/", self.path(&folder)) };
            let command = if self.has_mlsd { "MLSD" } else { "LIST" };
            let expected = [Status::AboutToSend, Status::AlreadyOpen];
            let opened = self.stream.custom_data_command(format!("{command} {path}"), &expected);
            let (_, data) = match opened.map_err(of_object) {
                Err(AttemptError::NotFound) => continue,
                opened => opened?,
            };
            let mut lines = BufReader::new(data);
            let outcome = self.take_members(watch, &mut lines, &folder, &mut left, into);
            self.sockets.lock().truncate(1);
            let finished = lines.into_inner().finish().map_err(of_object);
            outcome?;
            match finished {
                Err(AttemptError::NotFound) => {}
                finished => finished?,
            }
        }
        Ok(())
    }

    fn take_members(
        &self,
        watch: &CallWatch,
        lines: &mut impl BufRead,
        folder: &str,
        left: &mut Vec<String>,
        into: &mut TargetListing,
    ) -> Result<(), AttemptError> {
        loop {
            let mut line = Vec::new();
            let taken = lines.take(LINE_BYTES_MAX).read_until(b'\n', &mut line);
            match taken.map_err(|error| AttemptError::Passing(error, None))? {
                0 => return Ok(()),
                _ if line.last() != Some(&b'\n') => {
                    return Err(AttemptError::passing("a line of the listing is too long"));
                }
                bytes => watch.earn(bytes),
            }
            let line = String::from_utf8_lossy(&line);
            let line = line.trim_end_matches(['\r', '\n']);
            let member = if self.has_mlsd { of_mlsd(line) } else { of_list(line) };
            let name = |own: &str| if folder.is_empty() { own.into() } else { format!("{folder}/{own}") };
            match member {
                Some(FtpEntry::File(own, bytes, modified)) => {
                    into.push_changed(&name(own), bytes, modified)?;
                }
                Some(FtpEntry::Folder(own)) => {
                    let name = name(own);
                    into.push_other(&name, NonObjectKind::Folder)?;
                    left.extend(is_folder_of_a_store(&name).then_some(name));
                }
                Some(FtpEntry::Foreign) => into.pass()?,
                // An incomplete listing would be worse than none.
                None => {
                    return Err(AttemptError::refused(format!(
                        "a line of the listing has an unknown form: {line:?}"
                    )));
                }
            }
        }
    }
}

/// Waits for a pace, which is not the server's time.
fn wait(pause: Duration, watch: &CallWatch) {
    watch.pause(pause);
    edge::sleep(pause);
}

/// Returns true if the server refuses the file or its folder.
fn is_turned_away(status: Status) -> bool {
    matches!(status, Status::FileUnavailable | Status::BadFilename)
}

/// Converts an error about an object. The only reply about a missing object is that it is
/// unavailable.
fn of_object(error: FtpError) -> AttemptError {
    match error {
        FtpError::UnexpectedResponse(response) if is_turned_away(response.status) => AttemptError::NotFound,
        other => of_ftp(other),
    }
}

/// As [`of_ftp`], for errors that a wrong certificate or password may cause.
fn of_login(error: FtpError) -> AttemptError {
    match &error {
        FtpError::SecureError(_) => AttemptError::Refused(chain(&error)),
        FtpError::ConnectionError(cause) if cause.kind() == io::ErrorKind::InvalidData => {
            AttemptError::Refused(chain(&error))
        }
        _ => of_ftp(error),
    }
}

fn of_ftp(error: FtpError) -> AttemptError {
    let text = chain(&error);
    match error {
        FtpError::UnexpectedResponse(response) => match response.status {
            // Out of space. All other 4xx replies may pass.
            Status::RequestedActionNotTaken | Status::ExceededStorage => AttemptError::Refused(text),
            status if (400..500).contains(&status.code()) => AttemptError::Passing(text, None),
            _ => AttemptError::Refused(text),
        },
        _ => AttemptError::Passing(text, None),
    }
}

impl fmt::Display for Ftp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ftp{}://{}", if self.tls.is_some() { "s" } else { "" }, self.place)
    }
}

impl AttemptTarget for Ftp {
    type Upload = ();

    fn capabilities(&self) -> Result<Capabilities, AttemptError> {
        Ok(Capabilities { create_is_exclusive: false, ranges: true })
    }

    fn put(&self, name: &FileName, contents: &Bytes, mode: PutMode, (): &mut ()) -> Result<(), AttemptError> {
        let bytes = contents.len() as u64;
        self.call(bytes, |connection, watch| self.put_whole(connection, watch, name, contents, mode))
    }

    fn get(&self, name: &FileName, range: Range<u64>) -> Result<Bytes, AttemptError> {
        let bytes = range.end.saturating_sub(range.start);
        self.call(bytes, |connection, watch| self.read(connection, watch, name, range))
    }

    fn length(&self, name: &FileName) -> Result<u64, AttemptError> {
        self.call(0, |connection, _| connection.size(&connection.path(name.as_str())))
    }

    fn list(&self, folder: &str, into: &mut TargetListing) -> Result<(), AttemptError> {
        self.call(0, |connection, watch| connection.list_folders(watch, folder, into))
    }

    fn remove(&self, name: &FileName) -> Result<(), AttemptError> {
        self.call(0, |connection, _| {
            let path = connection.path(name.as_str());
            connection.stream.rm(path).map_err(of_object)
        })
    }

    fn remove_leftover(&self, path: &str) -> Result<(), AttemptError> {
        self.call(0, |connection, _| {
            let path = connection.path(path);
            connection.stream.rm(path).map_err(of_object)
        })
    }
}
