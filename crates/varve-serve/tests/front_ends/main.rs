//! The front ends over real connections: Venti, NBD, WebDAV, and the overlay.

mod connection;
mod overlay;
mod venti;
mod venti_client;
mod webdav;
