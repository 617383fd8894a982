//! Crashes: the real program is killed, its power is cut, and its behaviour is compared with a
//! model.

#[path = "../harness/crash_runs/mod.rs"]
mod crash_runs;
#[path = "../harness/forgetful_disk/mod.rs"]
mod forgetful_disk;
#[path = "../harness/mount_point/mod.rs"]
mod mount_point;
#[path = "../harness/sandbox/mod.rs"]
mod sandbox;

mod beside;
mod kill;
mod kill_gc;
mod model;
mod power;
