//! Connections to a host with several addresses: the next one is tried soon, because the first one
//! may swallow every packet. Many networks have an IPv6 that leads nowhere.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use tokio::net::TcpStream;
use tokio::task::JoinSet;
use url::{Host, Url};

use crate::http::own_network::public_ones;

/// The next address is tried after this time, beside the ones before it: RFC 8305, section 5.
const ATTEMPT_DELAY: Duration = Duration::from_millis(250);

/// The addresses of a host that are tried.
const ADDRESS_COUNT_MAX: usize = 16;

/// Connects to the host of a URL, and returns the address that has answered first. `preferred` is
/// the one that has answered before. `public_only` refuses addresses of the own network.
pub(crate) async fn connect(
    url: &Url,
    preferred: Option<SocketAddr>,
    public_only: bool,
) -> io::Result<(TcpStream, SocketAddr)> {
    let port = url.port_or_known_default().unwrap_or(80);
    let addresses = match url.host() {
        Some(Host::Domain(name)) => tokio::net::lookup_host((name, port)).await?.collect::<Vec<_>>(),
        Some(Host::Ipv4(address)) => vec![SocketAddr::new(IpAddr::V4(address), port)],
        Some(Host::Ipv6(address)) => vec![SocketAddr::new(IpAddr::V6(address), port)],
        None => return Err(io::Error::new(io::ErrorKind::InvalidInput, "the URL has no host")),
    };
    let addresses = if public_only { public_ones(addresses)? } else { addresses };
    let (connection, address) = race(in_order(addresses, preferred), TcpStream::connect).await?;
    connection.set_nodelay(true)?;
    Ok((connection, address))
}

/// Orders addresses for the attempts: the preferred one, and then the others as the system has
/// sorted them, with the two families in turn.
fn in_order(addresses: Vec<SocketAddr>, preferred: Option<SocketAddr>) -> Vec<SocketAddr> {
    let is_first_v6 = addresses.first().is_some_and(SocketAddr::is_ipv6);
    let (of_first, of_other): (Vec<SocketAddr>, Vec<_>) =
        addresses.iter().partition(|address| address.is_ipv6() == is_first_v6);
    let (mut of_first, mut of_other) = (of_first.into_iter(), of_other.into_iter());
    let mut ordered: Vec<SocketAddr> =
        preferred.filter(|known| addresses.contains(known)).into_iter().collect();
    while ordered.len() < ADDRESS_COUNT_MAX {
        let pair = [of_first.next(), of_other.next()];
        if pair == [None, None] {
            break;
        }
        ordered.extend(pair.into_iter().flatten().filter(|address| Some(*address) != preferred));
    }
    ordered
}

/// Returns the first connection that is made. An attempt begins when one before it has failed, or
/// after [`ATTEMPT_DELAY`].
async fn race<C, F>(
    addresses: Vec<SocketAddr>,
    connect: impl Fn(SocketAddr) -> F,
) -> io::Result<(C, SocketAddr)>
where
    C: Send + 'static,
    F: Future<Output = io::Result<C>> + Send + 'static,
{
    let mut last_error = io::Error::new(io::ErrorKind::NotFound, "the name of the host has no address");
    let mut addresses = addresses.into_iter();
    // The other attempts end with this set.
    let mut attempts = JoinSet::new();
    loop {
        if let Some(address) = addresses.next() {
            let attempt = connect(address);
            attempts.spawn(async move { (attempt.await, address) });
        } else if attempts.is_empty() {
            return Err(last_error);
        }
        let ended = match addresses.len() {
            0 => attempts.join_next().await,
            _ => tokio::time::timeout(ATTEMPT_DELAY, attempts.join_next()).await.unwrap_or_default(),
        };
        match ended {
            Some(Ok((Ok(connection), address))) => return Ok((connection, address)),
            Some(Ok((Err(error), _))) => last_error = error,
            Some(Err(error)) => last_error = io::Error::other(error),
            None => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::edge;

    fn addresses(texts: &[&str]) -> Vec<SocketAddr> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    }

    #[test]
    fn the_families_take_turns_after_the_address_that_has_answered() {
        let all = addresses(&["[fd00::1]:80", "[fd00::2]:80", "[fd00::3]:80", "10.0.0.1:80"]);
        let expected = addresses(&["[fd00::1]:80", "10.0.0.1:80", "[fd00::2]:80", "[fd00::3]:80"]);
        assert_eq!(in_order(all.clone(), None), expected);
        let expected = addresses(&["[fd00::2]:80", "[fd00::1]:80", "10.0.0.1:80", "[fd00::3]:80"]);
        assert_eq!(in_order(all.clone(), Some(all[1])), expected);
        assert_eq!(in_order(all, Some("10.9.9.9:80".parse().unwrap())).len(), 4, "it has moved");
        assert_eq!(in_order(Vec::new(), None), []);
    }

    /// Returns the address that has answered, or the error, and the milliseconds that it took.
    fn raced(texts: &[&str]) -> (Result<SocketAddr, io::ErrorKind>, u128) {
        // The port says what the host does.
        let connect = |address: SocketAddr| async move {
            match address.port() {
                1 => std::future::pending().await,
                2 => Err(io::ErrorKind::ConnectionRefused.into()),
                _ => Ok(()),
            }
        };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(async {
            let begun = edge::now();
            let raced = race(addresses(texts), connect).await;
            let elapsed = edge::now().duration_since(begun);
            (raced.map(|((), address)| address).map_err(|error| error.kind()), elapsed.as_millis())
        })
    }

    #[test]
    fn an_address_that_swallows_packets_keeps_no_other_from_answering() {
        let (good, silent, refusing) = ("10.0.0.3:3", "10.0.0.1:1", "10.0.0.2:2");
        let answered = Ok(good.parse().unwrap());
        for (texts, at_least, below) in [
            (&[good][..], 0, 200),
            (&[good, silent], 0, 200),
            (&[silent, good], 250, 450),
            (&[silent, refusing, good], 250, 450),
            (&[silent, silent, good], 500, 800),
            (&[refusing, refusing, good], 0, 200),
        ] {
            let (outcome, milliseconds) = raced(texts);
            assert_eq!(outcome, answered, "{texts:?}");
            assert!((at_least..below).contains(&milliseconds), "{texts:?}: {milliseconds} ms");
        }
        assert_eq!(raced(&[refusing, refusing]).0, Err(io::ErrorKind::ConnectionRefused));
        assert_eq!(raced(&[]).0, Err(io::ErrorKind::NotFound));
    }
}
