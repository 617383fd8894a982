//! The text of one configuration file.

/// A configuration file and its text.
#[derive(Debug, Clone)]
pub struct ConfigText {
    /// The name of the file in messages.
    pub name: String,
    pub text: String,
}
