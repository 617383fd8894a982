//! Objects in an S3-compatible bucket.
//!
//! This module builds the requests. The library signs them and finds credentials (the environment,
//! a web identity, the machine's own role). An object larger than [`PART_BYTES`] is uploaded in
//! parts, so that parts that have arrived are not sent again after a lost connection. It appears
//! when the upload is completed.
//!
//! Exclusive creation uses `If-None-Match: *`. Some servers ignore it and replace the object. So it
//! is tried first on an object of our own, [`PROBE`], which no store uses. If the server ignores
//! it, creation checks before it writes. Creation never removes anything, so a bucket may be
//! write-once.

mod bucket_url;
mod locks;
mod versions;

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use aws_lc_rs::digest::{SHA256, digest};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use futures_util::{StreamExt, stream};
use object_store::aws::{
    AmazonS3Builder, AmazonS3ConfigKey, AwsAuthorizer, AwsCredential, AwsCredentialProvider,
};
use object_store::client::{HttpRequest, HttpRequestBody};
use object_store::{RetryConfig, StaticCredentialProvider};
use parking_lot::Mutex;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use reqwest::header::{ETAG, HeaderMap, HeaderName, HeaderValue, IF_NONE_MATCH, RANGE};
use reqwest::{Method, Request, StatusCode};
use url::Url;
use varve_world::FileName;

use self::bucket_url::bucket_url;
use self::locks::{legal_hold, lock_of, until_day};
use self::versions::{HiddenSearch, ListedVersion, PastBucket, VersionMarker, take_version_page};
use crate::attempt_error::{AttemptError, chain};
use crate::http::exchange::{self, Http, HttpAnswer, Redirects};
use crate::http::xml::{self, XmlEvent};
use crate::naming::location::S3Location;
use crate::naming::target_listing::TargetListing;
use crate::open_options::OpenOptions;
use crate::retry::retrying_target::AttemptTarget;
use crate::target::{Capabilities, Erased, HiddenObjects, ObjectLock, PutMode, TakePiece};

/// The object on which exclusive creation is tried.
const PROBE: &str = ".varve-probe";

/// The size of a part, unless that makes too many parts.
const PART_BYTES: usize = 16 << 20;
/// The protocol allows 10,000.
const PART_COUNT_MAX: usize = 9_000;
/// The parts that are uploaded at once.
const PARTS_AT_ONCE: usize = 4;

/// The most pages of a listing. A longer one counts as endless.
const PAGE_COUNT_MAX: usize = 200_000;

/// The characters that need no escape in a path.
const PATH: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~').remove(b'/');
/// The characters that need no escape in a query.
const QUERY: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// A bucket, or the objects in it with a prefix.
pub(crate) struct S3 {
    http: Http,
    place: S3Location,
    /// The URL of the bucket, without a slash at its end.
    bucket: String,
    region: String,
    /// `None` for a public bucket.
    credentials: Option<AwsCredentialProvider>,
    honoured: Mutex<ConditionalPuts>,
    /// The objects of the moment that the location names, once they were listed.
    past: Mutex<Option<Arc<PastBucket>>>,
}

/// True if `If-None-Match` is honoured; `None` if it was not tried yet.
#[derive(Default)]
struct ConditionalPuts {
    by_puts: Option<bool>,
    by_completions: Option<bool>,
}

/// The state of an upload in parts.
#[derive(Default)]
pub(crate) struct MultipartUpload {
    id: Option<String>,
    /// The tags that the server assigned, by part number, from 1.
    parts: BTreeMap<usize, String>,
}

impl S3 {
    pub fn new(place: S3Location, options: &OpenOptions) -> std::io::Result<Self> {
        let mut builder = AmazonS3Builder::from_env()
            .with_bucket_name(&place.bucket)
            .with_allow_http(true)
            .with_retry(RetryConfig {
                max_retries: 1,
                retry_timeout: Duration::from_secs(10),
                ..RetryConfig::default()
            });
        if let Some(region) = &place.region {
            builder = builder.with_region(region);
        }
        if let Some(keys) = &options.s3_keys {
            builder =
                builder.with_access_key_id(&keys.key_id).with_secret_access_key(keys.secret_key.reveal());
            if let Some(token) = &keys.session_token {
                builder = builder.with_token(token.reveal());
            }
        }
        let setting = |key| builder.get_config_value(&key).filter(|value: &String| !value.is_empty());
        let region = setting(AmazonS3ConfigKey::Region).unwrap_or_else(|| "us-east-1".into());
        let endpoint = place.endpoint.clone();
        let endpoint = endpoint
            .or_else(|| setting(AmazonS3ConfigKey::S3Endpoint))
            .or_else(|| setting(AmazonS3ConfigKey::Endpoint));
        let is_open = setting(AmazonS3ConfigKey::SkipSignature).is_some_and(|value| value == "true");
        let bucket = bucket_url(&place, endpoint.as_deref(), &region)?;
        let key = setting(AmazonS3ConfigKey::AccessKeyId).zip(setting(AmazonS3ConfigKey::SecretAccessKey));
        let token = setting(AmazonS3ConfigKey::Token);
        let credentials = match (is_open, key) {
            (true, _) => None,
            (false, Some((key_id, secret_key))) => {
                Some(Arc::new(StaticCredentialProvider::new(AwsCredential { key_id, secret_key, token })) as _)
            }
            // The library knows other sources of credentials. For these it makes an HTTP client,
            // which reads all certificates of the machine.
            (false, None) => Some(builder.build().map_err(|error| chain(&error))?.credentials().clone()),
        };
        let http = Http::new(options, !bucket.starts_with("http:"), Redirects::Refuse)?;
        Ok(Self {
            http,
            place,
            bucket,
            region,
            credentials,
            honoured: Mutex::default(),
            past: Mutex::default(),
        })
    }

    fn key(&self, name: &str) -> String {
        if self.place.prefix.is_empty() { name.into() } else { format!("{}/{name}", self.place.prefix) }
    }

    /// Makes, signs and sends a request. `query` must be sorted by name.
    async fn send(
        &self,
        method: Method,
        key: &str,
        query: &[(&str, &str)],
        headers: HeaderMap,
        body: Bytes,
    ) -> Result<HttpAnswer, AttemptError> {
        self.http.send(self.request(method, key, query, headers, body).await?).await
    }

    async fn request(
        &self,
        method: Method,
        key: &str,
        query: &[(&str, &str)],
        headers: HeaderMap,
        body: Bytes,
    ) -> Result<Request, AttemptError> {
        let mut url = self.bucket.clone();
        if !key.is_empty() {
            url = format!("{url}/{}", utf8_percent_encode(key, PATH));
        }
        for (index, (name, value)) in query.iter().enumerate() {
            let separator = if index == 0 { '?' } else { '&' };
            url = format!("{url}{separator}{name}={}", utf8_percent_encode(value, QUERY));
        }
        let url = Url::parse(&url).map_err(|error| AttemptError::refused(format!("{url}: {error}")))?;
        let mut signed = HttpRequest::new(HttpRequestBody::empty());
        *signed.method_mut() = method.clone();
        *signed.uri_mut() =
            url.as_str().parse().map_err(|error| AttemptError::refused(format!("{url}: {error}")))?;
        *signed.headers_mut() = headers;
        let hash = digest(&SHA256, &body);
        if method == Method::PUT {
            // A bucket with object lock requires it.
            let checksum = HeaderValue::from_str(&STANDARD.encode(hash.as_ref()))
                .map_err(|e| AttemptError::Refused(chain(&e)))?;
            signed.headers_mut().insert(HeaderName::from_static("x-amz-checksum-sha256"), checksum);
        }
        if let Some(provider) = &self.credentials {
            let credential = provider.get_credential().await.map_err(|error| {
                let text = "no credentials (set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY)";
                AttemptError::refused(format!("{text}: {}", chain(&error)))
            })?;
            let authorizer = AwsAuthorizer::new(&credential, "s3", &self.region);
            authorizer
                .try_authorize(&mut signed, Some(hash.as_ref()))
                .map_err(|error| AttemptError::Refused(chain(&error)))?;
        }
        let has_body = matches!(method, Method::PUT | Method::POST);
        let mut request = Request::new(method, url);
        *request.headers_mut() = std::mem::take(signed.headers_mut());
        if has_body {
            self.http.fill(&mut request, body);
        }
        Ok(request)
    }

    /// Makes the request for a range of an object.
    async fn request_range(&self, name: &FileName, range: &Range<u64>) -> Result<Request, AttemptError> {
        let mut headers = HeaderMap::new();
        headers.insert(RANGE, exchange::range_header(range)?);
        let version = self.past_version(name).await?;
        let query = version.as_deref().map(|version| ("versionId", version));
        self.request(Method::GET, &self.key(name.as_str()), query.as_slice(), headers, Bytes::new()).await
    }

    async fn head(&self, name: &FileName) -> Result<HttpAnswer, AttemptError> {
        let key = self.key(name.as_str());
        let version = self.past_version(name).await?;
        let query = version.as_deref().map(|version| ("versionId", version));
        self.send(Method::HEAD, &key, query.as_slice(), HeaderMap::new(), Bytes::new()).await?.success()
    }

    /// Returns the version that an object had at the moment of the location; `None` if it names
    /// none, for the present object.
    async fn past_version(&self, name: &FileName) -> Result<Option<String>, AttemptError> {
        let past = self.past().await?;
        past.map(|past| past.version(name.as_str()).map(str::to_owned)).transpose()
    }

    /// Returns the bucket as it was at the moment of the location; `None` if it names none.
    async fn past(&self) -> Result<Option<Arc<PastBucket>>, AttemptError> {
        let Some(moment) = self.place.as_of else { return Ok(None) };
        if let Some(past) = &*self.past.lock() {
            return Ok(Some(Arc::clone(past)));
        }
        let mut past = PastBucket::at(moment);
        self.list_versions(&mut |version| past.add(version)).await?;
        let past = Arc::new(past.settle());
        *self.past.lock() = Some(Arc::clone(&past));
        Ok(Some(past))
    }

    /// Fails if the location names a moment of the past, which nobody can change.
    fn require_present(&self) -> Result<(), AttemptError> {
        match self.place.as_of {
            Some(_) => {
                Err(AttemptError::refused("the bucket is read as it was: remove `as-of` from the URL"))
            }
            None => Ok(()),
        }
    }

    /// Removes the newest version of an object, and not only its name. The server judges its lock.
    async fn erase_version(&self, name: &FileName) -> Result<Erased, AttemptError> {
        let head = self.head(name).await?;
        let (lock, version) = (lock_of(&head.headers), version_of(&head.headers));
        let query = version.map(|version| ("versionId", version));
        let key = self.key(name.as_str());
        let answer =
            self.send(Method::DELETE, &key, query.as_slice(), HeaderMap::new(), Bytes::new()).await?;
        if answer.status != StatusCode::FORBIDDEN {
            return answer.success().map(|_| Erased::Gone);
        }
        // Not every server tells of a lock in the headers of the object.
        let lock = match lock {
            Some(lock) => Some(lock),
            None => self.ask_for_lock(&key, version).await,
        };
        match lock {
            Some(lock) => Ok(Erased::Locked(lock)),
            None => answer.success().map(|_| Erased::Gone),
        }
    }

    /// Asks for the lock of a version whose removal was refused.
    async fn ask_for_lock(&self, key: &str, version: Option<&str>) -> Option<ObjectLock> {
        // The text of an error has none of these elements.
        let legal_hold_text = self.ask_of_version(key, version, "legal-hold", "Status").await;
        match legal_hold(&legal_hold_text) {
            Some(hold) => Some(hold),
            None => until_day(&self.ask_of_version(key, version, "retention", "RetainUntilDate").await),
        }
    }

    /// Asks about a version; the text of an element of the answer, or an empty one.
    async fn ask_of_version(
        &self,
        key: &str,
        version: Option<&str>,
        question: &str,
        element: &str,
    ) -> String {
        let mut query = vec![(question, "")];
        query.extend(version.map(|version| ("versionId", version)));
        let asked = self.send(Method::GET, key, &query, HeaderMap::new(), Bytes::new()).await;
        asked.map(|answer| xml::first_text(&answer.body, element)).unwrap_or_default()
    }

    async fn is_there(&self, name: &FileName) -> Result<bool, AttemptError> {
        match self.head(name).await {
            Ok(_) => Ok(true),
            Err(AttemptError::NotFound) => Ok(false),
            Err(other) => Err(other),
        }
    }

    /// Puts an object in one request.
    async fn put_whole(
        &self,
        key: &str,
        contents: Bytes,
        only_new: bool,
    ) -> Result<HttpAnswer, AttemptError> {
        self.send(Method::PUT, key, &[], condition(only_new), contents).await
    }

    async fn start(&self, key: &str) -> Result<String, AttemptError> {
        let mut headers = HeaderMap::new();
        let algorithm = HeaderName::from_static("x-amz-checksum-algorithm");
        headers.insert(algorithm, HeaderValue::from_static("SHA256"));
        let answer =
            self.send(Method::POST, key, &[("uploads", "")], headers, Bytes::new()).await?.success()?;
        match xml::first_text(&answer.body, "UploadId") {
            id if id.is_empty() => Err(AttemptError::passing("the server began an upload without a name")),
            id => Ok(id),
        }
    }

    async fn put_part(
        &self,
        key: &str,
        id: &str,
        number: usize,
        part: Bytes,
    ) -> Result<String, AttemptError> {
        let text = number.to_string();
        let query = [("partNumber", text.as_str()), ("uploadId", id)];
        let answer = self.send(Method::PUT, key, &query, HeaderMap::new(), part).await?.success()?;
        let tag = answer.headers.get(ETAG).and_then(|tag| tag.to_str().ok());
        tag.map(str::to_owned).ok_or_else(|| AttemptError::passing("the server sent no tag for a part"))
    }

    /// Completes an upload from its parts.
    async fn complete(
        &self,
        key: &str,
        id: &str,
        parts: impl Iterator<Item = (usize, String, String)>,
        bytes: u64,
        only_new: bool,
    ) -> Result<HttpAnswer, AttemptError> {
        let mut body = String::from("<CompleteMultipartUpload>");
        for (number, tag, checksum) in parts {
            body += &format!(
                "<Part><ChecksumSHA256>{checksum}</ChecksumSHA256><ETag>{}</ETag><PartNumber>{number}</PartNumber></Part>",
                tag.replace('&', "&amp;").replace('<', "&lt;").replace('"', "&quot;")
            );
        }
        body += "</CompleteMultipartUpload>";
        let query = [("uploadId", id)];
        let request = self.request(Method::POST, key, &query, condition(only_new), body.into()).await?;
        let mut answer = self.http.send_for_work(request, bytes).await?;
        // The server sends the status before the work is done. The work may still fail.
        if answer.status.is_success() && !answer.code().is_empty() {
            answer.status = match answer.code().as_str() {
                "PreconditionFailed" => StatusCode::PRECONDITION_FAILED,
                _ => StatusCode::INTERNAL_SERVER_ERROR,
            };
        }
        Ok(answer)
    }

    async fn abort(&self, key: &str, id: &str) -> Result<(), AttemptError> {
        self.send(Method::DELETE, key, &[("uploadId", id)], HeaderMap::new(), Bytes::new()).await.map(|_| ())
    }

    /// Returns true if the server honours `If-None-Match: *` for puts.
    async fn puts_are_exclusive(&self) -> Result<bool, AttemptError> {
        if let Some(known) = self.honoured.lock().by_puts {
            return Ok(known);
        }
        let key = self.key(PROBE);
        let contents = || Bytes::from_static(b"varve tries here whether creation is exclusive\n");
        let mut honoured = false;
        // The first put may create the object. The second must be refused.
        for _ in 0..2 {
            let answer = self.put_whole(&key, contents(), true).await?;
            match answer.status {
                StatusCode::PRECONDITION_FAILED => {
                    honoured = true;
                    break;
                }
                StatusCode::NOT_IMPLEMENTED | StatusCode::BAD_REQUEST => break,
                StatusCode::CONFLICT => return Err(AttemptError::passing("another program does the same")),
                _ => drop(answer.success()?),
            }
        }
        self.honoured.lock().by_puts = Some(honoured);
        Ok(honoured)
    }

    /// Does the same for the completion of an upload in parts. The object of the other probe
    /// exists.
    async fn completions_are_exclusive(&self) -> Result<bool, AttemptError> {
        if let Some(known) = self.honoured.lock().by_completions {
            return Ok(known);
        }
        let mut honoured = false;
        if self.puts_are_exclusive().await? {
            let key = self.key(PROBE);
            let id = self.start(&key).await?;
            let part = Bytes::from_static(b"varve tries here whether creation is exclusive\n");
            let checksum = STANDARD.encode(digest(&SHA256, &part).as_ref());
            let bytes = part.len() as u64;
            let tag = self.put_part(&key, &id, 1, part).await?;
            let answer = self.complete(&key, &id, [(1, tag, checksum)].into_iter(), bytes, true).await?;
            honoured = answer.status == StatusCode::PRECONDITION_FAILED;
            if !answer.status.is_success() {
                self.abort(&key, &id).await?;
            }
            if answer.status.is_server_error() && answer.status != StatusCode::NOT_IMPLEMENTED {
                return Err(answer.attempt_error());
            }
        }
        self.honoured.lock().by_completions = Some(honoured);
        Ok(honoured)
    }

    async fn put_small(&self, name: &FileName, contents: Bytes, mode: PutMode) -> Result<(), AttemptError> {
        let only_new = mode == PutMode::Create && self.puts_are_exclusive().await?;
        if mode == PutMode::Create && !only_new && self.is_there(name).await? {
            return Err(AttemptError::Exists);
        }
        let answer = self.put_whole(&self.key(name.as_str()), contents, only_new).await?;
        self.settled(name, answer, only_new).await
    }

    /// Converts the answer to a creation or a replacement.
    async fn settled(&self, name: &FileName, answer: HttpAnswer, only_new: bool) -> Result<(), AttemptError> {
        if only_new && answer.status == StatusCode::CONFLICT {
            // Two creators at the same time: the server refused one or both.
            let is_there = self.is_there(name).await?;
            return Err(if is_there {
                AttemptError::Exists
            } else {
                AttemptError::passing("two creators at once")
            });
        }
        answer.success().map(drop)
    }

    async fn put_large(
        &self,
        name: &FileName,
        contents: &Bytes,
        mode: PutMode,
        upload: &mut MultipartUpload,
    ) -> Result<(), AttemptError> {
        let only_new = mode == PutMode::Create && self.completions_are_exclusive().await?;
        // Checked before the upload, which is large.
        if mode == PutMode::Create && self.is_there(name).await? {
            return Err(AttemptError::Exists);
        }
        let key = self.key(name.as_str());
        let id = match &upload.id {
            Some(id) => id.clone(),
            None => upload.id.insert(self.start(&key).await?).clone(),
        };
        let part_bytes = PART_BYTES.max(contents.len().div_ceil(PART_COUNT_MAX));
        let parts: Vec<_> = (1..).zip(split(contents, part_bytes)).collect();
        let missing: Vec<_> =
            parts.iter().filter(|(number, _)| !upload.parts.contains_key(number)).cloned().collect();
        let mut arriving = stream::iter(missing)
            .map(|(number, part)| {
                let (key, id) = (&key, &id);
                async move { self.put_part(key, id, number, part).await.map(|tag| (number, tag)) }
            })
            .buffer_unordered(PARTS_AT_ONCE);
        let mut outcome = Ok(());
        // If one part fails, the other parts on their way still count.
        while let Some(arrived) = arriving.next().await {
            match arrived {
                Ok((number, tag)) => drop(upload.parts.insert(number, tag)),
                Err(trouble) if outcome.is_ok() => outcome = Err(trouble),
                Err(_) => {}
            }
        }
        drop(arriving);
        if let Err(trouble) = outcome {
            return Err(forget_if_gone(trouble, upload));
        }
        let tagged = parts.iter().filter_map(|(number, part)| {
            let checksum = STANDARD.encode(digest(&SHA256, part).as_ref());
            upload.parts.get(number).map(|tag| (*number, tag.clone(), checksum))
        });
        let answer = self.complete(&key, &id, tagged, contents.len() as u64, only_new).await?;
        match self.settled(name, answer, only_new).await {
            // The upload was completed by a request with a lost answer, or was dropped. The next
            // attempt will see.
            Err(trouble) => Err(forget_if_gone(trouble, upload)),
            Ok(()) => {
                *upload = MultipartUpload::default();
                Ok(())
            }
        }
    }

    /// Calls `take` for each version of each object of a store.
    async fn list_versions(&self, take: &mut dyn FnMut(ListedVersion)) -> Result<(), AttemptError> {
        let prefix = self.key("");
        let mut bound = TargetListing::default();
        let mut next = None;
        for _ in 0..PAGE_COUNT_MAX {
            let mut query = vec![("max-keys", "1000"), ("prefix", prefix.as_str())];
            if let Some(VersionMarker { key, version }) = &next {
                query.insert(0, ("key-marker", key));
                query.push(("version-id-marker", version));
            }
            query.push(("versions", ""));
            let answer =
                self.send(Method::GET, "", &query, HeaderMap::new(), Bytes::new()).await?.success()?;
            let following = take_version_page(&answer.body, &prefix, &mut |version| {
                bound.pass()?;
                version.into_iter().for_each(&mut *take);
                Ok(())
            })?;
            match following {
                None => return Ok(()),
                following if following == next => break,
                following => next = following,
            }
        }
        Err(AttemptError::refused("its listing of versions is endless"))
    }

    async fn list_pages(&self, folder: &str, into: &mut TargetListing) -> Result<(), AttemptError> {
        let prefix = match (self.key(folder), folder) {
            (key, "") => key,
            (key, _) => format!("{key}/"),
        };
        let mut token: Option<String> = None;
        for _ in 0..PAGE_COUNT_MAX {
            let mut query = vec![("list-type", "2"), ("max-keys", "1000"), ("prefix", prefix.as_str())];
            if let Some(token) = &token {
                query.insert(0, ("continuation-token", token));
            }
            let answer =
                self.send(Method::GET, "", &query, HeaderMap::new(), Bytes::new()).await?.success()?;
            let next = take_page(&answer.body, self.key("").as_str(), into)?;
            match next {
                None => return Ok(()),
                next if next == token => {
                    return Err(AttemptError::refused(
                        "its listing is endless: a page names itself as the next",
                    ));
                }
                next => token = next,
            }
        }
        Err(AttemptError::refused("its listing is endless"))
    }
}

/// Adds the objects of one page of a listing. Returns the token of the next page.
fn take_page(page: &[u8], prefix: &str, into: &mut TargetListing) -> Result<Option<String>, AttemptError> {
    let (mut key, mut bytes) = (String::new(), None);
    let (mut is_listing, mut is_cut, mut next) = (false, false, None);
    xml::walk(page, &mut |step| {
        match step {
            XmlEvent::Open("ListBucketResult") => is_listing = true,
            XmlEvent::Open("Contents") => (key, bytes) = (String::new(), None),
            XmlEvent::Close("Key", text) => key = text.into(),
            XmlEvent::Close("Size", text) => bytes = text.trim().parse::<u64>().ok(),
            XmlEvent::Close("IsTruncated", text) => is_cut = text.trim() == "true",
            XmlEvent::Close("NextContinuationToken", text) => next = Some(text.to_owned()),
            XmlEvent::Close("Contents", _) => match (key.strip_prefix(prefix), bytes) {
                (Some(name), Some(bytes)) => into.push(name, bytes)?,
                _ => into.pass()?,
            },
            _ => {}
        }
        Ok(())
    })?;
    match (is_listing, is_cut, next) {
        (true, false, _) => Ok(None),
        (true, true, Some(next)) => Ok(Some(next)),
        _ => Err(AttemptError::refused("the server's answer is not a complete page of a listing")),
    }
}

/// Returns the version of an object in a bucket that keeps versions.
fn version_of(headers: &HeaderMap) -> Option<&str> {
    let version = headers.get("x-amz-version-id")?.to_str().ok()?;
    (version != "null").then_some(version)
}

fn forget_if_gone(trouble: AttemptError, upload: &mut MultipartUpload) -> AttemptError {
    match trouble {
        AttemptError::NotFound => {
            *upload = MultipartUpload::default();
            AttemptError::passing("the server no longer knows the upload")
        }
        other => other,
    }
}

fn split(contents: &Bytes, part_bytes: usize) -> impl Iterator<Item = Bytes> {
    let starts = (0..contents.len()).step_by(part_bytes);
    starts.map(move |start| contents.slice(start..contents.len().min(start + part_bytes)))
}

fn condition(only_new: bool) -> HeaderMap {
    let mut headers = HeaderMap::new();
    if only_new {
        headers.insert(IF_NONE_MATCH, HeaderValue::from_static("*"));
    }
    headers
}

impl fmt::Display for S3 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.place.fmt(f)
    }
}

impl AttemptTarget for S3 {
    type Upload = MultipartUpload;

    fn capabilities(&self) -> Result<Capabilities, AttemptError> {
        if self.place.as_of.is_some() {
            return Ok(Capabilities { create_is_exclusive: false, ranges: true });
        }
        let create_is_exclusive = self.http.wait(0, async {
            Ok(self.puts_are_exclusive().await? && self.completions_are_exclusive().await?)
        });
        match create_is_exclusive {
            // A reader without write access creates nothing.
            Err(AttemptError::Refused(_)) => Ok(Capabilities { create_is_exclusive: false, ranges: true }),
            other => Ok(Capabilities { create_is_exclusive: other?, ranges: true }),
        }
    }

    fn put(
        &self,
        name: &FileName,
        contents: &Bytes,
        mode: PutMode,
        upload: &mut MultipartUpload,
    ) -> Result<(), AttemptError> {
        self.require_present()?;
        self.http.wait(contents.len() as u64, async {
            if contents.len() > PART_BYTES {
                self.put_large(name, contents, mode, upload).await
            } else {
                self.put_small(name, contents.clone(), mode).await
            }
        })
    }

    fn abandon(&self, name: &FileName, upload: MultipartUpload) {
        if let Some(id) = upload.id {
            // Remaining parts are invisible. Lifecycle rules of the bucket may remove them.
            drop(self.http.wait(0, self.abort(&self.key(name.as_str()), &id)));
        }
    }

    fn get(&self, name: &FileName, range: Range<u64>) -> Result<Bytes, AttemptError> {
        self.http.wait(range.end - range.start, async {
            let request = self.request_range(name, &range).await?;
            self.http.read(request, range).await
        })
    }

    fn get_in_pieces(
        &self,
        name: &FileName,
        range: Range<u64>,
        place: u64,
        take: &mut TakePiece<'_>,
    ) -> Result<(), AttemptError> {
        self.http.wait(range.end - range.start, async {
            let request = self.request_range(name, &range).await?;
            self.http.read_in_pieces(request, range, place, take).await
        })
    }

    fn length(&self, name: &FileName) -> Result<u64, AttemptError> {
        self.http.wait(0, async { self.head(name).await?.content_length() })
    }

    fn list(&self, folder: &str, into: &mut TargetListing) -> Result<(), AttemptError> {
        self.http.wait_for_listing(async {
            match self.past().await? {
                Some(past) => past.objects().try_for_each(|(name, bytes)| into.push(name, bytes)),
                None => self.list_pages(folder, into).await,
            }
        })
    }

    fn hidden(&self) -> Result<Option<HiddenObjects>, AttemptError> {
        if self.place.as_of.is_some() {
            return Ok(None);
        }
        let mut search = HiddenSearch::default();
        let listed = self.http.wait_for_listing(self.list_versions(&mut |version| search.add(&version)));
        match listed {
            Ok(()) => Ok(search.finish().map(|(count, since)| {
                let before = S3Location { as_of: Some(since), ..self.place.clone() };
                HiddenObjects { count, since: since.to_string(), before: before.to_string() }
            })),
            // The reader may not list versions, or the server has none.
            Err(AttemptError::Refused(_) | AttemptError::NotFound) => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn lock(&self, name: &FileName) -> Result<Option<ObjectLock>, AttemptError> {
        self.http.wait(0, async {
            let head = self.head(name).await?;
            let version = version_of(&head.headers);
            match lock_of(&head.headers) {
                Some(lock) => Ok(Some(lock)),
                None => Ok(self.ask_for_lock(&self.key(name.as_str()), version).await),
            }
        })
    }

    fn remove(&self, name: &FileName) -> Result<(), AttemptError> {
        self.require_present()?;
        self.http.wait(0, async {
            // The server's answer is the same whether the object existed or not.
            self.head(name).await?;
            let key = self.key(name.as_str());
            self.send(Method::DELETE, &key, &[], HeaderMap::new(), Bytes::new()).await?.success().map(drop)
        })
    }

    fn erase(&self, name: &FileName) -> Result<Erased, AttemptError> {
        self.require_present()?;
        self.http.wait(0, self.erase_version(name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_read_whole_or_not_at_all() {
        let mut listing = TargetListing::default();
        let page = b"<ListBucketResult><IsTruncated>true</IsTruncated><NextContinuationToken>a&amp;b</NextContinuationToken>\
            <Contents><Key>in/x</Key><Size>5</Size></Contents><Contents><Key>out/y</Key><Size>5</Size></Contents>\
            <Contents><Key>in/</Key><Size>0</Size></Contents><Contents><Key>in/../z</Key><Size>1</Size></Contents>\
            </ListBucketResult>";
        assert_eq!(take_page(page, "in/", &mut listing).unwrap().as_deref(), Some("a&b"));
        let listed = listing.finish("");
        assert_eq!(listed.len(), 1);
        assert_eq!((listed[0].name.as_str(), listed[0].bytes), ("x", 5));
        for page in [
            &page[..page.len() - 5],
            b"<html></html>",
            b"",
            b"<ListBucketResult><IsTruncated>true</IsTruncated></ListBucketResult>",
        ] {
            assert!(take_page(page, "", &mut TargetListing::default()).is_err());
        }
    }

    #[test]
    fn parts_make_up_the_whole() {
        let contents = Bytes::from((0..=255).collect::<Vec<u8>>());
        let parts: Vec<_> = split(&contents, 100).collect();
        assert_eq!(parts.iter().map(Bytes::len).collect::<Vec<_>>(), [100, 100, 56]);
        assert_eq!(parts.concat(), contents);
    }
}
