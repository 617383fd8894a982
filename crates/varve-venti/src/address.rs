//! The address of a Venti server, in all its customary notations.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use crate::PORT;

/// The service name that stands for the default port.
const SERVICE: &str = "venti";
/// The prefix of a URL.
const URL: &str = "venti://";
/// The prefix of a URL for TLS.
const TLS_URL: &str = "venti+tls://";

/// `HOST`, `HOST:PORT`, `tcp!HOST`, `tcp!HOST!PORT`, `unix!PATH` or `venti://HOST:PORT`; for TLS
/// `tls!HOST!PORT` or `venti+tls://HOST:PORT`. The host `*`, or an empty one before `:PORT`, stands
/// for all addresses of this machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Address {
    /// A host name or IP address, and a port.
    Tcp(String, u16),
    /// Like `Tcp`, with the protocol inside TLS.
    Tls(String, u16),
    /// A Unix socket.
    Unix(PathBuf),
}

/// The text is not an address.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{text:?} is not the address of a Venti server: write HOST, HOST:PORT, [ADDRESS]:PORT, :PORT, tcp!HOST!PORT, unix!PATH, venti://HOST:PORT or venti+tls://HOST:PORT"
)]
pub struct ParseAddressError {
    text: String,
}

impl FromStr for Address {
    type Err = ParseAddressError;

    fn from_str(text: &str) -> Result<Self, ParseAddressError> {
        let wrong = || ParseAddressError { text: text.into() };
        if let Some(rest) = text.strip_prefix(URL) {
            return with_colon(rest.strip_suffix('/').unwrap_or(rest)).ok_or_else(wrong);
        }
        if let Some(rest) = text.strip_prefix(TLS_URL) {
            return with_colon(rest.strip_suffix('/').unwrap_or(rest)).map(Self::in_tls).ok_or_else(wrong);
        }
        let mut parts = text.split('!');
        match (parts.next(), parts.next(), parts.next(), parts.next()) {
            (Some("unix"), Some(path), None, None) if !path.is_empty() => Ok(Self::Unix(path.into())),
            (Some("tcp" | "net"), Some(host), None, None) => tcp(host, SERVICE).ok_or_else(wrong),
            (Some("tcp" | "net"), Some(host), Some(port), None) => tcp(host, port).ok_or_else(wrong),
            (Some("tls"), Some(host), None, None) => tcp(host, SERVICE).map(Self::in_tls).ok_or_else(wrong),
            (Some("tls"), Some(host), Some(port), None) => {
                tcp(host, port).map(Self::in_tls).ok_or_else(wrong)
            }
            (Some(host), None, None, None) => with_colon(host).ok_or_else(wrong),
            _ => Err(wrong()),
        }
    }
}

impl Address {
    fn in_tls(self) -> Self {
        match self {
            Self::Tcp(host, port) => Self::Tls(host, port),
            other => other,
        }
    }
}

/// Parses `HOST`, `HOST:PORT`, `[ADDRESS]`, `[ADDRESS]:PORT`, or `:PORT`.
fn with_colon(text: &str) -> Option<Address> {
    if let Some((host, rest)) = text.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        let port = if rest.is_empty() { SERVICE } else { rest.strip_prefix(':')? };
        return tcp(host, port);
    }
    match text.split_once(':') {
        None => tcp(text, SERVICE),
        Some(("", port)) => tcp("*", port),
        Some((host, port)) => tcp(host, port),
    }
}

fn tcp(host: &str, port: &str) -> Option<Address> {
    let port = if port == SERVICE { PORT } else { port.parse().ok()? };
    let is_host =
        !host.is_empty() && host.chars().all(|c| !c.is_whitespace() && !matches!(c, '/' | '@' | '?' | '#'));
    let host = if host == "*" { "::" } else { host };
    is_host.then(|| Address::Tcp(host.into(), port))
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(host, port) => write!(f, "tcp!{host}!{port}"),
            Self::Tls(host, port) => write!(f, "tls!{host}!{port}"),
            Self::Unix(path) => write!(f, "unix!{}", path.display()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_as_people_write_them() {
        let tcp = |host: &str, port| Ok(Address::Tcp(host.into(), port));
        for (text, expected) in [
            ("localhost", tcp("localhost", PORT)),
            ("localhost:venti", tcp("localhost", PORT)),
            ("10.1.2.3:27034", tcp("10.1.2.3", 27034)),
            ("tcp!localhost", tcp("localhost", PORT)),
            ("tcp!localhost!venti", tcp("localhost", PORT)),
            ("tcp!::1!27034", tcp("::1", 27034)),
            ("net!host!17", tcp("host", 17)),
            ("tcp!*!venti", tcp("::", PORT)),
            (":27034", tcp("::", 27034)),
            ("[::1]:27034", tcp("::1", 27034)),
            ("[::1]", tcp("::1", PORT)),
            ("venti://host", tcp("host", PORT)),
            ("venti://host:1/", tcp("host", 1)),
            ("venti://[::1]:1", tcp("::1", 1)),
            ("tls!host", Ok(Address::Tls("host".into(), PORT))),
            ("tls!*!1", Ok(Address::Tls("::".into(), 1))),
            ("venti+tls://host:1/", Ok(Address::Tls("host".into(), 1))),
            ("venti+tls://[::1]", Ok(Address::Tls("::1".into(), PORT))),
            ("unix!/run/a:b", Ok(Address::Unix("/run/a:b".into()))),
        ] {
            assert_eq!(text.parse::<Address>(), expected, "{text}");
            let again = expected.clone().unwrap().to_string();
            assert_eq!(again.parse::<Address>(), expected, "{again}");
        }
        for text in [
            "",
            "tcp!",
            "tcp!a!b",
            "tcp!a!1!2",
            "udp!a!1",
            "unix!",
            "tls!",
            "tls!a!b",
            "venti+tls://",
            "a:70000",
            "venti://",
            "venti://a/b",
            "::1",
            "a b",
        ] {
            assert!(text.parse::<Address>().is_err(), "{text}");
        }
    }
}
