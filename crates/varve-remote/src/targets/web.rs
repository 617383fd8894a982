//! Objects in a folder of a server of static files, which can only be read. Such a server lists
//! nothing, and may not know ranges: then it sends whole objects, and the rest is skipped. With TLS
//! it may choose HTTP/2.

use std::fmt;
use std::io;
use std::ops::Range;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use reqwest::header::{ACCEPT_ENCODING, AUTHORIZATION, ETAG, HeaderValue, IF_NONE_MATCH, RANGE};
use reqwest::{Method, Request, StatusCode};
use url::Url;
use varve_block::to_usize;
use varve_world::FileName;

use crate::attempt_error::{AttemptError, chain};
use crate::http::exchange::{self, Http, Redirects};
use crate::http::own_network::refuse_own_address;
use crate::naming::location::HostLocation;
use crate::naming::password::Password;
use crate::naming::target_listing::TargetListing;
use crate::open_options::OpenOptions;
use crate::retry::retrying_target::AttemptTarget;
use crate::target::{Capabilities, PutMode, TakePiece, WholeObject, longer_than};

/// The characters that need no escape in a path.
const PATH: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~').remove(b'/');

/// A longer mark of an object is not remembered, in bytes.
const MARK_BYTES_MAX: usize = 256;

const ONLY_READ: &str =
    "a web server is only read: write webdav+http:// for a WebDAV server, or s3:// for a bucket";

/// A folder of a web server.
pub(crate) struct Web {
    http: Http,
    place: HostLocation,
    is_encrypted: bool,
    /// The URL of the folder, with a slash at its end.
    folder: String,
    authorization: Option<HeaderValue>,
}

impl Web {
    pub fn new(place: HostLocation, is_encrypted: bool, options: &OpenOptions) -> io::Result<Self> {
        let scheme = if is_encrypted { "https" } else { "http" };
        let port = place.port.map(|port| format!(":{port}")).unwrap_or_default();
        let slash = if place.path.is_empty() { "" } else { "/" };
        let path = utf8_percent_encode(&place.path, PATH);
        let folder = format!("{scheme}://{}{port}/{path}{slash}", place.host);
        let password = place.password.as_ref().or(options.password.as_ref());
        let authorization = place.user.as_ref().map(|user| {
            let text = format!("{user}:{}", password.map(Password::reveal).unwrap_or_default());
            HeaderValue::from_str(&format!("Basic {}", STANDARD.encode(&text))).map(|mut value| {
                value.set_sensitive(true);
                value
            })
        });
        let authorization = authorization.transpose().map_err(|error| chain(&error))?;
        if options.public_only {
            refuse_own_address(&Url::parse(&folder).map_err(|error| chain(&error))?)?;
        }
        let http = Http::new(options, is_encrypted, Redirects::Follow)?;
        Ok(Self { http, place, is_encrypted, folder, authorization })
    }

    fn request(&self, method: Method, name: &FileName) -> Result<Request, AttemptError> {
        let url = format!("{}{name}", self.folder);
        let url = Url::parse(&url).map_err(|error| AttemptError::refused(format!("{url}: {error}")))?;
        let mut request = Request::new(method, url);
        // A compressed answer has other bytes and another length.
        request.headers_mut().insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
        if let Some(authorization) = &self.authorization {
            request.headers_mut().insert(AUTHORIZATION, authorization.clone());
        }
        Ok(request)
    }

    fn request_range(&self, name: &FileName, range: &Range<u64>) -> Result<Request, AttemptError> {
        let mut request = self.request(Method::GET, name)?;
        request.headers_mut().insert(RANGE, exchange::range_header(range)?);
        Ok(request)
    }

    async fn whole(
        &self,
        name: &FileName,
        bytes_max: u64,
        known: Option<&str>,
    ) -> Result<Option<WholeObject>, AttemptError> {
        let mut request = self.request(Method::GET, name)?;
        if let Some(known) = known.and_then(|known| HeaderValue::from_str(known).ok()) {
            request.headers_mut().insert(IF_NONE_MATCH, known);
        }
        let limit = to_usize(bytes_max);
        let answer = self.http.send_within(request, limit).await?;
        match answer.status {
            StatusCode::NOT_MODIFIED if known.is_some() => return Ok(None),
            StatusCode::OK => {}
            _ => return Err(answer.attempt_error()),
        }
        if answer.body.len() as u64 > bytes_max {
            return Err(AttemptError::Refused(longer_than(bytes_max)));
        }
        let mark = answer.headers.get(ETAG).and_then(|mark| mark.to_str().ok());
        let mark = mark.filter(|mark| !mark.is_empty() && mark.len() <= MARK_BYTES_MAX).map(str::to_owned);
        Ok(Some(WholeObject { bytes: answer.body, mark }))
    }
}

impl fmt::Display for Web {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "http{}://{}", if self.is_encrypted { "s" } else { "" }, self.place)
    }
}

impl AttemptTarget for Web {
    type Upload = ();

    fn capabilities(&self) -> Result<Capabilities, AttemptError> {
        Ok(Capabilities { create_is_exclusive: false, ranges: self.knows_ranges() })
    }

    fn knows_ranges(&self) -> bool {
        !self.http.ignores_ranges()
    }

    fn multiplexes(&self) -> bool {
        self.http.multiplexes()
    }

    fn put(&self, _: &FileName, _: &Bytes, _: PutMode, (): &mut ()) -> Result<(), AttemptError> {
        Err(AttemptError::refused(ONLY_READ))
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

    fn get_whole(
        &self,
        name: &FileName,
        bytes_max: u64,
        known: Option<&str>,
    ) -> Result<Option<WholeObject>, AttemptError> {
        self.http.wait(bytes_max, self.whole(name, bytes_max, known))
    }

    fn length(&self, name: &FileName) -> Result<u64, AttemptError> {
        self.http.wait(0, async {
            let answer = self.http.send(self.request(Method::HEAD, name)?).await?.success()?;
            answer.content_length()
        })
    }

    fn list(&self, _folder: &str, _into: &mut TargetListing) -> Result<(), AttemptError> {
        Err(AttemptError::refused(ONLY_READ))
    }

    fn remove(&self, _name: &FileName) -> Result<(), AttemptError> {
        Err(AttemptError::refused(ONLY_READ))
    }
}
