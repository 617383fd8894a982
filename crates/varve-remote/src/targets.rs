//! The kinds of targets. Each implements one attempt of each operation.

pub mod folder;
pub mod ftp;
pub mod memory;
pub mod s3;
pub mod sftp;
pub mod web;
pub mod webdav;
