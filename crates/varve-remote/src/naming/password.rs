//! Secrets, which must not be printed.

use std::fmt;

use zeroize::Zeroizing;

/// A password. It has no `Display`, its `Debug` is three dots, and its memory is wiped.
#[derive(Clone, PartialEq, Eq)]
pub struct Password(Zeroizing<String>);

impl Password {
    /// Makes a secret from a text.
    #[must_use]
    pub fn new(text: String) -> Self {
        Self(Zeroizing::new(text))
    }

    /// Returns the text, only for sending it to the server.
    pub(crate) fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Password {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("...")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_not_printed() {
        assert_eq!(format!("{:?}", Password::new("hunter2".into())), "...");
    }

    #[test]
    fn libraries_do_not_print_what_they_send() {
        // The FTP library logs its commands, including the password, at trace level.
        assert!(log::STATIC_MAX_LEVEL < log::LevelFilter::Trace);
    }
}
