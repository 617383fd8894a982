//! The location of a target, parsed from a URL.
//!
//! | form                                                                   | what it is                                            |
//! |------------------------------------------------------------------------|-------------------------------------------------------|
//! | `PATH`, `file:///PATH`                                                 | a folder                                              |
//! | `s3://BUCKET[/PREFIX][?endpoint=URL&region=NAME&path-style=yes\|no]`    | a bucket, or the objects in it with a prefix          |
//! | `s3://BUCKET[/PREFIX]?as-of=TIME`                                      | the same as it was at a moment, which can only be read |
//! | `sftp://[USER[:PASSWORD]@]HOST[:PORT]/PATH`                            | a folder over SSH; `/~/PATH` is below the user's home |
//! | `ftp://[USER[:PASSWORD]@]HOST[:PORT]/PATH`                             | a folder below where the login leads; `//PATH` from the root |
//! | `ftps://…`                                                             | the same, encrypted (`AUTH TLS`)                      |
//! | `webdav+http://[USER[:PASSWORD]@]HOST[:PORT]/PATH`, `webdav+https://…` | a collection                                          |
//! | `http://[USER[:PASSWORD]@]HOST[:PORT]/PATH`, `https://…`               | a folder of a web server, which can only be read      |
//!
//! Characters with a special meaning in a URL are written as `%` and two hexadecimal digits. A text
//! that does not look like a URL is a path.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use jiff::Timestamp;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};
use url::Url;

use crate::naming::password::Password;

/// The schemes, for error messages.
const SCHEMES: &str = "file, s3, sftp, ftp, ftps, webdav+http, webdav+https, http, https";

/// The characters that need no escape in the path of a URL.
const PATH: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~').remove(b'/');
/// The characters that need no escape in any other part.
const WORD: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// The location of a target. The password is not displayed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Location {
    /// A folder of this machine.
    Folder(PathBuf),
    S3(S3Location),
    /// A folder over SSH.
    Sftp(HostLocation),
    /// A folder over FTP.
    Ftp {
        host: HostLocation,
        is_encrypted: bool,
    },
    /// A collection of a WebDAV server.
    Webdav {
        host: HostLocation,
        is_encrypted: bool,
    },
    /// A folder of a server of static files.
    Web {
        host: HostLocation,
        is_encrypted: bool,
    },
}

/// A place in a bucket.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct S3Location {
    pub bucket: String,
    /// The common prefix of all names, without slashes at its ends; may be empty.
    pub prefix: String,
    /// A server other than Amazon's: an `http` or `https` URL.
    pub endpoint: Option<String>,
    /// The region. If it is missing, the environment determines it.
    pub region: Option<String>,
    /// True if the bucket is in the path of a request, false if it is in the host name. `None`
    /// means the path if `endpoint` is set.
    pub path_style: Option<bool>,
    /// The moment of the past whose objects are read, in a bucket that keeps versions.
    pub as_of: Option<Timestamp>,
}

/// A folder of a host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostLocation {
    /// The name or address, in URL form: IPv6 addresses in brackets.
    pub host: String,
    /// The port, if it is not the default one.
    pub port: Option<u16>,
    pub user: Option<String>,
    pub password: Option<Password>,
    /// The decoded folder, without the slash after the host and without a slash at its end.
    pub path: String,
}

/// A text that is not a location of a target.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{shown}: {what}")]
pub struct LocationError {
    /// The text without a possible password.
    pub shown: String,
    /// The problem, and the correct form.
    pub what: String,
}

impl Location {
    /// Returns the number of concurrent calls that servers of this kind usually accept from one
    /// client. FTP servers often allow eight connections from one address, and some allow fewer.
    /// The other kinds allow many more than are useful.
    #[must_use]
    pub fn usual_calls(&self) -> usize {
        match self {
            Self::Ftp { .. } => 4,
            Self::Folder(_) | Self::S3(_) | Self::Sftp(_) | Self::Webdav { .. } | Self::Web { .. } => 8,
        }
    }
}

impl Location {
    /// Returns the server and the user for a password that is not in the URL: the location without
    /// the path. `None` if no such password would be sent.
    #[must_use]
    pub fn asks_for_password(&self) -> Option<String> {
        let mut server = self.clone();
        match &mut server {
            Self::Folder(_) | Self::S3(_) => None,
            Self::Sftp(host) | Self::Ftp { host, .. } | Self::Webdav { host, .. } => {
                host.path.clear();
                host.password.is_none().then(|| server.to_string())
            }
            // Without a user, nothing is sent to a web server.
            Self::Web { host, .. } => {
                host.path.clear();
                (host.user.is_some() && host.password.is_none()).then(|| server.to_string())
            }
        }
    }

    /// Returns the password in the location.
    fn password(&self) -> Option<&Password> {
        match self {
            Self::Folder(_) | Self::S3(_) => None,
            Self::Sftp(host)
            | Self::Ftp { host, .. }
            | Self::Webdav { host, .. }
            | Self::Web { host, .. } => host.password.as_ref(),
        }
    }
}

impl FromStr for Location {
    type Err = LocationError;

    fn from_str(text: &str) -> Result<Self, LocationError> {
        parse(text).map_err(|what| LocationError { shown: hidden(text), what })
    }
}

fn parse(text: &str) -> Result<Location, String> {
    let Some((scheme, _)) = text.split_once("://").filter(|(scheme, _)| is_scheme(scheme)) else {
        return folder(text);
    };
    let url = Url::parse(text).map_err(|error| error.to_string())?;
    if url.fragment().is_some() {
        return Err("'#' is not allowed here: write %23".into());
    }
    match scheme.to_ascii_lowercase().as_str() {
        "file" => file(&url),
        "s3" => s3(&url),
        "sftp" => host(&url).map(Location::Sftp),
        "ftp" => Ok(Location::Ftp { host: host(&url)?, is_encrypted: false }),
        "ftps" => Ok(Location::Ftp { host: host(&url)?, is_encrypted: true }),
        "webdav+http" => Ok(Location::Webdav { host: host(&url)?, is_encrypted: false }),
        "webdav+https" => Ok(Location::Webdav { host: host(&url)?, is_encrypted: true }),
        "http" => Ok(Location::Web { host: host(&url)?, is_encrypted: false }),
        "https" => Ok(Location::Web { host: host(&url)?, is_encrypted: true }),
        other => Err(format!("the kind {other:?} is unknown; the kinds are {SCHEMES}")),
    }
}

fn is_scheme(text: &str) -> bool {
    let mut bytes = text.bytes();
    bytes.next().is_some_and(|first| first.is_ascii_alphabetic())
        && bytes.all(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte))
}

fn folder(text: &str) -> Result<Location, String> {
    if text.is_empty() {
        return Err("the path is empty".into());
    }
    if text.contains('\0') {
        return Err("a path cannot contain a zero byte".into());
    }
    Ok(Location::Folder(text.into()))
}

fn file(url: &Url) -> Result<Location, String> {
    no_query(url)?;
    if url.host_str().is_some_and(|host| host != "localhost") {
        return Err("a file URL cannot name a host: write file:///PATH".into());
    }
    let path = url.to_file_path().map_err(|()| "it is not a path of this machine: write file:///PATH")?;
    if path.as_os_str().as_encoded_bytes().contains(&0) {
        return Err("a path cannot contain a zero byte".into());
    }
    Ok(Location::Folder(path))
}

fn s3(url: &Url) -> Result<Location, String> {
    if !url.username().is_empty() || url.password().is_some() || url.port().is_some() {
        return Err("s3://BUCKET/PREFIX cannot have a user, password or port: give credentials in the environment (AWS_ACCESS_KEY_ID, ...), and another server as ?endpoint=URL"
            .into());
    }
    let bucket = url.host_str().unwrap_or_default().to_owned();
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b".-_".contains(&byte);
    if !(3..=255).contains(&bucket.len()) || !bucket.bytes().all(is_plain) {
        return Err("a bucket name needs at least three letters, digits, dots, dashes or underscores".into());
    }
    let prefix = path_of(url)?.trim_start_matches('/').to_owned();
    let mut place =
        S3Location { bucket, prefix, endpoint: None, region: None, path_style: None, as_of: None };
    for (key, value) in url.query_pairs() {
        let given = match key.as_ref() {
            "endpoint" => place.endpoint.replace(endpoint(&value)?).is_some(),
            "region" if value.is_empty() || !value.bytes().all(is_plain) => {
                return Err(format!("the region {value:?} is invalid"));
            }
            "region" => place.region.replace(value.into_owned()).is_some(),
            "path-style" => place.path_style.replace(yes_or_no(&value)?).is_some(),
            "as-of" => place.as_of.replace(moment(&value)?).is_some(),
            other => {
                let settings = "endpoint, region, path-style, as-of";
                return Err(format!("{other:?} is unknown; the settings are {settings}"));
            }
        };
        if given {
            return Err(format!("{key} is given twice"));
        }
    }
    Ok(Location::S3(place))
}

fn endpoint(text: &str) -> Result<String, String> {
    let url = Url::parse(text).map_err(|error| format!("endpoint {:?}: {error}", hidden(text)))?;
    let is_bare = url.username().is_empty()
        && url.password().is_none()
        && url.query().is_none()
        && url.fragment().is_none();
    if !matches!(url.scheme(), "http" | "https") || !is_bare {
        return Err("an endpoint must be http://HOST[:PORT] or https://HOST[:PORT], and nothing more".into());
    }
    Ok(text.trim_end_matches('/').to_owned())
}

fn moment(text: &str) -> Result<Timestamp, String> {
    let parsed = text.parse::<Timestamp>();
    parsed.map_err(|_| format!("as-of must be a time such as 2026-11-28T23:59:00Z, not {text:?}"))
}

fn yes_or_no(text: &str) -> Result<bool, String> {
    match text {
        "" | "yes" | "true" => Ok(true),
        "no" | "false" => Ok(false),
        other => Err(format!("path-style must be yes or no, not {other:?}")),
    }
}

fn host(url: &Url) -> Result<HostLocation, String> {
    no_query(url)?;
    let host = url.host_str().unwrap_or_default().to_owned();
    if host.is_empty() {
        return Err("the host is missing: write SCHEME://HOST/PATH".into());
    }
    // The URL library does not decode the host of a scheme that browsers do not know.
    let host = decode(&host)?;
    if !host.bytes().all(|byte| byte.is_ascii_alphanumeric() || b".-_[]:".contains(&byte)) {
        return Err(format!("{host:?} is not a host name"));
    }
    let user = Some(decode(url.username())?).filter(|user| !user.is_empty());
    let password = url.password().map(decode).transpose()?.map(Password::new);
    if user.is_none() && password.is_some() {
        return Err("a password needs a user".into());
    }
    if url.port() == Some(0) {
        return Err("port 0 is invalid".into());
    }
    Ok(HostLocation { host, port: url.port(), user, password, path: path_of(url)? })
}

fn no_query(url: &Url) -> Result<(), String> {
    match url.query() {
        Some(_) => Err("'?' is not allowed here: write %3F".into()),
        None => Ok(()),
    }
}

/// Returns the path without the slash after the host and without slashes at its end.
fn path_of(url: &Url) -> Result<String, String> {
    let path = decode(url.path())?;
    let path = path.strip_prefix('/').unwrap_or(&path).trim_end_matches('/').to_owned();
    if path.split('/').any(|part| part == "." || part == "..") {
        return Err("'.' and '..' are not allowed in a path".into());
    }
    Ok(path)
}

/// Decodes `%` and two digits. Refuses control characters: to some servers, a line end would begin
/// a second command.
fn decode(text: &str) -> Result<String, String> {
    let decoded = percent_decode_str(text).decode_utf8().map_err(|_| "it is not UTF-8 when decoded")?;
    if decoded.chars().any(char::is_control) {
        return Err("control characters are not allowed".into());
    }
    Ok(decoded.into_owned())
}

/// Splits an argument into one without its password, and the password. All users of the machine can
/// see the arguments of a program; it gets a password by its environment.
#[must_use]
pub fn split_password(text: &str) -> (String, Option<String>) {
    let password = parse(text).ok().and_then(|location| Some(location.password()?.reveal().to_owned()));
    // A malformed text is refused later, without its possible password.
    (without_password(text), password)
}

/// Returns an argument in a form that may be printed. The text is unchanged unless it contains, or
/// may contain, a password.
#[must_use]
pub fn without_password(text: &str) -> String {
    let Some((scheme, _)) = text.split_once("://") else { return text.into() };
    match parse(text) {
        Ok(location) if location.password().is_some() => location.to_string(),
        // A text that looks like a URL but has no known scheme is a path. Its author may have meant
        // a URL.
        Ok(_) if is_scheme(scheme) => text.into(),
        Ok(_) | Err(_) => hidden(text),
    }
}

/// Returns a text that does not parse, without a possible password.
fn hidden(text: &str) -> String {
    let Some((scheme, rest)) = text.split_once("://") else { return text.into() };
    // Cuts at the last '@', plain or escaped. In a malformed URL the password may contain a slash,
    // and the URL of an endpoint is the value of a query parameter.
    let written = [rest.rfind('@').map(|place| place + 1), rest.rfind("%40").map(|place| place + 3)];
    match written.into_iter().flatten().max() {
        Some(place) => format!("{scheme}://...@{}", &rest[place..]),
        None => text.into(),
    }
}

impl fmt::Display for HostLocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(user) = &self.user {
            write!(f, "{}@", utf8_percent_encode(user, WORD))?;
        }
        f.write_str(&self.host)?;
        if let Some(port) = self.port {
            write!(f, ":{port}")?;
        }
        write!(f, "/{}", utf8_percent_encode(&self.path, PATH))
    }
}

impl fmt::Display for S3Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "s3://{}", self.bucket)?;
        if !self.prefix.is_empty() {
            write!(f, "/{}", utf8_percent_encode(&self.prefix, PATH))?;
        }
        let style = self.path_style.map(|is_path| if is_path { "yes" } else { "no" }.to_owned());
        let pairs = [("endpoint", &self.endpoint), ("region", &self.region), ("path-style", &style)];
        let mut separator = '?';
        for (key, value) in pairs {
            if let Some(value) = value {
                write!(f, "{separator}{key}={}", utf8_percent_encode(value, WORD))?;
                separator = '&';
            }
        }
        // A time needs no escapes.
        self.as_of.map_or(Ok(()), |moment| write!(f, "{separator}as-of={moment}"))
    }
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Folder(path) => path.display().fmt(f),
            Self::S3(place) => place.fmt(f),
            Self::Sftp(host) => write!(f, "sftp://{host}"),
            Self::Ftp { host, is_encrypted: false } => write!(f, "ftp://{host}"),
            Self::Ftp { host, is_encrypted: true } => write!(f, "ftps://{host}"),
            Self::Webdav { host, is_encrypted: false } => write!(f, "webdav+http://{host}"),
            Self::Webdav { host, is_encrypted: true } => write!(f, "webdav+https://{host}"),
            Self::Web { host, is_encrypted: false } => write!(f, "http://{host}"),
            Self::Web { host, is_encrypted: true } => write!(f, "https://{host}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn at(text: &str) -> Location {
        text.parse().unwrap_or_else(|error| panic!("{error}"))
    }

    fn wrong(text: &str) -> String {
        text.parse::<Location>().expect_err(text).to_string()
    }

    fn host_at(text: &str) -> HostLocation {
        match at(text) {
            Location::Sftp(host)
            | Location::Ftp { host, .. }
            | Location::Webdav { host, .. }
            | Location::Web { host, .. } => host,
            other => panic!("{text} is {other:?}"),
        }
    }

    #[test]
    fn what_is_shown_of_a_word_has_no_password() {
        for (text, shown) in [
            ("webdav+http://u:hunter2@h/x", "webdav+http://u@h/x"),
            ("sftp://ann%40home:hunter2@h:22/a%20b", "sftp://ann%40home@h:22/a%20b"),
            ("foo://u:hunter2@h", "foo://...@h"),
            ("1x://u:hunter2@h", "1x://...@h"),
            ("webdav+http://u:hunt/er2@h/x", "webdav+http://...@h/x"),
            ("s3://u:hunter2@bucket/x", "s3://...@bucket/x"),
            ("s3://bucket/x?endpoint=http://u:hunter2@h:9", "s3://...@h:9"),
            ("s3://bucket?endpoint=http%3A%2F%2Fu%3Ahunter2%40h", "s3://...@h"),
            ("s3://bucket?endpoint=http%3A%2F%2Fu%3Ahun%40ter2@h&region=x", "s3://...@h&region=x"),
            ("ftp://u:hunter2@h/x#y", "ftp://...@h/x#y"),
            // Without a password, the text is unchanged.
            ("sftp://ann@h/~/x", "sftp://ann@h/~/x"),
            ("s3://bucket/x?endpoint=http://h:9", "s3://bucket/x?endpoint=http://h:9"),
            ("/srv/me@home", "/srv/me@home"),
            ("file:///srv/a@b", "file:///srv/a@b"),
            ("gopher://h/x", "gopher://h/x"),
        ] {
            assert_eq!(without_password(text), shown);
            if let Err(error) = text.parse::<Location>() {
                assert!(!format!("{error} {error:?}").contains("hunter2"), "{error}");
            }
        }
        let endpoint = wrong("s3://bucket?endpoint=http://u:hunter2@h:port");
        assert!(!endpoint.contains("hunter2"), "{endpoint}");
    }

    #[test]
    fn a_password_is_split_from_its_place() {
        for (text, at, password) in [
            ("webdav+http://u:p%2Fw%20d@h:8/x/y%20z", "webdav+http://u@h:8/x/y%20z", Some("p/w d")),
            ("ftps://a%40b:p@h/x", "ftps://a%40b@h/x", Some("p")),
            ("sftp://u@h/x", "sftp://u@h/x", None),
            ("s3://bucket/x", "s3://bucket/x", None),
            ("/mnt/a:b@c", "/mnt/a:b@c", None),
            ("sftp://:p@h/x", "sftp://...@h/x", None),
        ] {
            assert_eq!(split_password(text), (at.into(), password.map(str::to_owned)), "{text}");
        }
    }

    #[test]
    fn who_is_sent_a_password() {
        for (text, server) in [
            ("sftp://ann%40home@h:22/a%20b", Some("sftp://ann%40home@h:22/")),
            ("ftp://h/x", Some("ftp://h/")),
            ("ftps://h/x", Some("ftps://h/")),
            ("webdav+http://u@h/x/y", Some("webdav+http://u@h/")),
            ("https://u@h/x/y", Some("https://u@h/")),
            ("https://h/x/y", None),
            ("webdav+https://u@h:8443", Some("webdav+https://u@h:8443/")),
            // The URL has its own password.
            ("webdav+http://u:hunter2@h/x", None),
            ("s3://bucket/x?endpoint=http://h:9", None),
            ("/srv/me@home", None),
        ] {
            assert_eq!(at(text).asks_for_password().as_deref(), server, "{text}");
        }
    }

    #[test]
    fn what_is_no_url_is_a_path() {
        for path in ["/srv/replica", "replica", "./a b", "C:/x", "sftp:/x", "a://b://", "1x://y", "://"] {
            let expected = if path == "a://b://" { continue } else { Location::Folder(path.into()) };
            assert_eq!(at(path), expected);
        }
        assert_eq!(at("file:///srv/a%20b"), Location::Folder("/srv/a b".into()));
        assert_eq!(at("file://localhost/srv"), Location::Folder("/srv".into()));
    }

    #[test]
    fn buckets() {
        let Location::S3(place) =
            at("s3://Backup/a/b%20c/?endpoint=http://127.0.0.1:9000/&region=eu-1&path-style")
        else {
            panic!()
        };
        assert_eq!((place.bucket.as_str(), place.prefix.as_str()), ("Backup", "a/b c"));
        assert_eq!(place.endpoint.as_deref(), Some("http://127.0.0.1:9000"));
        assert_eq!((place.region.as_deref(), place.path_style), (Some("eu-1"), Some(true)));
        let Location::S3(bare) = at("s3://backup") else { panic!() };
        assert_eq!((bare.prefix.as_str(), bare.endpoint, bare.path_style), ("", None, None));
    }

    #[test]
    fn hosts() {
        let place = host_at("sftp://ann%40home:p%2Fw:d@example.org:2222/srv/replica/");
        assert_eq!((place.host.as_str(), place.port), ("example.org", Some(2222)));
        assert_eq!(place.user.as_deref(), Some("ann@home"));
        assert_eq!(place.password.unwrap().reveal(), "p/w:d");
        assert_eq!(place.path, "srv/replica");
        assert_eq!(host_at("ftp://host//srv/x").path, "/srv/x");
        assert_eq!(host_at("sftp://host/~/x").path, "~/x");
        assert_eq!(host_at("sftp://[::1]:22/x").host, "[::1]");
        assert_eq!(host_at("webdav+https://dav.example.org").path, "");
        assert!(matches!(at("ftps://host/x"), Location::Ftp { is_encrypted: true, .. }));
    }

    #[test]
    fn errors_say_what_would_be_right() {
        for (text, says) in [
            ("", "the path is empty"),
            ("gopher://host/x", "the kind \"gopher\" is unknown; the kinds are file, s3, sftp"),
            ("https://host/x?y", "'?' is not allowed here"),
            ("sftp:///x", "host"),
            ("sftp://host/x?y=z", "'?' is not allowed here"),
            ("sftp://host/x#y", "'#' is not allowed here"),
            ("ftp://host/a%0D%0ADELE%20b", "control characters"),
            ("ftp://a%0Ab@host/", "control characters"),
            ("ftp://host/%2E%2E%2Fx", "'.' and '..'"),
            ("sftp://host:0/x", "port 0"),
            ("sftp://host:99999/x", "port"),
            ("sftp://:secret@host/x", "a password needs a user"),
            ("s3://ab", "at least three"),
            ("s3://key:secret@bucket", "AWS_ACCESS_KEY_ID"),
            ("s3://bucket?endpoint=ftp://host", "an endpoint must be http://"),
            ("s3://bucket?endpoint=http://a:b@host", "an endpoint must be http://"),
            ("s3://bucket?endpont=x", "the settings are endpoint, region, path-style"),
            ("s3://bucket?as-of=yesterday", "as-of must be a time such as 2026-11-28T23:59:00Z"),
            ("s3://bucket?region=a&region=b", "given twice"),
            ("s3://bucket?path-style=maybe", "yes or no"),
            ("file://host/x", "cannot name a host"),
        ] {
            let error = wrong(text);
            assert!(error.contains(says), "{text}: {error}");
        }
    }

    #[test]
    fn passwords_are_not_printed() {
        for text in [
            "sftp://ann:hunter2@host/x",
            "ftps://ann:hunter2@host/x",
            "webdav+http://ann:hunter2@host/x",
            "https://ann:hunter2@host/x",
            "gopher://ann:hunter2@host",
            "sftp://ann:hunter2/@host:99999/x",
            "sftp://ann:hun@ter2@host/x?y",
            "s3://ann:hunter2@bucket",
        ] {
            let printed = match text.parse::<Location>() {
                Ok(place) => format!("{place} {place:?}"),
                Err(error) => format!("{error} {error:?}"),
            };
            assert!(!printed.contains("hunter2") && !printed.contains("ter2"), "{text}: {printed}");
        }
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "\\PC{0,40}|(s3|sftp|ftp|ftps|file|(webdav\\+)?https?)://[a-z:@%/?#\\[\\]\\.&=0-9 \\PC]{0,40}") {
            let outcome = text.parse::<Location>();
            if let Err(error) = outcome {
                prop_assert!(!error.what.is_empty());
            }
        }

        #[test]
        fn what_is_printed_is_read_again(
            scheme in "sftp|ftp|ftps|(webdav\\+)?https?",
            user in proptest::option::of("[^\\p{C}]{1,12}"),
            port in proptest::option::of(1_u16..),
            path in "(/?[^/\\p{C}]{3,10}(/[^/\\p{C}]{3,10}){0,3})?",
        ) {
            let host = HostLocation { host: "host.example".into(), port, user, password: None, path };
            let place: Location = format!("{scheme}://{host}").parse().unwrap();
            prop_assert_eq!(place.to_string().parse::<Location>().unwrap(), place.clone());
            let read = match &place {
                Location::Sftp(read) | Location::Ftp { host: read, .. } | Location::Webdav { host: read, .. } | Location::Web { host: read, .. } => read,
                other => panic!("{other:?}"),
            };
            let usual = (place.to_string(), host.port);
            prop_assert_eq!(&read.user, &host.user, "{:?}", &usual);
            prop_assert_eq!(&read.path, &host.path);
        }

        #[test]
        fn buckets_are_read_again(
            prefix in "([^/\\p{C}]{3,10}(/[^/\\p{C}]{3,10}){0,3})?",
            region in proptest::option::of("[a-z]{2}-[0-9]"),
            path_style in proptest::option::of(any::<bool>()),
            as_of in proptest::option::of(0_i64..4_000_000_000),
        ) {
            let as_of = as_of.map(|second| Timestamp::from_second(second).unwrap());
            let endpoint = Some("https://host.example:9000/under".into());
            let place = Location::S3(S3Location { bucket: "bucket".into(), prefix, endpoint, region, path_style, as_of });
            prop_assert_eq!(place.to_string().parse::<Location>().unwrap(), place);
        }
    }
}
