//! Objects in a collection of a WebDAV server.
//!
//! Few servers create exclusively, and some show an incomplete upload. So an object is uploaded
//! under a name that no store uses and no other writer has. Its length is compared, and then it is
//! moved. `Overwrite: F` keeps the move from replacing anything. On most servers, two concurrent
//! writers may still both succeed. Collections are listed one by one, because many servers refuse
//! deep listings.

use std::fmt;
use std::ops::Range;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};
use reqwest::header::{AUTHORIZATION, CONTENT_TYPE, HeaderName, HeaderValue, RANGE};
use reqwest::{Method, Request, StatusCode};
use url::Url;
use varve_world::FileName;

use crate::attempt_error::{AttemptError, chain};
use crate::http::exchange::{self, Http, HttpAnswer, Redirects, unfinished_name};
use crate::http::xml::{self, XmlEvent};
use crate::naming::leftovers;
use crate::naming::location::HostLocation;
use crate::naming::object_names::is_folder_of_a_store;
use crate::naming::password::Password;
use crate::naming::target_listing::TargetListing;
use crate::open_options::OpenOptions;
use crate::retry::retrying_target::AttemptTarget;
use crate::target::{Capabilities, NonObjectKind, PutMode, TakePiece};

/// The collections that are listed at once.
const COLLECTIONS_AT_ONCE: usize = 8;

/// The characters that need no escape in a path.
const PATH: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~').remove(b'/');

/// The properties that a listing requests for each member.
const PROPERTIES: &str = "<?xml version=\"1.0\" encoding=\"utf-8\"?><D:propfind xmlns:D=\"DAV:\"><D:prop>\
    <D:resourcetype/><D:getcontentlength/><D:getlastmodified/></D:prop></D:propfind>";

/// A collection of a WebDAV server.
pub(crate) struct Webdav {
    http: Http,
    place: HostLocation,
    is_encrypted: bool,
    /// The URL of the server, without a slash at its end.
    server: String,
    authorization: Option<HeaderValue>,
}

impl Webdav {
    pub fn new(place: HostLocation, is_encrypted: bool, options: &OpenOptions) -> std::io::Result<Self> {
        let scheme = if is_encrypted { "https" } else { "http" };
        let port = place.port.map(|port| format!(":{port}")).unwrap_or_default();
        let server = format!("{scheme}://{}{port}", place.host);
        let password = place.password.as_ref().or(options.password.as_ref());
        let authorization = place.user.as_ref().map(|user| {
            let text = format!("{user}:{}", password.map(Password::reveal).unwrap_or_default());
            HeaderValue::from_str(&format!("Basic {}", STANDARD.encode(&text))).map(|mut value| {
                value.set_sensitive(true);
                value
            })
        });
        let authorization = authorization.transpose().map_err(|error| chain(&error))?;
        Ok(Self {
            http: Http::new(options, is_encrypted, Redirects::Refuse)?,
            place,
            is_encrypted,
            server,
            authorization,
        })
    }

    /// Returns the path of an object, or of the collection for `""`.
    fn path(&self, name: &str) -> String {
        let parts = ["", &self.place.path, name];
        let parts: Vec<_> =
            parts.into_iter().enumerate().filter(|(at, part)| *at == 0 || !part.is_empty()).collect();
        parts.into_iter().map(|(_, part)| part).collect::<Vec<_>>().join("/")
    }

    fn url(&self, path: &str) -> String {
        format!("{}{}", self.server, utf8_percent_encode(path, PATH))
    }

    /// Makes the request for a range of an object.
    fn request_range(&self, name: &FileName, range: &Range<u64>) -> Result<Request, AttemptError> {
        let mut request = self.request(Method::GET, &self.path(name.as_str()))?;
        request.headers_mut().insert(RANGE, exchange::range_header(range)?);
        Ok(request)
    }

    fn request(&self, method: Method, path: &str) -> Result<Request, AttemptError> {
        let url = self.url(path);
        let url = Url::parse(&url).map_err(|error| AttemptError::refused(format!("{url}: {error}")))?;
        let mut request = Request::new(method, url);
        if let Some(authorization) = &self.authorization {
            request.headers_mut().insert(AUTHORIZATION, authorization.clone());
        }
        Ok(request)
    }

    async fn send(&self, method: Method, path: &str) -> Result<HttpAnswer, AttemptError> {
        self.http.send(self.request(method, path)?).await
    }

    async fn head(&self, path: &str) -> Result<u64, AttemptError> {
        let answer = self.send(Method::HEAD, path).await?.success()?;
        answer.content_length()
    }

    async fn is_there(&self, path: &str) -> Result<bool, AttemptError> {
        match self.head(path).await {
            Ok(_) => Ok(true),
            Err(AttemptError::NotFound) => Ok(false),
            Err(other) => Err(other),
        }
    }

    /// Makes the collections of a path.
    async fn make_collections(&self, path: &str) -> Result<(), AttemptError> {
        let slashes = path.match_indices('/').map(|(at, _)| at).filter(|at| *at > 0);
        for at in slashes {
            let collection = &path[..=at];
            let answer = self.send(method(b"MKCOL"), collection).await?;
            // 405: the collection exists. Other problems show up when the object is put.
            if answer.status.is_server_error() {
                return Err(answer.attempt_error());
            }
        }
        Ok(())
    }

    async fn upload(&self, path: &str, contents: &Bytes) -> Result<(), AttemptError> {
        for has_folders in [false, true] {
            let mut request = self.request(Method::PUT, path)?;
            self.http.fill(&mut request, contents.clone());
            let answer = self.http.send(request).await?;
            // For a missing collection, the standard requires the first status, and nginx sends the
            // last.
            let may_be_homeless = matches!(
                answer.status,
                StatusCode::CONFLICT | StatusCode::NOT_FOUND | StatusCode::INTERNAL_SERVER_ERROR
            );
            if !may_be_homeless || has_folders {
                answer.success()?;
                break;
            }
            self.make_collections(path).await?;
        }
        let arrived = self.head(path).await?;
        if arrived != contents.len() as u64 {
            return Err(AttemptError::passing(format!(
                "{arrived} bytes arrived instead of {}",
                contents.len()
            )));
        }
        Ok(())
    }

    async fn move_to(&self, from: &str, to: &str, mode: PutMode) -> Result<(), AttemptError> {
        let mut request = self.request(method(b"MOVE"), from)?;
        let destination =
            HeaderValue::from_str(&self.url(to)).map_err(|error| AttemptError::Refused(chain(&error)))?;
        let overwrite = HeaderValue::from_static(if mode == PutMode::Create { "F" } else { "T" });
        request.headers_mut().insert(HeaderName::from_static("destination"), destination);
        request.headers_mut().insert(HeaderName::from_static("overwrite"), overwrite);
        match self.http.send(request).await?.success() {
            Ok(answer) if answer.status == StatusCode::MULTI_STATUS => {
                Err(AttemptError::refused("the server moved only a part of it"))
            }
            // The uploaded file existed a moment ago.
            Err(AttemptError::NotFound) => Err(AttemptError::passing("the uploaded file is gone")),
            outcome => outcome.map(drop),
        }
    }

    async fn put_whole(&self, name: &FileName, contents: &Bytes, mode: PutMode) -> Result<(), AttemptError> {
        let path = self.path(name.as_str());
        if mode == PutMode::Create && self.is_there(&path).await? {
            return Err(AttemptError::Exists);
        }
        let (folder, _) = path.rsplit_once('/').unwrap_or_default();
        let unfinished = format!("{folder}/{}", unfinished_name()?);
        let outcome = match self.upload(&unfinished, contents).await {
            Ok(()) => self.move_to(&unfinished, &path, mode).await,
            Err(trouble) => Err(trouble),
        };
        if outcome.is_err() {
            // The file may stay: it is invisible.
            drop(self.send(Method::DELETE, &unfinished).await);
        }
        outcome
    }

    /// Lists everything below a collection, several collections at once, so that the latency does
    /// not limit the speed.
    async fn list_collections(&self, folder: &str, into: &mut TargetListing) -> Result<(), AttemptError> {
        let mut left = vec![folder.to_owned()];
        let mut asked = FuturesUnordered::new();
        loop {
            while asked.len() < COLLECTIONS_AT_ONCE
                && let Some(folder) = left.pop()
            {
                asked.push(async move {
                    let name = folder.clone();
                    self.list_collection(folder).await.map_err(|error| error.in_folder(&name))
                });
            }
            let Some(members) = asked.next().await else { return Ok(()) };
            let Some((folder, path, members)) = members? else { continue };
            let folders = take_members(&members, &path, &folder, into);
            left.extend(folders.map_err(|error| error.in_folder(&folder))?);
        }
    }

    /// Requests the members of one collection. Returns its name in the store, its path and the
    /// answer; `None` if it does not exist.
    async fn list_collection(&self, folder: String) -> Result<Option<(String, String, Bytes)>, AttemptError> {
        let path = format!("{}/", self.path(&folder).trim_end_matches('/'));
        let mut request = self.request(method(b"PROPFIND"), &path)?;
        request.headers_mut().insert(HeaderName::from_static("depth"), HeaderValue::from_static("1"));
        request.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/xml"));
        self.http.fill(&mut request, Bytes::from_static(PROPERTIES.as_bytes()));
        let answer = match self.http.send(request).await?.success() {
            Err(AttemptError::NotFound) => return Ok(None),
            answer => answer?,
        };
        if answer.status != StatusCode::MULTI_STATUS {
            return Err(AttemptError::refused(format!(
                "{}: the server does not list collections",
                answer.status
            )));
        }
        Ok(Some((folder, path, answer.body)))
    }
}

/// Adds the objects among the members of the collection at `path`, which is `folder` in the store.
/// Returns its subfolders.
fn take_members(
    answer: &[u8],
    path: &str,
    folder: &str,
    into: &mut TargetListing,
) -> Result<Vec<String>, AttemptError> {
    let (mut href, mut is_collection, mut bytes, mut is_answer) = (String::new(), false, None, false);
    let mut modified = None;
    let mut folders = Vec::new();
    xml::walk(answer, &mut |step| {
        match step {
            XmlEvent::Open("multistatus") => is_answer = true,
            XmlEvent::Open("response") => {
                (href, is_collection, bytes) = (String::new(), false, None);
                modified = None;
            }
            XmlEvent::Open("collection") => is_collection = true,
            XmlEvent::Close("href", text) if href.is_empty() => href = text.trim().into(),
            XmlEvent::Close("getcontentlength", text) => bytes = text.trim().parse::<u64>().ok(),
            XmlEvent::Close("getlastmodified", text) => modified = leftovers::of_http_date(text),
            XmlEvent::Close("response", _) => {
                let own = member(&href, path);
                let name = if folder.is_empty() { own.clone() } else { format!("{folder}/{own}") };
                if own.is_empty() || own.contains('/') {
                    into.pass()?;
                } else if is_collection {
                    into.push_other(&name, NonObjectKind::Folder)?;
                    folders.extend(is_folder_of_a_store(&name).then_some(name));
                } else {
                    // A member without a length cannot be an object.
                    match bytes {
                        Some(bytes) => into.push_changed(&name, bytes, modified)?,
                        None => into.pass()?,
                    }
                }
            }
            _ => {}
        }
        Ok(())
    })?;
    if is_answer { Ok(folders) } else { Err(AttemptError::refused("the server's answer is not a listing")) }
}

/// Returns the name of the member at `href` in the collection at `path`. It is empty for the
/// collection itself and for anything outside of it.
fn member(href: &str, path: &str) -> String {
    let below_host =
        href.split_once("://").map_or(href, |(_, rest)| rest.find('/').map_or("", |at| &rest[at..]));
    let decoded = percent_decode_str(below_host).decode_utf8().unwrap_or_default();
    decoded.strip_prefix(path).unwrap_or_default().trim_end_matches('/').to_owned()
}

fn method(name: &[u8]) -> Method {
    Method::from_bytes(name).expect("the methods of WebDAV are methods")
}

impl fmt::Display for Webdav {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "webdav+http{}://{}", if self.is_encrypted { "s" } else { "" }, self.place)
    }
}

impl AttemptTarget for Webdav {
    type Upload = ();

    fn capabilities(&self) -> Result<Capabilities, AttemptError> {
        Ok(Capabilities { create_is_exclusive: false, ranges: true })
    }

    fn put(&self, name: &FileName, contents: &Bytes, mode: PutMode, (): &mut ()) -> Result<(), AttemptError> {
        self.http.wait(contents.len() as u64, self.put_whole(name, contents, mode))
    }

    fn get(&self, name: &FileName, range: Range<u64>) -> Result<Bytes, AttemptError> {
        let request = self.request_range(name, &range)?;
        self.http.wait(range.end - range.start, self.http.read(request, range))
    }

    fn get_in_pieces(
        &self,
        name: &FileName,
        range: Range<u64>,
        place: u64,
        take: &mut TakePiece<'_>,
    ) -> Result<(), AttemptError> {
        let request = self.request_range(name, &range)?;
        self.http.wait(range.end - range.start, self.http.read_in_pieces(request, range, place, take))
    }

    fn length(&self, name: &FileName) -> Result<u64, AttemptError> {
        self.http.wait(0, self.head(&self.path(name.as_str())))
    }

    fn list(&self, folder: &str, into: &mut TargetListing) -> Result<(), AttemptError> {
        self.http.wait_for_listing(self.list_collections(folder, into))
    }

    fn remove(&self, name: &FileName) -> Result<(), AttemptError> {
        self.http.wait(0, async {
            self.send(Method::DELETE, &self.path(name.as_str())).await?.success().map(drop)
        })
    }

    fn remove_leftover(&self, path: &str) -> Result<(), AttemptError> {
        self.http.wait(0, async { self.send(Method::DELETE, &self.path(path)).await?.success().map(drop) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_are_told_apart() {
        let answer = br#"<?xml version="1.0"?><D:multistatus xmlns:D="DAV:">
            <D:response><D:href>/d%20v/in/</D:href><D:propstat><D:prop><D:resourcetype><D:collection/></D:resourcetype></D:prop></D:propstat></D:response>
            <D:response><D:href>/d%20v/in/sub/</D:href><D:propstat><D:prop><D:resourcetype><D:collection/></D:resourcetype></D:prop></D:propstat></D:response>
            <D:response><D:href>http://host/d%20v/in/x</D:href><D:propstat><D:prop><D:resourcetype/><D:getcontentlength>5</D:getcontentlength><D:getlastmodified>Sun, 13 Nov 1994 08:49:37 GMT</D:getlastmodified></D:prop></D:propstat></D:response>
            <D:response><D:href>/d%20v/in/.varve-0000000000000001.tmp</D:href><D:propstat><D:prop><D:resourcetype/><D:getcontentlength>5</D:getcontentlength><D:getlastmodified>Sun, 06 Nov 1994 08:49:37 GMT</D:getlastmodified></D:prop></D:propstat></D:response>
            <D:response><D:href>/d%20v/in/sub/deep</D:href><D:propstat><D:prop><D:getcontentlength>5</D:getcontentlength></D:prop></D:propstat></D:response>
            <D:response><D:href>/elsewhere/y</D:href><D:propstat><D:prop><D:getcontentlength>5</D:getcontentlength></D:prop></D:propstat></D:response>
            <D:response><D:href>/d%20v/in/%2e%2e/</D:href><D:propstat><D:prop><D:resourcetype><D:collection/></D:resourcetype></D:prop></D:propstat></D:response>
            </D:multistatus>"#;
        let mut listing = TargetListing::default();
        assert_eq!(take_members(answer, "/d v/in/", "in", &mut listing).unwrap(), ["in/sub"]);
        assert_eq!(listing.dead_leftovers(), ["in/.varve-0000000000000001.tmp"]);
        let names: Vec<_> = listing.finish("").into_iter().map(|object| object.name.to_string()).collect();
        assert_eq!(names, ["in/x"]);
        assert!(take_members(b"<html></html>", "/", "", &mut TargetListing::default()).is_err());
    }
}
