//! Listening sockets that the service manager has opened and passed on (`LISTEN_FDS`, as by
//! systemd). Clients can connect even before the server has started.
#![allow(unsafe_code)]

use std::io;
use std::net::TcpListener;
use std::os::fd::{FromRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixListener;
use std::path::PathBuf;

use rustix::net::AddressFamily;
use rustix::net::sockopt::{socket_acceptconn, socket_domain};

/// The first inherited file descriptor.
const FIRST: RawFd = 3;
/// The limit of inherited sockets.
const COUNT_MAX: RawFd = 256;

/// Why the inherited sockets cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum InheritError {
    #[error("LISTEN_FDS is {count:?}, which is not a number of sockets")]
    Count { count: String },
    #[error("the inherited file {number} is not a listening stream socket")]
    NotListening { number: RawFd },
    #[error("the inherited file {number} cannot be used")]
    Unusable { number: RawFd, source: io::Error },
}

pub(super) enum InheritedSocket {
    Tcp(TcpListener),
    Unix(UnixListener, PathBuf),
}

/// Inherited sockets that are not yet in use.
#[derive(Default)]
pub struct InheritedSockets {
    sockets: Vec<(String, InheritedSocket)>,
}

impl InheritedSockets {
    /// No inherited sockets.
    #[must_use]
    pub fn none() -> Self {
        Self::default()
    }

    /// Takes the sockets that were passed to this process; none if `LISTEN_PID` names another
    /// process. Must be called only once, and before this process opens any file.
    ///
    /// # Errors
    /// [`InheritError`]
    pub fn from_environment() -> Result<Self, InheritError> {
        let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
        let is_meant = variable("LISTEN_PID").is_some_and(|pid| pid == std::process::id().to_string());
        let Some(count) = variable("LISTEN_FDS").filter(|_| is_meant) else { return Ok(Self::none()) };
        let number: Option<RawFd> = count.parse().ok().filter(|number| (0..=COUNT_MAX).contains(number));
        let number = number.ok_or(InheritError::Count { count })?;
        let names = variable("LISTEN_FDNAMES").unwrap_or_default();
        let names = names.split(':').map(str::to_owned).chain(std::iter::repeat(String::new()));
        let sockets = (FIRST..FIRST + number).zip(names).map(|(number, name)| Ok((name, take(number)?)));
        Ok(Self { sockets: sockets.collect::<Result<_, _>>()? })
    }

    /// Takes the sockets with this name, or all that are left.
    pub(super) fn take(&mut self, name: Option<&str>) -> Vec<InheritedSocket> {
        let is_wanted = |socket: &mut (String, InheritedSocket)| name.is_none_or(|name| socket.0 == name);
        self.sockets.extract_if(.., is_wanted).map(|(_, socket)| socket).collect()
    }
}

fn take(number: RawFd) -> Result<InheritedSocket, InheritError> {
    let unusable = |source: io::Error| InheritError::Unusable { number, source };
    // SAFETY: the service manager tells this very process, by `LISTEN_PID`, that this file
    // descriptor is open and is this process's to own. `from_environment` is called once, before
    // anything is opened that could have the same number.
    let socket = unsafe { OwnedFd::from_raw_fd(number) };
    let domain = socket_domain(&socket).map_err(|error| unusable(error.into()))?;
    if !socket_acceptconn(&socket).map_err(|error| unusable(error.into()))? {
        return Err(InheritError::NotListening { number });
    }
    rustix::io::fcntl_setfd(&socket, rustix::io::FdFlags::CLOEXEC).map_err(|error| unusable(error.into()))?;
    match domain {
        AddressFamily::INET | AddressFamily::INET6 => Ok(InheritedSocket::Tcp(socket.into())),
        AddressFamily::UNIX => {
            let listener = UnixListener::from(socket);
            let address = listener.local_addr().map_err(unusable)?;
            let path = address.as_pathname().map(PathBuf::from).unwrap_or_default();
            Ok(InheritedSocket::Unix(listener, path))
        }
        _ => Err(InheritError::NotListening { number }),
    }
}
