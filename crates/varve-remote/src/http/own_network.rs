//! Addresses of the reader's own network. A publisher may name mirrors, and must not make a reader
//! send requests to the machines behind its router.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, ToSocketAddrs};

use reqwest::dns::{Name, Resolve, Resolving};
use url::{Host, Url};

/// The error of a place that is on the reader's own network.
const REFUSED: &str = "it is on your own network, where a publisher names no mirrors: name it with --mirror";

/// Reports whether everybody can reach an address.
fn is_public(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => {
            let is_own = address.is_loopback() || address.is_private() || address.is_link_local();
            let is_none = address.is_unspecified() || address.is_broadcast() || address.is_multicast();
            !is_own && !is_none && !is_shared(address)
        }
        IpAddr::V6(address) => match address.to_ipv4_mapped() {
            Some(address) => is_public(IpAddr::V4(address)),
            None => {
                let is_own =
                    address.is_loopback() || address.is_unique_local() || address.is_unicast_link_local();
                !is_own && !address.is_unspecified() && !address.is_multicast()
            }
        },
    }
}

/// The addresses behind a provider's router: RFC 6598.
fn is_shared(address: Ipv4Addr) -> bool {
    let [first, second, ..] = address.octets();
    first == 100 && (64..128).contains(&second)
}

/// Removes the addresses of the reader's own network.
///
/// # Errors
/// When none is left.
pub(crate) fn public_ones(addresses: Vec<SocketAddr>) -> io::Result<Vec<SocketAddr>> {
    let had_any = !addresses.is_empty();
    let public: Vec<_> = addresses.into_iter().filter(|address| is_public(address.ip())).collect();
    if had_any && public.is_empty() {
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, REFUSED));
    }
    Ok(public)
}

/// Refuses a URL with an address of the reader's own network. Names are resolved later.
pub(crate) fn refuse_own_address(url: &Url) -> io::Result<()> {
    let port = url.port_or_known_default().unwrap_or(0);
    let address = match url.host() {
        Some(Host::Ipv4(address)) => IpAddr::V4(address),
        Some(Host::Ipv6(address)) => IpAddr::V6(address),
        _ => return Ok(()),
    };
    public_ones(vec![SocketAddr::new(address, port)]).map(drop)
}

/// Resolves names to addresses that everybody can reach.
pub(crate) struct PublicResolver;

impl Resolve for PublicResolver {
    fn resolve(&self, name: Name) -> Resolving {
        Box::pin(async move {
            let addresses = tokio::net::lookup_host((name.as_str(), 0)).await?.collect();
            let public = public_ones(addresses)?;
            Ok(Box::new(public.into_iter()) as Box<dyn Iterator<Item = SocketAddr> + Send>)
        })
    }
}

/// Reports whether a target is on this machine, or on its own network. Asks for the addresses of
/// its name; one that has none is elsewhere.
#[must_use]
pub fn is_on_own_network(target: &str) -> bool {
    let Ok(url) = Url::parse(target) else { return true };
    if !matches!(url.scheme(), "http" | "https") {
        return true;
    }
    let port = url.port_or_known_default().unwrap_or(0);
    let addresses: Vec<IpAddr> = match url.host() {
        Some(Host::Domain(name)) => {
            let found = (name, port).to_socket_addrs();
            found.into_iter().flatten().map(|address| address.ip()).collect()
        }
        Some(Host::Ipv4(address)) => vec![address.into()],
        Some(Host::Ipv6(address)) => vec![address.into()],
        None => return true,
    };
    addresses.iter().any(|address| !is_public(*address))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_and_public_addresses_are_told_apart() {
        for own in [
            "127.0.0.1",
            "10.1.2.3",
            "172.16.0.1",
            "192.168.1.1",
            "169.254.169.254",
            "100.64.0.1",
            "0.0.0.0",
            "::1",
            "fd00::1",
            "fe80::1",
            "::ffff:192.168.1.1",
        ] {
            assert!(!is_public(own.parse().unwrap()), "{own}");
        }
        for public in ["8.8.8.8", "172.32.0.1", "100.128.0.1", "2001:db8::1", "::ffff:8.8.8.8"] {
            assert!(is_public(public.parse().unwrap()), "{public}");
        }
    }

    #[test]
    fn a_place_on_this_machine_or_network_is_known() {
        for own in ["/srv/www", "http://192.168.1.5/x", "http://localhost:8080/x", "https://[::1]/"] {
            assert!(is_on_own_network(own), "{own}");
        }
        assert!(!is_on_own_network("https://8.8.8.8/x"));
        let error = refuse_own_address(&Url::parse("http://192.168.1.1/reboot").unwrap()).unwrap_err();
        assert!(error.to_string().contains("--mirror"), "{error}");
        assert!(refuse_own_address(&Url::parse("http://8.8.8.8/").unwrap()).is_ok());
    }
}
