//! The real program and real servers: replicated to, audited, read in place, cloned, and what goes wrong on the way. What is not
//! installed is skipped by name; `script/test servers` installs it.
#![expect(
    clippy::disallowed_methods,
    reason = "what happens in the middle of something needs clocks and threads"
)]
#![expect(clippy::print_stdout, reason = "what is skipped is named")]

#[path = "../../../varve-remote/tests/servers/kinds.rs"]
mod kinds;
#[path = "../../../varve-remote/tests/servers/lonely_server.rs"]
mod lonely_server;
#[path = "../../../varve-remote/tests/servers/proxy.rs"]
mod proxy;
#[path = "../harness/recovery_page/mod.rs"]
mod recovery_page;
#[path = "../harness/sandbox/mod.rs"]
mod sandbox;

mod in_the_middle;
mod second_home;
mod venti_by_ssh;
mod write_once;
