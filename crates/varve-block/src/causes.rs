//! An error with its causes, one by one or in one line.

use std::error::Error;
use std::iter::successors;

/// An error, what has caused it, and so on down.
pub fn causes<'a>(error: &'a (dyn Error + 'static)) -> impl Iterator<Item = &'a (dyn Error + 'static)> {
    successors(Some(error), |error| (*error).source())
}

/// An error and what has caused it, in one line. A layer that says what the one below it says is shown once.
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
