//! Notices about promises: by mail, by ntfy, Gotify and web hooks, and as a heartbeat.
//!
//! [`send`] returns within ten seconds, whatever the servers do. A channel that has not answered
//! by then has failed. A notice has no name of an archived file, unless the configuration allows
//! it.

mod limits;
mod mail;
mod notice;
mod secret;
mod send;
mod web;

pub use notice::{PromiseNotice, depending_text, promise_value};
pub use send::{Channel, Sent, channels, send};
