//! Checks the host name that a request is addressed to.
//!
//! A web page can make its own host name resolve to this machine (DNS rebinding). Its scripts would
//! then read this server as part of their own site. The browser sends that name in the request. A
//! server for this machine only therefore answers only to names that no other host can have.

use std::net::{IpAddr, SocketAddr};

use hyper::Request;
use hyper::header::HOST;

/// Reports whether a request is meant for the server at `address`. A request without a host name
/// does not come from a browser, and is accepted.
pub(crate) fn is_meant<T>(request: &Request<T>, address: SocketAddr) -> bool {
    let named = request.uri().authority().map(|authority| authority.as_str().as_bytes());
    let mut hosts = request.headers().get_all(HOST).iter().map(|host| host.as_bytes()).chain(named);
    hosts.all(|host| str::from_utf8(host).is_ok_and(|host| names_this_machine(host, address.ip())))
}

/// Reports whether a host is this machine, which listens at the address `own`. `host` is a name or
/// an IP address, with or without a port.
#[must_use]
pub fn names_this_machine(host: &str, own: IpAddr) -> bool {
    let (name, port) = match host.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((name, port)) => (name, port),
        None => host.split_at(host.find(':').unwrap_or(host.len())),
    };
    // Anything else behind the name could be another name: `127.0.0.1:80@evil.example`.
    let is_port = |digits: &str| !digits.starts_with('+') && digits.parse::<u16>().is_ok();
    if !port.is_empty() && !port.strip_prefix(':').is_some_and(is_port) {
        return false;
    }
    match name.parse::<IpAddr>() {
        Ok(ip) => ip.is_loopback() || ip == own,
        Err(_) => name.trim_end_matches('.').eq_ignore_ascii_case("localhost"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_of_this_machine_are_ours() {
        let own = "192.0.2.7".parse().unwrap();
        for host in
            ["127.0.0.1", "127.0.0.1:8080", "LocalHost:1", "localhost.", "[::1]", "[::1]:80", "192.0.2.7:80"]
        {
            assert!(names_this_machine(host, own), "{host}");
        }
        for host in [
            "evil.example",
            "localhost.evil.example:8080",
            "127.0.0.1.evil.example",
            "192.0.2.8",
            "",
            ":80",
            "[::2]:80",
            "a@localhost",
            "127.0.0.1:80@evil.example",
            "localhost:@evil.example",
            "[::1]:80@evil.example",
            "[::1]evil.example",
            "localhost:+80",
            "localhost:80:80",
        ] {
            assert!(!names_this_machine(host, own), "{host}");
        }
    }

    #[test]
    fn all_that_a_request_names_counts() {
        let request = |uri: &str, hosts: &[&str]| {
            let mut request = Request::builder().uri(uri);
            for host in hosts {
                request = request.header(HOST, *host);
            }
            is_meant(&request.body(()).unwrap(), "127.0.0.1:80".parse().unwrap())
        };
        assert!(
            request("/", &[]) && request("/", &["localhost"]) && request("http://[::1]:80/", &["[::1]:80"])
        );
        assert!(!request("/", &["localhost", "evil.example"]));
        assert!(!request("http://evil.example/", &["localhost"]));
    }
}
