//! The clock of a server: the `Date` of any of its answers by HTTP. Nothing is sent but a request
//! for the head of `/`, without credentials.

use std::io;
use std::time::Duration;

use reqwest::header::DATE;
use reqwest::redirect::Policy;
use reqwest::{Client, Method, Request};
use url::Url;
use varve_world::Timestamp;

use crate::attempt_error::chain;
use crate::http::plain_receiver::USER_AGENT;
use crate::naming::leftovers;
use crate::naming::location::Location;
use crate::tls;

const NANOSECONDS: i64 = 1_000_000_000;

/// A server whose clock can be asked.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct ClockServer(Url);

impl ClockServer {
    /// Returns the server of a store, a target or a web address; `None` if it speaks no HTTP. The
    /// server of a bucket is known only if the location names its endpoint.
    #[must_use]
    pub fn of(place: &str) -> Option<Self> {
        let address = match place.parse() {
            Ok(Location::S3(bucket)) => bucket.endpoint?,
            _ => place.strip_prefix("webdav+").unwrap_or(place).to_owned(),
        };
        let url = Url::parse(&address).ok().filter(|url| matches!(url.scheme(), "http" | "https"))?;
        let port = url.port().map(|port| format!(":{port}")).unwrap_or_default();
        Url::parse(&format!("{}://{}{port}/", url.scheme(), url.host_str()?)).ok().map(Self)
    }

    /// Returns the name of the server, with its port if that is unusual.
    #[must_use]
    pub fn name(&self) -> String {
        let port = self.0.port().map(|port| format!(":{port}")).unwrap_or_default();
        format!("{}{port}", self.0.host_str().unwrap_or_default())
    }

    /// Asks the server for its time, to the second; `None` if its answer has none.
    ///
    /// # Errors
    /// When it does not answer within `patience`.
    pub fn time(&self, patience: Duration) -> io::Result<Option<Timestamp>> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(async {
            let client = Client::builder().tls_backend_preconfigured(tls::tls_config_when_used()?);
            let client = client.redirect(Policy::none()).timeout(patience).user_agent(USER_AGENT);
            let client = client.build().map_err(|error| chain(&error)).map_err(io::Error::other)?;
            let request = Request::new(Method::HEAD, self.0.clone());
            let answer = client.execute(request).await;
            let answer = answer.map_err(|error| chain(&error)).map_err(io::Error::other)?;
            let date = answer.headers().get(DATE).and_then(|date| date.to_str().ok());
            let seconds = date.and_then(leftovers::of_http_date);
            Ok(seconds.map(|seconds| Timestamp(seconds.saturating_mul(NANOSECONDS))))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_server_of_a_place_is_asked() {
        let asked = |place: &str| ClockServer::of(place).map(|server| server.0.to_string());
        let of = |place: &str, server: &str| assert_eq!(asked(place).as_deref(), Some(server), "{place}");
        of("webdav+https://ann:secret@vault.example/a/b", "https://vault.example/");
        of("webdav+http://[::1]:8080/a", "http://[::1]:8080/");
        of("https://hc.example/ping/UUID?x=1", "https://hc.example/");
        of("s3://bucket/a?endpoint=http%3A%2F%2F127.0.0.1%3A7070", "http://127.0.0.1:7070/");
        for silent in ["s3://bucket/a", "sftp://vault.example/a", "/backup/store", "venti://host", "no url"] {
            assert_eq!(asked(silent), None, "{silent}");
        }
        assert_eq!(ClockServer::of("http://h.example:81/x").unwrap().name(), "h.example:81");
    }

    #[test]
    fn the_date_of_any_answer_is_the_time() {
        use std::io::{BufRead, BufReader, Write};
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let place = format!("http://{}/x", listener.local_addr().unwrap());
        #[expect(clippy::disallowed_methods, reason = "a server of this test")]
        let server = std::thread::spawn(move || {
            let mut asked = Vec::new();
            for date in ["Date: Sun, 06 Nov 1994 08:49:37 GMT\r\n", ""] {
                let (mut stream, _) = listener.accept().unwrap();
                let lines = BufReader::new(stream.try_clone().unwrap()).lines();
                asked.extend(lines.map(Result::unwrap).take_while(|line| !line.is_empty()).take(1));
                write!(stream, "HTTP/1.1 403 No\r\n{date}Content-Length: 0\r\nConnection: close\r\n\r\n")
                    .unwrap();
            }
            asked
        });
        let time = || ClockServer::of(&place).unwrap().time(Duration::from_secs(10)).unwrap();
        assert_eq!(time(), Some(Timestamp(784_111_777 * NANOSECONDS)));
        assert_eq!(time(), None);
        assert_eq!(server.join().unwrap(), ["HEAD / HTTP/1.1"; 2]);
        assert!(ClockServer::of(&place).unwrap().time(Duration::from_secs(10)).is_err());
    }
}
