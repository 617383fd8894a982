//! Prints the log of the libraries: errors and warnings in the same form as the program's own
//! messages, the rest with `-vv` or `VARVE_LOG`.

use std::error::Error;
use std::fmt::{self, Write as _};

use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::layer::{Context, Layer, SubscriberExt};
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, Registry};
use varve_block::with_causes;

use crate::arguments::GlobalArgs;
use crate::say;

/// Starts printing events, at the level that the command line or `VARVE_LOG` requests.
pub fn start(arguments: &GlobalArgs) {
    // The names of all crates of this program begin with this. An error in another library causes
    // an error here, and appears as its cause.
    let level = match (arguments.quiet, arguments.verbose) {
        (true, _) => "off,varve=error",
        (false, 0 | 1) => "off,varve=warn",
        (false, 2) => "warn,varve=info",
        (false, 3) => "debug",
        (false, _) => "trace",
    };
    let named = EnvFilter::try_from_env("VARVE_LOG").ok();
    let shows_modules = named.is_some() || arguments.verbose > 1;
    let filter = named.unwrap_or_else(|| level.into());
    Registry::default().with(EventLines { shows_modules }.with_filter(filter)).init();
}

/// Prints each event as a line.
struct EventLines {
    shows_modules: bool,
}

impl<S: Subscriber> Layer<S> for EventLines {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let mut fields = EventFields::default();
        event.record(&mut fields);
        let text = fields.text();
        let metadata = event.metadata();
        if *metadata.level() <= Level::WARN && !self.shows_modules {
            warning!("{text}");
        } else {
            let level = metadata.level().as_str().to_ascii_lowercase();
            say::log_line(format_args!("varve: {level}, {}: {text}", metadata.target()));
        }
    }
}

/// The parts of an event: its message, its error, and its other fields.
#[derive(Default)]
struct EventFields {
    message: String,
    error: Option<String>,
    others: Vec<(&'static str, String)>,
}

impl EventFields {
    /// `message: error (name value, name value)`
    fn text(&self) -> String {
        let mut text = self.message.clone();
        if let Some(error) = &self.error {
            let _ = write!(text, ": {error}");
        }
        let others: Vec<_> = self.others.iter().map(|(name, value)| format!("{name} {value}")).collect();
        if !others.is_empty() {
            let _ = write!(text, " ({})", others.join(", "));
        }
        text
    }

    fn take(&mut self, field: &Field, value: String) {
        match field.name() {
            "message" => self.message = value,
            "error" => self.error = Some(value),
            name => self.others.push((name, value)),
        }
    }
}

impl Visit for EventFields {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.take(field, format!("{value:?}"));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.take(field, value.into());
    }

    fn record_error(&mut self, field: &Field, value: &(dyn Error + 'static)) {
        self.take(field, with_causes(value));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_is_one_sentence() {
        let fields = EventFields {
            message: "an arena has lost its seal".into(),
            error: Some("it is gone".into()),
            others: vec![("arena", "3".into()), ("offset", "512".into())],
        };
        assert_eq!(fields.text(), "an arena has lost its seal: it is gone (arena 3, offset 512)");
    }
}
