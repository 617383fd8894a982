//! HTTP for S3, WebDAV and web servers: one attempt of one request, and the parts of its answer.

pub mod connect;
pub mod exchange;
pub mod least_rate;
pub mod own_network;
pub mod plain_receiver;
pub mod xml;
