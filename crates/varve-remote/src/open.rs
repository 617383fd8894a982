//! Opens a target by its URL.

use std::fmt;

use crate::naming::location::{Location, LocationError};
use crate::open_options::OpenOptions;
use crate::retry::retrying_target::RetryingTarget;
use crate::target::Target;
use crate::targets::folder::FolderTarget;
use crate::targets::ftp::Ftp;
use crate::targets::s3::S3;
use crate::targets::sftp::Sftp;
use crate::targets::web::Web;
use crate::targets::webdav::Webdav;

/// The reason why a target was not opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenTargetError {
    /// The text is not a location.
    #[error("{0}")]
    Location(#[from] LocationError),
    /// The settings are not usable.
    #[error("{place}: cannot be used with these settings")]
    Settings {
        /// The location.
        place: String,
        source: std::io::Error,
    },
}

/// Makes the target at `url`; [`Location`] has the forms. Does not connect: the first call reports
/// problems of the server.
///
/// # Errors
/// [`OpenTargetError`].
pub fn open(url: &str, options: &OpenOptions) -> Result<Box<dyn Target>, OpenTargetError> {
    open_location(url.parse()?, options)
}

fn open_location(location: Location, options: &OpenOptions) -> Result<Box<dyn Target>, OpenTargetError> {
    let place = location.to_string();
    let settings = |source| OpenTargetError::Settings { place, source };
    let (patience, stop) = (options.patience, options.stop.clone());
    Ok(match location {
        Location::Folder(path) => {
            Box::new(FolderTarget::new(&path).at_pace(options.up.clone(), options.down.clone()))
        }
        Location::S3(place) => {
            Box::new(RetryingTarget::new(S3::new(place, options).map_err(settings)?, patience, stop))
        }
        Location::Sftp(host) => {
            Box::new(RetryingTarget::new(Sftp::new(host, options).map_err(settings)?, patience, stop))
        }
        Location::Ftp { host, is_encrypted } => Box::new(RetryingTarget::new(
            Ftp::new(host, is_encrypted, options).map_err(settings)?,
            patience,
            stop,
        )),
        Location::Webdav { host, is_encrypted } => Box::new(RetryingTarget::new(
            Webdav::new(host, is_encrypted, options).map_err(settings)?,
            patience,
            stop,
        )),
        Location::Web { host, is_encrypted } => Box::new(RetryingTarget::new(
            Web::new(host, is_encrypted, options).map_err(settings)?,
            patience,
            stop,
        )),
    })
}

impl fmt::Debug for dyn Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_opens_without_talking_to_anybody() {
        for url in [
            "/srv/replica",
            "s3://backup/in?endpoint=http://127.0.0.1:1",
            "sftp://ann:hunter2@127.0.0.1:1/srv",
            "ftp://ann:hunter2@127.0.0.1:1/srv",
            "ftps://ann:hunter2@127.0.0.1:1/srv",
            "webdav+http://ann:hunter2@127.0.0.1:1/srv",
            "webdav+https://ann:hunter2@127.0.0.1:1/srv",
            "http://ann:hunter2@127.0.0.1:1/srv",
            "https://ann:hunter2@127.0.0.1:1/srv",
        ] {
            let target = open(url, &OpenOptions::default()).unwrap();
            let shown = format!("{target} {target:?}");
            assert!(!shown.contains("hunter2"), "{shown}");
        }
    }

    #[test]
    fn wrong_settings_are_told_at_once() {
        let options = OpenOptions { authorities: Some("/nowhere.pem".into()), ..OpenOptions::default() };
        for url in ["webdav+https://host/x", "ftps://host/x", "https://host/x"] {
            assert!(matches!(open(url, &options), Err(OpenTargetError::Settings { .. })), "{url}");
        }
        assert!(matches!(open("gopher://x/", &options), Err(OpenTargetError::Location(_))));
    }
}
