//! Machines that are booted from a snapshot, and machines that are archived while they run.

#[path = "../harness/qemu/mod.rs"]
mod qemu;
#[path = "../harness/sandbox/mod.rs"]
mod sandbox;
#[path = "../harness/venti_server/mod.rs"]
mod venti_server;

mod boot;
mod machine;
