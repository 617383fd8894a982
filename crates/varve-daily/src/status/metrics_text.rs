//! The text format of Prometheus.

use std::fmt::{Display, Write as _};
use std::time::Duration;

/// A page in the text format of Prometheus.
#[derive(Default)]
pub struct MetricsText(String);

impl MetricsText {
    /// Returns the page.
    #[must_use]
    pub fn into_text(self) -> String {
        self.0
    }

    /// Begins a metric: its help, and its kind, such as `gauge`.
    pub fn head(&mut self, name: &str, help: &str, kind: &str) {
        let _ = writeln!(self.0, "# HELP {name} {help}\n# TYPE {name} {kind}");
    }

    /// Adds a metric that goes up and down.
    pub fn gauge(&mut self, name: &str, help: &str, value: u64) {
        self.head(name, help, "gauge");
        let _ = writeln!(self.0, "{name} {value}");
    }

    /// Adds a metric that only grows.
    pub fn counter(&mut self, name: &str, help: &str, value: u64) {
        self.head(name, help, "counter");
        let _ = writeln!(self.0, "{name} {value}");
    }

    /// Adds a time that only grows.
    pub fn counter_of_seconds(&mut self, name: &str, help: &str, value: Duration) {
        self.head(name, help, "counter");
        let _ = writeln!(self.0, "{name} {}", value.as_secs_f64());
    }

    /// Adds a value with labels to the metric that [`head`](Self::head) has begun.
    pub fn labelled(&mut self, name: &str, labels: &[(&str, &str)], value: impl Display) {
        let escaped = |of: &str| of.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
        let labels: Vec<String> =
            labels.iter().map(|(label, of)| format!("{label}=\"{}\"", escaped(of))).collect();
        let _ = writeln!(self.0, "{name}{{{}}} {value}", labels.join(","));
    }
}
