//! Moving in: real repositories of other programs are imported, and each snapshot is compared file
//! by file with what the other program restores. A test is skipped, with a message, if its program
//! is not installed.
#![expect(clippy::print_stdout, reason = "what is skipped is named")]

#[path = "../harness/sandbox/mod.rs"]
mod sandbox;

#[path = "../harness/mount_point/mod.rs"]
mod mount_point;

mod borg;
mod changing_folder;
mod disks;
mod forged_restic;
mod guides;
mod restic;
mod rsnapshot;
mod tar;
mod zip;
