//! An error with its causes, one by one or in one line.

use std::error::Error;
use std::iter::successors;

/// Iterates over an error and the chain of its causes.
pub fn causes<'a>(error: &'a (dyn Error + 'static)) -> impl Iterator<Item = &'a (dyn Error + 'static)> {
    successors(Some(error), |error| (*error).source())
}

/// Formats an error and its causes in one line. A cause whose text the error already ends with is
/// not repeated.
#[must_use]
pub fn with_causes(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut below = error.source();
    while let Some(cause) = below {
        let cause_text = cause.to_string();
        if !text.ends_with(&cause_text) {
            text = format!("{text}: {cause_text}");
        }
        below = cause.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    enum Layer {
        #[error("the log cannot be read")]
        Log(#[source] std::io::Error),
        #[error(transparent)]
        Transparent(#[from] std::fmt::Error),
    }

    #[test]
    fn each_layer_is_told_once() {
        let cause = std::io::Error::other(Layer::Transparent(std::fmt::Error));
        assert_eq!(with_causes(&cause), std::fmt::Error.to_string());
        assert_eq!(with_causes(&Layer::Log(cause)), format!("the log cannot be read: {}", std::fmt::Error));
    }
}
