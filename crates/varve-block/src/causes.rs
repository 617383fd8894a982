//! An error with its causes, one by one or in one line.
//!
//! An error that adds nothing to its cause has the text of the cause, and the cause as its source.
//! It is not `transparent`: that would hide the type of the cause from [`causes`].

use std::error::Error;
use std::io;
use std::iter::successors;

/// Iterates over an error and the chain of its causes. The source of an [`io::Error`] is not the
/// error inside of it, but the source of that error; here the error inside comes first.
pub fn causes<'a>(error: &'a (dyn Error + 'static)) -> impl Iterator<Item = &'a (dyn Error + 'static)> {
    successors(Some(error), |error| match error.downcast_ref::<io::Error>() {
        Some(error) => error.get_ref().map(|inner| inner as _),
        None => (*error).source(),
    })
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
        Log(#[source] io::Error),
        #[error("{0}")]
        Same(#[from] std::fmt::Error),
    }

    #[test]
    fn each_layer_is_told_once_and_none_is_hidden() {
        let error = Layer::Log(io::Error::other(Layer::Same(std::fmt::Error)));
        assert_eq!(with_causes(&error), format!("the log cannot be read: {}", std::fmt::Error));
        assert_eq!(causes(&error).filter(|cause| cause.is::<Layer>()).count(), 2);
        assert!(causes(&error).last().is_some_and(|cause| cause.is::<std::fmt::Error>()));
    }
}
