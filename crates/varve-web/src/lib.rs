//! The web page: looks into all snapshots with a browser, and shows the state of the archive.
//!
//! ```text
//! browser ─▶ server ─▶ gate: host, origin, session ─▶ routes ─┬▶ pages ─▶ HTML
//!                                                             └▶ downloads ─▶ files, tar, zip
//!                         archive: snapshots, series, places, versions ◀──────┘
//! ```
//!
//! Read first: `routes.rs` (the addresses and their answers), `gate.rs` (who may ask) and
//! `archive/place.rs` (a file or folder in a snapshot).
//!
//! Invariants:
//! - Nothing in the archive, in its keys or in the configuration can be changed through the page.
//! - A request is answered only if it names this server, and, except for the login and the style
//!   sheet, only in a session.
//! - Archived bytes never become part of a page's markup. Names and texts are escaped, characters
//!   without a shape are made visible, and files are sent as attachments in a sandbox. Only
//!   pictures of four kinds, known by their first bytes, get a type.
//! - A page with a command has one script, which copies it. Every page forbids all other scripts.
//! - Work and memory of a request are bounded, whatever the archive holds.
//!
//! The crate is an edge of the house: it has threads, sockets and clients of its own.

mod archive;
mod download;
mod gate;
mod pages;
mod redirect;
mod routes;
mod server;
mod settings;
mod show;
mod site;
mod state;

pub use gate::logins::LoginLinks;
pub use gate::password::{PasswordError, PasswordHash};
pub use server::{WebServer, serve};
pub use settings::WebSettings;
pub use state::served_store::ServedStore;
