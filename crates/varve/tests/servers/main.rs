//! The real program and real servers: replication, audit, reading in place, clones, and failures on
//! the way. A test is skipped, with a message, if its server is not installed. `script/test
//! servers` installs all of them.
#![expect(
    clippy::disallowed_methods,
    reason = "what happens in the middle of something needs clocks and threads"
)]
#![expect(clippy::print_stdout, reason = "what is skipped is named")]

#[path = "../../../varve-remote/tests/servers/kinds.rs"]
mod kinds;
#[path = "../../../varve-remote/tests/servers/lonely_server.rs"]
mod lonely_server;
#[path = "../harness/mount_point/mod.rs"]
mod mount_point;
#[path = "../../../varve-remote/tests/servers/proxy.rs"]
mod proxy;
#[path = "../harness/recovery_page/mod.rs"]
mod recovery_page;
#[path = "../harness/sandbox/mod.rs"]
mod sandbox;
#[path = "../harness/shaped_line/mod.rs"]
mod shaped_line;
#[path = "../harness/small_guest/mod.rs"]
mod small_guest;

mod attached;
mod booted;
mod in_the_middle;
mod published;
mod second_home;
mod venti_by_ssh;
mod write_once;
