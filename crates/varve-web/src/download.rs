//! Downloads: a file as it is, a folder as a tar or zip file, and the pictures of pages.
//!
//! Archived bytes are hostile. They are sent as an attachment of no particular type, in a sandbox,
//! so that a browser neither shows nor runs them. Only a picture of a known kind has a type.

mod folder_walk;
pub(crate) mod sent_bytes;
pub(crate) mod tar;
pub(crate) mod tar_header;
pub(crate) mod zip;

use std::ops::Range;
use std::sync::Arc;

use axum::body::Body;
use axum::http::header::{
    ACCEPT_RANGES, CONTENT_DISPOSITION, CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE, HeaderValue, RANGE,
};
use axum::http::request::Parts;
use axum::http::{HeaderMap, Method, Request, StatusCode};
use axum::response::{IntoResponse, Response};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_encode};
use tokio::sync::OwnedSemaphorePermit;
use varve_block::with_causes;
use varve_content::folder::StoredFiles;
use varve_content::{NodeKind, Progress};

use crate::archive::open_files::OpenFiles;
use crate::archive::place::Place;
use crate::gate::headers::sandbox;
use crate::pages::page::{PageError, error_page};
use crate::pages::snapshot_place::SnapshotPlace;
use crate::redirect::to_login;
use crate::show::is_misleading;
use crate::site::{PageRequest, Site};
use sent_bytes::SentBytes;

/// The characters that need no escape in the name of a download.
const IN_FILE_NAME: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.');
const NO_PICTURE: &str = "Only pictures of known kinds are shown.";
const TYPE: HeaderValue = HeaderValue::from_static("application/octet-stream");

/// The form of a download.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    File,
    Tar,
    Zip,
    /// A file that is a picture, for a page that shows it.
    Picture,
}

impl Form {
    fn prefix(self) -> &'static str {
        match self {
            Self::File => "/download/",
            Self::Tar => "/tar/",
            Self::Zip => "/zip/",
            Self::Picture => "/picture/",
        }
    }

    /// The ending that the name of the download gets.
    fn ending(self) -> &'static [u8] {
        match self {
            Self::Tar => b".tar",
            Self::Zip => b".zip",
            Self::File | Self::Picture => b"",
        }
    }
}

/// A place that was found.
struct Found {
    place: Place,
    file_name: Vec<u8>,
    snapshot: varve_archive::Snapshot,
    media_type: HeaderValue,
}

/// Answers a request for a download.
pub(crate) async fn answer(site: Arc<Site>, request: Request<Body>, form: Form) -> Response {
    let (Parts { headers, uri, method, .. }, _) = request.into_parts();
    let Some(session) = site.gate.session(&headers) else { return to_login(&uri) };
    let Ok(slot) = Arc::clone(&site.download_slots).try_acquire_owned() else {
        let text = "There are too many downloads. Please try again when one has ended.\n";
        return (StatusCode::SERVICE_UNAVAILABLE, text).into_response();
    };
    let made = tokio::task::spawn_blocking(move || {
        let request = site.request(session, uri);
        match find(&request, form) {
            Ok(found) => send(&request.site, found, form, &headers, method == Method::HEAD, slot),
            Err(error) => error_page(&request, &error).map_or_else(
                |_| StatusCode::INTERNAL_SERVER_ERROR.into_response(),
                IntoResponse::into_response,
            ),
        }
    });
    made.await.unwrap_or_else(|_| StatusCode::INTERNAL_SERVER_ERROR.into_response())
}

fn find(request: &PageRequest, form: Form) -> Result<Found, PageError> {
    let at = SnapshotPlace::parse(request, form.prefix())?;
    let place = at.find(request)?;
    let is_fitting = match form {
        Form::File | Form::Picture => place.node.kind == NodeKind::File,
        Form::Tar | Form::Zip => place.node.kind == NodeKind::Folder,
    };
    if !is_fitting {
        return Err(PageError::absent(match form {
            Form::File => "Only files can be downloaded as they are.",
            Form::Tar => "Only folders can be downloaded as tar files.",
            Form::Zip => "Only folders can be downloaded as zip files.",
            Form::Picture => NO_PICTURE,
        }));
    }
    let media_type = match form {
        Form::Picture => {
            let picture = place.picture().ok_or_else(|| PageError::absent(NO_PICTURE))?;
            HeaderValue::from_static(picture.media_type)
        }
        _ => TYPE,
    };
    let own = match at.path.rsplit(|byte| *byte == b'/').find(|name| !name.is_empty()) {
        Some(name) => name.to_vec(),
        None => at.snapshot.name.clone().into_bytes(),
    };
    let file_name = [&own, form.ending()].concat();
    Ok(Found { place, file_name, snapshot: at.snapshot.clone(), media_type })
}

fn send(
    site: &Arc<Site>,
    found: Found,
    form: Form,
    headers: &HeaderMap,
    is_head: bool,
    slot: OwnedSemaphorePermit,
) -> Response {
    let size = found.place.node.size;
    let file_name = disposition(&found.file_name);
    let range = match form {
        Form::File => single_range(headers, size),
        Form::Tar | Form::Zip | Form::Picture => RangeWish::Whole,
    };
    let (status, range) = match range {
        RangeWish::Whole => (StatusCode::OK, 0..size),
        RangeWish::Part(range) => (StatusCode::PARTIAL_CONTENT, range),
        RangeWish::Impossible => {
            let mut answer = StatusCode::RANGE_NOT_SATISFIABLE.into_response();
            put(&mut answer, CONTENT_RANGE, &format!("bytes */{size}"));
            return answer;
        }
    };
    let media_type = found.media_type.clone();
    let body =
        if is_head { Body::empty() } else { stream(Arc::clone(site), found, form, range.clone(), slot) };
    let mut answer = (status, body).into_response();
    sandbox(&mut answer);
    answer.headers_mut().insert(CONTENT_TYPE, media_type);
    // A page shows the picture all the same. A browser that opens its address stores it.
    put(&mut answer, CONTENT_DISPOSITION, &file_name);
    if form == Form::File {
        put(&mut answer, ACCEPT_RANGES, "bytes");
        put(&mut answer, CONTENT_LENGTH, &(range.end - range.start).to_string());
    }
    if status == StatusCode::PARTIAL_CONTENT {
        let last = range.end.saturating_sub(1);
        put(&mut answer, CONTENT_RANGE, &format!("bytes {}-{last}/{size}", range.start));
    }
    answer
}

fn put(answer: &mut Response, name: axum::http::HeaderName, value: &str) {
    if let Ok(value) = HeaderValue::from_str(value) {
        answer.headers_mut().insert(name, value);
    }
}

/// The attachment header for a file of this name. Programs that know only the first form get a name
/// of plain letters.
fn disposition(name: &[u8]) -> String {
    let is_plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"-_.".contains(byte);
    let plain: String =
        name.iter().map(|byte| if is_plain(byte) { char::from(*byte) } else { '_' }).collect();
    let shown = String::from_utf8_lossy(name);
    let visible: String = shown.chars().map(|c| if is_safe_in_name(c) { c } else { '_' }).collect();
    let exact = percent_encode(visible.as_bytes(), IN_FILE_NAME);
    format!("attachment; filename=\"{plain}\"; filename*=UTF-8''{exact}")
}

/// Reports whether a character may be in the name under which a browser stores a file. The name
/// must look like what it is.
fn is_safe_in_name(c: char) -> bool {
    !matches!(c, '/' | '\\' | ':' | '<' | '>' | '"' | '|' | '?' | '*') && !is_misleading(c)
}

/// The part of a file that a client asks for.
#[derive(Debug, PartialEq, Eq)]
enum RangeWish {
    Whole,
    Part(Range<u64>),
    Impossible,
}

/// Parses the header for one range. Several ranges, and anything else, mean the whole file.
fn single_range(headers: &HeaderMap, size: u64) -> RangeWish {
    let text = headers.get(RANGE).and_then(|value| value.to_str().ok());
    let Some(text) = text.and_then(|text| text.strip_prefix("bytes=")) else { return RangeWish::Whole };
    let number =
        |text: &str| text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse::<u64>().ok())?;
    let range = match text.split_once('-') {
        Some(("", count)) => number(count).map(|count| size.saturating_sub(count)..size),
        Some((first, "")) => number(first).map(|first| first..size),
        Some((first, last)) => number(first)
            .zip(number(last))
            .filter(|(first, last)| first <= last)
            .map(|(first, last)| first..last.saturating_add(1).min(size)),
        None => None,
    };
    match range {
        None => RangeWish::Whole,
        Some(range) if range.start >= range.end => RangeWish::Impossible,
        Some(range) => RangeWish::Part(range),
    }
}

/// The bytes of a download, which are read while they are sent. Damage ends the connection before
/// its time, so that no client takes the file for whole.
fn stream(site: Arc<Site>, found: Found, form: Form, range: Range<u64>, slot: OwnedSemaphorePermit) -> Body {
    let (sent, body) = SentBytes::channel();
    tokio::task::spawn_blocking(move || {
        let in_use = site.snapshots.note_use(&found.snapshot.id);
        let mut sent = sent;
        let read = read(&site, &found, form, range, &mut sent);
        if let Err(error) = read {
            sent.fail(&error);
        }
        drop((in_use, slot));
    });
    body
}

fn read(
    site: &Site,
    found: &Found,
    form: Form,
    range: Range<u64>,
    sent: &mut SentBytes,
) -> Result<(), String> {
    let node = &found.place.node;
    // Blocks of folders are read around the cache, since each is read once.
    let stored = StoredFiles::new(&*site.blocks);
    let mut act = |files: &dyn varve_content::Files| match form {
        Form::Tar => tar::write_tar(files, node, &found.file_name, sent),
        Form::Zip => zip::write_zip(files, node, &found.file_name, sent),
        Form::File | Form::Picture if range == (0..node.size) => {
            let written = files.write_to(&*site.workers, node, sent, &Progress::new());
            written.map_err(|error| with_causes(&error))
        }
        Form::File | Form::Picture => sent.send_range(files, node, range.clone()),
    };
    let read = match &found.place.files {
        OpenFiles::Stored(_) => act(&stored),
        OpenFiles::Disk(disk) => act(&**disk),
    };
    if let Err(error) = &read
        && !sent.is_closed()
    {
        let snapshot = &found.snapshot.id;
        let is_gone = !site.snapshots.is_in_catalog(snapshot);
        tracing::error!(%snapshot, error, is_gone, "a download ended early");
    }
    read.and_then(|()| sent.finish())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_downloads_are_plain_or_escaped() {
        assert_eq!(disposition(b"a b.txt"), "attachment; filename=\"a_b.txt\"; filename*=UTF-8''a%20b.txt");
        assert_eq!(
            disposition("x\r\nSet-Cookie: a=b\"\u{202e}é".as_bytes()),
            "attachment; filename=\"x__Set-Cookie__a_b______\"; filename*=UTF-8''x__Set-Cookie_%20a%3Db__%C3%A9"
        );
        assert_eq!(
            disposition(b"..\\..\\x\xff"),
            "attachment; filename=\".._.._x_\"; filename*=UTF-8''.._.._x%EF%BF%BD"
        );
    }

    #[test]
    fn one_range_is_understood() {
        let wish = |text: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(RANGE, text.parse().unwrap());
            single_range(&headers, 10)
        };
        assert_eq!(wish("bytes=0-3"), RangeWish::Part(0..4));
        assert_eq!(wish("bytes=4-"), RangeWish::Part(4..10));
        assert_eq!(wish("bytes=-3"), RangeWish::Part(7..10));
        assert_eq!(wish("bytes=-30"), RangeWish::Part(0..10));
        assert_eq!(wish("bytes=8-99"), RangeWish::Part(8..10));
        for impossible in ["bytes=10-", "bytes=10-12", "bytes=-0"] {
            assert_eq!(wish(impossible), RangeWish::Impossible, "{impossible}");
        }
        for odd in ["bytes=0-1,3-4", "bytes=x-", "bytes=3-1", "lines=1-2", "bytes=", "bytes=+1-2"] {
            assert_eq!(wish(odd), RangeWish::Whole, "{odd}");
        }
    }
}
