//! Published disks over servers that work, lie, hang and vanish.
#![expect(clippy::disallowed_methods, reason = "readers at once need threads, and late answers a clock")]

mod disks;
mod editions;
mod publication;
