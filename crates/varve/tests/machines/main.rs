//! Machines that are booted from a snapshot, and machines that are archived while they run.

#[path = "../harness/loop_device/mod.rs"]
mod loop_device;
#[path = "../harness/qemu/mod.rs"]
mod qemu;
#[path = "../harness/sandbox/mod.rs"]
mod sandbox;
#[path = "../harness/small_guest/mod.rs"]
mod small_guest;
#[path = "../harness/uefi/mod.rs"]
mod uefi;
#[path = "../harness/venti_server/mod.rs"]
mod venti_server;

mod boot;
mod firmware;
mod machine;
mod sectors;
mod unarchived;
