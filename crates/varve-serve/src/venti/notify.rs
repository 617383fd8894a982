//! Reports the server's state to the service manager (`NOTIFY_SOCKET`, as for systemd).

use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

/// A state of the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ServiceState {
    /// The server accepts clients.
    Ready,
    /// The server accepts no new clients, and finishes serving the present ones.
    Stopping,
    /// The server has become read-only, because it failed to write to the store.
    Degraded,
}

/// Reports a state to the service manager, if there is one.
///
/// # Errors
/// The report cannot be sent.
pub fn notify(notice: ServiceState) -> io::Result<()> {
    match std::env::var("NOTIFY_SOCKET") {
        Ok(socket) if !socket.is_empty() => tell(&socket, notice),
        _ => Ok(()),
    }
}

fn tell(socket: &str, notice: ServiceState) -> io::Result<()> {
    let address = match socket.strip_prefix('@') {
        Some(name) => SocketAddr::from_abstract_name(name)?,
        None => SocketAddr::from_pathname(socket)?,
    };
    let text: &[u8] = match notice {
        ServiceState::Ready => b"READY=1\n",
        ServiceState::Stopping => b"STOPPING=1\n",
        ServiceState::Degraded => b"STATUS=read-only, because a write to the store failed\n",
    };
    UnixDatagram::unbound()?.send_to_addr(text, &address).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_service_manager_hears_that_clients_can_come() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("notify");
        let manager = UnixDatagram::bind(&path).unwrap();
        tell(path.to_str().unwrap(), ServiceState::Ready).unwrap();
        let mut heard = [0; 64];
        let length = manager.recv(&mut heard).unwrap();
        assert_eq!(&heard[..length], b"READY=1\n");

        let name = format!("varve-notify-{}", std::process::id());
        let manager = UnixDatagram::bind_addr(&SocketAddr::from_abstract_name(&name).unwrap()).unwrap();
        tell(&format!("@{name}"), ServiceState::Stopping).unwrap();
        let length = manager.recv(&mut heard).unwrap();
        assert_eq!(&heard[..length], b"STOPPING=1\n");
        assert!(tell("/nowhere/at/all", ServiceState::Ready).is_err());
    }
}
