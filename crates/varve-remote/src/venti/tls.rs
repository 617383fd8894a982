//! TLS for Venti connections.

use std::io;
use std::net::TcpStream;
use std::sync::Arc;

use parking_lot::Mutex;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, StreamOwned};

use crate::tls::{TlsClientIdentity, client_config_as};

/// The TLS settings for Venti servers. The machine's certificate authorities are trusted (and those
/// of SSL_CERT_FILE). They are read from the disk when the first TLS server is dialled.
#[derive(Debug, Clone, Default)]
pub struct VentiTls {
    identity: Option<TlsClientIdentity>,
    config: Arc<Mutex<Option<Arc<ClientConfig>>>>,
}

impl VentiTls {
    /// Makes settings for a client that shows a certificate if the server asks.
    #[must_use]
    pub fn with_identity(identity: TlsClientIdentity) -> Self {
        Self { identity: Some(identity), config: Arc::default() }
    }

    fn config(&self) -> io::Result<Arc<ClientConfig>> {
        let mut config = self.config.lock();
        if let Some(config) = &*config {
            return Ok(Arc::clone(config));
        }
        let made = Arc::new(client_config_as(None, self.identity.as_ref())?);
        *config = Some(Arc::clone(&made));
        Ok(made)
    }

    /// Authenticates the server and encrypts the socket.
    pub(super) fn wrap(
        &self,
        host: &str,
        mut socket: TcpStream,
    ) -> io::Result<Box<StreamOwned<ClientConnection, TcpStream>>> {
        let name = ServerName::try_from(host.to_owned()).map_err(io::Error::other)?;
        let mut connection = ClientConnection::new(self.config()?, name).map_err(io::Error::other)?;
        while connection.is_handshaking() {
            connection.complete_io(&mut socket)?;
        }
        Ok(Box::new(StreamOwned::new(connection, socket)))
    }
}
