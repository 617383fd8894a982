//! Venti: the real program as a server, as a client, and beside plan9port's programs.

#[path = "../harness/mount_point/mod.rs"]
mod mount_point;
#[path = "../harness/nine_p/mod.rs"]
mod nine_p;
#[path = "../harness/plan9/mod.rs"]
mod plan9;
#[path = "../harness/sandbox/mod.rs"]
mod sandbox;
#[path = "../harness/venti_server/mod.rs"]
mod venti_server;

mod plan9port;
mod vac;
mod venti;
mod venti_arenas;
