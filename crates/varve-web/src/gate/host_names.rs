//! The host names that the server answers to.
//!
//! A site can make its own host name resolve to this machine (DNS rebinding). Its scripts would
//! then read the page as part of their own site. The browser sends that name in each request, so a
//! request with an unknown name is refused. A numeric address is safe: a site that was loaded from
//! it is this server.

use std::net::{IpAddr, SocketAddr};

use axum::http::Request;
use axum::http::header::HOST;
use varve_serve::names_this_machine;

/// The names that are allowed.
pub(crate) struct HostNames {
    address: SocketAddr,
    is_exposed: bool,
    /// Lower case, without ports.
    allowed: Vec<String>,
}

impl HostNames {
    /// The names of a server at `address`: those of this machine, `allowed`, and, if other machines
    /// may connect, every numeric address.
    pub(crate) fn new(address: SocketAddr, is_exposed: bool, allowed: &[String]) -> Self {
        let plain = |name: &String| name.trim_end_matches('.').to_ascii_lowercase();
        Self { address, is_exposed, allowed: allowed.iter().map(plain).collect() }
    }

    /// Reports whether a request names this server, exactly once.
    pub(crate) fn is_meant<T>(&self, request: &Request<T>) -> bool {
        let mut hosts = request.headers().get_all(HOST).iter();
        let (Some(host), None) = (hosts.next(), hosts.next()) else { return false };
        let Ok(host) = host.to_str() else { return false };
        let is_same = |authority: &axum::http::uri::Authority| authority.as_str() == host;
        self.is_ours(host) && request.uri().authority().is_none_or(is_same)
    }

    fn is_ours(&self, host: &str) -> bool {
        if names_this_machine(host, self.address.ip()) {
            return true;
        }
        let (name, port) = match host.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
            Some((name, port)) => (name, port.strip_prefix(':')),
            None => host.split_once(':').map_or((host, None), |(name, port)| (name, Some(port))),
        };
        if port.is_some_and(|port| port.starts_with('+') || port.parse::<u16>().is_err()) {
            return false;
        }
        let name = name.trim_end_matches('.').to_ascii_lowercase();
        (self.is_exposed && name.parse::<IpAddr>().is_ok()) || self.allowed.contains(&name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_meant(hosts: &HostNames, uri: &str, named: &[&str]) -> bool {
        let mut request = Request::builder().uri(uri);
        for host in named {
            request = request.header(HOST, *host);
        }
        hosts.is_meant(&request.body(()).unwrap())
    }

    #[test]
    fn names_that_others_can_have_must_be_allowed() {
        let local = HostNames::new("127.0.0.1:80".parse().unwrap(), false, &[]);
        let open =
            HostNames::new("0.0.0.0:80".parse().unwrap(), true, &["Backup.example.".into(), "vault".into()]);
        for host in ["localhost:80", "127.0.0.1:80", "[::1]:80", "localhost"] {
            assert!(is_meant(&local, "/", &[host]) && is_meant(&open, "/", &[host]), "{host}");
        }
        for host in ["backup.example", "BACKUP.example:8080", "vault.", "192.0.2.1:80", "[2001:db8::1]:80"] {
            assert!(!is_meant(&local, "/", &[host]), "{host}");
            assert!(is_meant(&open, "/", &[host]), "{host}");
        }
        for host in [
            "evil.example",
            "backup.example.evil.example",
            "127.0.0.1.evil.example",
            "vault:80.evil.example",
            "vault@evil.example",
            "127.0.0.1:80@evil.example",
            "vault:80@evil.example",
            "",
        ] {
            assert!(!is_meant(&open, "/", &[host]), "{host}");
        }
    }

    #[test]
    fn a_request_names_one_host() {
        let hosts = HostNames::new("127.0.0.1:80".parse().unwrap(), false, &[]);
        assert!(!is_meant(&hosts, "/", &[]));
        assert!(!is_meant(&hosts, "/", &["localhost", "localhost"]));
        assert!(!is_meant(&hosts, "http://evil.example/", &["localhost"]));
        assert!(is_meant(&hosts, "http://localhost/", &["localhost"]));
    }
}
