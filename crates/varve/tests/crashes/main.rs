//! Crashes: the real program is killed, the power is cut under it, and its behaviour is held against a model.

#[path = "../harness/crash_runs/mod.rs"]
mod crash_runs;
#[path = "../harness/forgetful_disk/mod.rs"]
mod forgetful_disk;
#[path = "../harness/sandbox/mod.rs"]
mod sandbox;

mod kill;
mod model;
mod power;
