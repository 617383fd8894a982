//! Colours for states and changes, where a person reads them: on a terminal, unless `NO_COLOR` is
//! set (no-color.org). Nothing is told by a colour alone.

use std::env;
use std::ffi::OsStr;
use std::io::IsTerminal;
use std::sync::OnceLock;

use clap::builder::styling::{AnsiColor, Style};

/// The meaning of a colour.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tone {
    /// A kept promise, an addition.
    Good,
    /// A broken promise, a failure, a removal.
    Bad,
    /// Something that is not certain, a change.
    Doubtful,
}

/// Returns text for standard output, in the colour of its meaning.
pub fn paint(text: &str, tone: Tone) -> String {
    static IS_ON: OnceLock<bool> = OnceLock::new();
    let is_on = IS_ON.get_or_init(|| {
        let (no_color, term) = (env::var_os("NO_COLOR"), env::var_os("TERM"));
        is_requested(std::io::stdout().is_terminal(), no_color.as_deref(), term.as_deref())
    });
    if *is_on { coloured(text, tone) } else { text.to_owned() }
}

fn is_requested(is_terminal: bool, no_color: Option<&OsStr>, term: Option<&OsStr>) -> bool {
    is_terminal && no_color.is_none_or(OsStr::is_empty) && term.is_some_and(|term| term != "dumb")
}

fn coloured(text: &str, tone: Tone) -> String {
    let colour = match tone {
        Tone::Good => AnsiColor::Green,
        Tone::Bad => AnsiColor::Red,
        Tone::Doubtful => AnsiColor::Yellow,
    };
    let style = Style::new().fg_color(Some(colour.into()));
    format!("{style}{text}{style:#}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_terminal_that_wants_colours_gets_them() {
        let xterm = Some(OsStr::new("xterm"));
        assert!(is_requested(true, None, xterm));
        assert!(is_requested(true, Some(OsStr::new("")), xterm), "empty counts as not set");
        for (is_terminal, no_color, term) in [
            (false, None, xterm),
            (true, Some(OsStr::new("1")), xterm),
            (true, None, Some(OsStr::new("dumb"))),
            (true, None, None),
        ] {
            assert!(!is_requested(is_terminal, no_color, term), "{is_terminal} {no_color:?} {term:?}");
        }
        assert_eq!(coloured("BROKEN", Tone::Bad), "\u{1b}[31mBROKEN\u{1b}[0m");
    }
}
