//! Damage and loss: hostile input, bad sectors, repair, replicas, and the recovery page followed
//! step by step.

#[path = "../harness/crash_runs/mod.rs"]
mod crash_runs;
#[path = "../harness/forgetful_disk/mod.rs"]
mod forgetful_disk;
#[path = "../harness/recovery_page/mod.rs"]
mod recovery_page;
#[path = "../harness/sandbox/mod.rs"]
mod sandbox;
#[path = "../harness/venti_server/mod.rs"]
mod venti_server;

mod bad_input;
mod bad_sectors;
mod format_page;
mod newer;
mod recovery;
mod repair;
mod replica;
