//! Interprets texts that name targets, and opens targets.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use varve_remote::{Location, OpenOptions, Pace, RetryPolicy, Target};

use crate::failure::UsageError;
use crate::known_servers;
use crate::notice::Notice;
use crate::user_interface::UserInterface;

/// The longest silence of a mirror. Another one is asked much earlier.
const MIRROR_SILENCE_MAX: Duration = Duration::from_secs(20);

/// The origin of the text that names a target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NamedBy {
    /// The user, on the command line.
    User,
    /// `replicas.toml` in the store's folder. Anyone with write access to that folder can name any
    /// target.
    Store,
}

/// The patience of the reader of a publication.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReaderPatience {
    /// The attempts of each call.
    pub try_count: u32,
    /// The time that a server may be silent, if it is not longer than usual. `None`: as usual.
    pub patience: Option<Duration>,
}

/// Reports whether a text has a scheme, as `s3://bucket` does.
#[must_use]
pub fn is_url(text: &str) -> bool {
    text.split_once("://").is_some_and(|(scheme, _)| {
        !scheme.is_empty() && scheme.chars().all(|c| c.is_ascii_alphanumeric() || "+-.".contains(c))
    })
}

/// Reports whether a folder holds a replica rather than a store.
#[must_use]
pub(crate) fn is_replica_folder(path: &Path) -> bool {
    // The type of the file does not matter: even a folder with this name does not make a store.
    path.join("replica.toml").symlink_metadata().is_ok()
}

/// Returns the folder that a text names as a target, if the target is on this machine.
#[must_use]
pub fn folder_of(text: &str) -> Option<PathBuf> {
    match text.parse() {
        Ok(Location::Folder(folder)) => Some(folder),
        _ => None,
    }
}

/// Returns a text that names a target without its password, for messages.
#[must_use]
pub fn shown(text: &str) -> String {
    varve_remote::without_password(text)
}

/// Reports whether an error already begins with the name of the target, so that its message need
/// not name it again.
#[must_use]
pub fn is_named_by(error: &anyhow::Error, text: &str) -> bool {
    let said = error.to_string();
    let place = text.parse::<Location>().map(|location| location.to_string());
    [Some(shown(text)), place.ok()].into_iter().flatten().any(|name| said.starts_with(&format!("{name}: ")))
}

/// Refuses a target in the spelling of another program, unless a folder has this name.
pub(crate) fn refuse_other_spelling(text: &str) -> Result<()> {
    match url_meant(text) {
        Some(url) if Path::new(text).symlink_metadata().is_err() => {
            Err(UsageError(format!("{} must be written as {url} here", shown(text))).into())
        }
        _ => Ok(()),
    }
}

/// Translates a target from restic's spelling, such as `sftp:me@host:/x`.
fn url_meant(text: &str) -> Option<String> {
    if is_url(text) {
        return None;
    }
    let (scheme, rest) = text.split_once(':')?;
    match scheme {
        "sftp" => {
            let (host, path) = rest.split_once(':')?;
            let place = if path.starts_with('/') { path.to_owned() } else { format!("/~/{path}") };
            Some(format!("sftp://{host}{place}"))
        }
        "s3" => Some("s3://BUCKET/PREFIX?endpoint=URL".into()),
        "rest" | "b2" | "azure" | "gs" | "swift" | "rclone" => {
            Some("sftp://, s3://, ftps:// or webdav+https://".into())
        }
        _ => None,
    }
}

/// The paces of the calls of a target; `None` for no limit.
#[derive(Debug, Clone, Default)]
pub(crate) struct TargetPaces {
    /// Uploaded bytes.
    pub(crate) up: Option<Arc<Pace>>,
    /// Requests over HTTP.
    pub(crate) requests: Option<Arc<Pace>>,
}

/// Opens the target that `text` names, a folder or a URL.
pub(crate) fn open(
    text: &str,
    named_by: NamedBy,
    TargetPaces { up, requests }: TargetPaces,
    frontend: &dyn UserInterface,
) -> Result<Arc<dyn Target>> {
    let stop = frontend.stop_signal();
    open_with(text, named_by, OpenOptions { up, requests, stop, ..OpenOptions::from_environment() }, frontend)
}

/// Opens a target for a reader that soon turns to another place.
pub(crate) fn open_for_reader(
    text: &str,
    named_by: NamedBy,
    reader: ReaderPatience,
    may_be_own: bool,
    requests: Option<Arc<Pace>>,
    frontend: &dyn UserInterface,
) -> Result<Arc<dyn Target>> {
    let silence_max = reader.patience.map_or(MIRROR_SILENCE_MAX, |time| time.min(MIRROR_SILENCE_MAX));
    let patience = RetryPolicy { try_count_max: reader.try_count, silence_max, ..RetryPolicy::default() };
    let options =
        OpenOptions { patience, public_only: !may_be_own, requests, ..OpenOptions::from_environment() };
    open_with(text, named_by, options, frontend)
}

fn open_with(
    text: &str,
    named_by: NamedBy,
    mut options: OpenOptions,
    frontend: &dyn UserInterface,
) -> Result<Arc<dyn Target>> {
    refuse_other_spelling(text)?;
    if options.password.is_some()
        && let Some(server) = text.parse::<Location>()?.asks_for_password()
        && !may_have_password(known_servers::file().as_deref(), &server, named_by, frontend)
    {
        options.password = None;
    }
    Ok(Arc::from(varve_remote::open(text, &options)?))
}

/// Reports whether a server may receive the password from the environment: only if the user names
/// it now or has named it before. `file` lists the servers that the user has named before.
fn may_have_password(
    file: Option<&Path>,
    server: &str,
    named_by: NamedBy,
    frontend: &dyn UserInterface,
) -> bool {
    match named_by {
        NamedBy::User => {
            let noted = file.map(|file| known_servers::add(file, server));
            if let Some(Err(error)) = noted {
                tracing::warn!(%error, server, "the name of this server could not be recorded");
            }
            true
        }
        NamedBy::Store => {
            let is_known = file.is_some_and(|file| known_servers::contains(file, server).unwrap_or(false));
            if !is_known {
                frontend.notice(&Notice::PasswordWithheld { server: server.to_owned() });
            }
            is_known
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recorded::Recorded;

    #[test]
    fn a_server_that_only_the_store_names_is_sent_no_password_until_the_user_names_it() {
        let folder = tempfile::tempdir().unwrap();
        let (file, server) = (folder.path().join("known-servers"), "sftp://ann@h/");
        let frontend = Recorded::default();
        let may = |named_by| may_have_password(Some(&file), server, named_by, &frontend);
        assert!(!may(NamedBy::Store));
        assert_eq!(*frontend.notices.lock(), [Notice::PasswordWithheld { server: server.into() }]);
        assert!(may(NamedBy::User));
        assert!(may(NamedBy::Store), "the user has named it");
        assert_eq!(frontend.notices.lock().len(), 1);
    }

    #[test]
    fn other_spellings_of_places_are_explained() {
        for (text, url) in [
            ("sftp:me@host:/x", Some("sftp://me@host/x")),
            ("sftp:host:backup/x", Some("sftp://host/~/backup/x")),
            ("sftp://me@host/x", None),
            ("/backup/a:b", None),
            ("store", None),
            ("C:/x", None),
        ] {
            assert_eq!(url_meant(text).as_deref(), url, "{text}");
        }
    }

    #[test]
    fn an_error_that_names_the_place_is_known() {
        for (text, said, expected) in [
            ("s3://b11/x?endpoint=http://h:9", "s3://b11/x?endpoint=http%3A%2F%2Fh%3A9: failed", true),
            ("webdav+http://u:hunter2@h/x", "webdav+http://u@h/x: refused", true),
            ("foo://u:hunter2@h", "foo://...@h: the kind", true),
            ("/mnt/disk", "/mnt/disk: failed", true),
            ("/mnt/disk", "/mnt/disk2: failed", false),
            ("/mnt/disk", "config.toml: failed", false),
        ] {
            assert_eq!(is_named_by(&anyhow::anyhow!(said), text), expected, "{text}: {said}");
        }
    }

    #[test]
    fn urls_are_told_from_paths() {
        for url in ["s3://bucket/x", "sftp://me@host/x"] {
            assert!(is_url(url), "{url}");
        }
        for path in ["/a/b", "relative", "://x", "a b://c", "C:/x"] {
            assert!(!is_url(path), "{path}");
        }
    }
}
