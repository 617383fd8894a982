//! The front ends that show snapshots to other programs: FUSE, NBD, NFS, WebDAV, the web page, and
//! proxies.

#[path = "../harness/mount_point/mod.rs"]
mod mount_point;
#[path = "../harness/sandbox/mod.rs"]
mod sandbox;

mod doors;
mod mount;
mod proxies;
mod serve_nbd;
mod web_page;
mod web_previews;
mod web_state;
