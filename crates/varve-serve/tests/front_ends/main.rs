//! The front ends over real connections: Venti, NBD, WebDAV, the overlay, and snapshots that go.

mod collected;
mod connection;
mod overlay;
mod venti;
mod venti_client;
mod venti_clients;
mod webdav;
