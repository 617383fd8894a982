//! The addresses on which a server listens, and the access that each permits.

use std::fmt;
use std::io;
use std::net::{SocketAddr, TcpListener, ToSocketAddrs};
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::str::FromStr;

use varve_venti::{Address, ParseAddressError};

use super::inherited::{InheritedSocket, InheritedSockets};
use super::start_error::StartError;
use crate::network::{ListenError, check_address, listen_privately};
use crate::tls::TlsIdentity;

/// The prefix of an address that stands for a socket from the service manager.
const INHERITED: &str = "systemd";

/// The access that an address permits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ListenAccess {
    ReadOnly,
    ReadWrite,
}

/// An address, or an inherited socket.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ListenAt {
    /// An address to bind.
    Address(Address),
    /// `systemd` or `systemd:NAME`: the sockets that the service manager has passed on, all of them
    /// or those of one name.
    Inherited(Option<String>),
}

/// The text is not an address.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{source}; or systemd, or systemd:NAME, for sockets that the service manager opens")]
pub struct ParseListenAtError {
    source: ParseAddressError,
}

impl FromStr for ListenAt {
    type Err = ParseListenAtError;

    fn from_str(text: &str) -> Result<Self, ParseListenAtError> {
        match text.split_once(':') {
            Some((INHERITED, name)) => Ok(Self::Inherited(Some(name.to_owned()))),
            None if text == INHERITED => Ok(Self::Inherited(None)),
            _ => text.parse().map(Self::Address).map_err(|source| ParseListenAtError { source }),
        }
    }
}

impl fmt::Display for ListenAt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Address(address) => address.fmt(f),
            Self::Inherited(None) => f.write_str(INHERITED),
            Self::Inherited(Some(name)) => write!(f, "{INHERITED}:{name}"),
        }
    }
}

/// An address, and the access that it permits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListenAddress {
    pub at: ListenAt,
    pub access: ListenAccess,
}

/// A listening socket.
pub(super) enum VentiListener {
    Tcp(TcpListener),
    Unix(UnixListener),
}

/// A listening socket with its properties.
pub(super) struct BoundListener {
    pub(super) listener: VentiListener,
    pub(super) access: ListenAccess,
    /// Set if clients must use TLS.
    pub(super) tls: Option<TlsIdentity>,
    /// The address in the form that clients write.
    pub(super) address: Address,
    /// The file of a Unix socket, which this server created and removes.
    pub(super) socket_file: Option<PathBuf>,
}

/// Binds all requested addresses.
pub(super) fn bind(
    wanted: &[ListenAddress],
    is_exposed: bool,
    inherited: &mut InheritedSockets,
    tls: Option<&TlsIdentity>,
) -> Result<Vec<BoundListener>, StartError> {
    let mut bound = Vec::new();
    for ListenAddress { at, access } in wanted {
        match at {
            ListenAt::Address(Address::Unix(path)) => {
                let failed = |source| StartError::Socket { at: at.to_string(), source };
                let listener = VentiListener::Unix(listen_privately(path).map_err(failed)?);
                let (address, socket_file) = (Address::Unix(path.clone()), Some(path.clone()));
                bound.push(BoundListener { listener, access: *access, tls: None, address, socket_file });
            }
            ListenAt::Address(Address::Tcp(host, port) | Address::Tls(host, port)) => {
                let tls = match at {
                    ListenAt::Address(Address::Tls(..)) => {
                        Some(tls.ok_or_else(|| StartError::NoCertificate { at: at.to_string() })?)
                    }
                    _ => None,
                };
                // With client certificates, only authenticated clients are served, so that exposing
                // the address is safe.
                let is_exposed = is_exposed || tls.is_some_and(TlsIdentity::checks_clients);
                let listeners = bind_tcp(host, *port, is_exposed).map_err(|error| match error {
                    BindError::Refused(error) => StartError::Listen(error),
                    BindError::Failed(source) => StartError::Socket { at: at.to_string(), source },
                })?;
                for listener in listeners {
                    bound.push(with_address(listener, *access, tls.cloned())?);
                }
            }
            ListenAt::Inherited(name) => {
                let sockets = inherited.take(name.as_deref());
                if sockets.is_empty() {
                    return Err(StartError::NothingInherited { at: at.to_string() });
                }
                for socket in sockets {
                    bound.push(match socket {
                        InheritedSocket::Tcp(listener) => with_address(listener, *access, None)?,
                        InheritedSocket::Unix(listener, path) => BoundListener {
                            listener: VentiListener::Unix(listener),
                            access: *access,
                            tls: None,
                            address: Address::Unix(path),
                            socket_file: None,
                        },
                    });
                }
            }
        }
    }
    Ok(bound)
}

enum BindError {
    Refused(ListenError),
    Failed(io::Error),
}

/// Binds every address of a host name, skipping those that this machine does not have.
fn bind_tcp(host: &str, port: u16, is_exposed: bool) -> Result<Vec<TcpListener>, BindError> {
    let mut addresses: Vec<SocketAddr> = (host, port).to_socket_addrs().map_err(BindError::Failed)?.collect();
    addresses.sort_unstable();
    addresses.dedup();
    for address in &addresses {
        check_address(*address, is_exposed).map_err(BindError::Refused)?;
    }
    if port == 0 {
        // With port 0, bind one address only: several would get different ports.
        addresses.truncate(1);
    }
    let mut listeners = Vec::new();
    let mut failure = io::Error::from(io::ErrorKind::AddrNotAvailable);
    for address in addresses {
        match TcpListener::bind(address) {
            Ok(listener) => listeners.push(listener),
            Err(error) if error.kind() == io::ErrorKind::AddrNotAvailable => failure = error,
            Err(error) => return Err(BindError::Failed(error)),
        }
    }
    if listeners.is_empty() { Err(BindError::Failed(failure)) } else { Ok(listeners) }
}

fn with_address(
    listener: TcpListener,
    access: ListenAccess,
    tls: Option<TlsIdentity>,
) -> Result<BoundListener, StartError> {
    let address = listener.local_addr().map_err(StartError::Threads)?;
    let (host, port) = (address.ip().to_string(), address.port());
    Ok(BoundListener {
        listener: VentiListener::Tcp(listener),
        access,
        address: if tls.is_some() { Address::Tls(host, port) } else { Address::Tcp(host, port) },
        tls,
        socket_file: None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sockets_of_the_service_manager_have_names() {
        for (text, expected) in [
            ("systemd", Ok(ListenAt::Inherited(None))),
            ("systemd:write", Ok(ListenAt::Inherited(Some("write".into())))),
            ("localhost", Ok(ListenAt::Address(Address::Tcp("localhost".into(), 17034)))),
        ] {
            assert_eq!(text.parse::<ListenAt>(), expected, "{text}");
            assert_eq!(expected.clone().unwrap().to_string().parse::<ListenAt>(), expected);
        }
        assert!("a b".parse::<ListenAt>().unwrap_err().to_string().contains("systemd"));
    }
}
