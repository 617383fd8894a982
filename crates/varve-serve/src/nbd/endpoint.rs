//! The address on which a server listens.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

/// The port if none is given.
const PORT: u16 = 10809;

/// An address: `HOST:PORT`, `HOST`, `:PORT`, or `unix:PATH`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Endpoint {
    /// A host name or IP address, and a port.
    Tcp(String, u16),
    /// A Unix socket.
    Unix(PathBuf),
}

/// The text is not an address.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{text:?} is no address: write HOST:PORT, [ADDRESS]:PORT, :PORT for all addresses of this machine, or unix:PATH"
)]
pub struct ParseEndpointError {
    text: String,
}

impl FromStr for Endpoint {
    type Err = ParseEndpointError;

    fn from_str(text: &str) -> Result<Self, ParseEndpointError> {
        let wrong = || ParseEndpointError { text: text.into() };
        if let Some(path) = text.strip_prefix("unix:") {
            return if path.is_empty() { Err(wrong()) } else { Ok(Self::Unix(path.into())) };
        }
        let (host, port) = match text.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
            Some((host, "")) => (host, PORT),
            Some((host, rest)) => {
                let port = rest.strip_prefix(':').and_then(|port| port.parse().ok());
                (host, port.ok_or_else(wrong)?)
            }
            None => match text.split_once(':') {
                None => (text, PORT),
                Some((host, port)) => (host, port.parse().map_err(|_| wrong())?),
            },
        };
        match (host, text.contains(':')) {
            ("", true) => Ok(Self::Tcp("::".into(), port)),
            ("", false) => Err(wrong()),
            (host, _) => Ok(Self::Tcp(host.into(), port)),
        }
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(host, port) if host.contains(':') => write!(f, "[{host}]:{port}"),
            Self::Tcp(host, port) => write!(f, "{host}:{port}"),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_as_people_write_them() {
        let tcp = |host: &str, port| Ok(Endpoint::Tcp(host.into(), port));
        for (text, expected) in [
            ("127.0.0.1:1234", tcp("127.0.0.1", 1234)),
            ("localhost", tcp("localhost", PORT)),
            (":1234", tcp("::", 1234)),
            ("[::1]:1234", tcp("::1", 1234)),
            ("[::1]", tcp("::1", PORT)),
            ("unix:/run/a:b", Ok(Endpoint::Unix("/run/a:b".into()))),
        ] {
            assert_eq!(text.parse::<Endpoint>(), expected, "{text}");
        }
        for text in ["", "unix:", "host:port", "host:70000", "[::1]1234", "::1"] {
            assert!(text.parse::<Endpoint>().is_err(), "{text}");
        }
        assert_eq!("[::1]:7".parse::<Endpoint>().unwrap().to_string(), "[::1]:7");
    }
}
