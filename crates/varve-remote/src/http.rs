//! HTTP for S3 and WebDAV: one try of one request, and what its answer is made of.

pub mod base64;
pub mod exchange;
pub mod plain_receiver;
pub mod xml;
