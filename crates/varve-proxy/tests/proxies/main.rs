//! The proxies, each over stores that work, that are away, and that lie; the write buffer over a disk that loses power at any call.

mod behind;
mod bounded;
mod buffer;
mod cache;
mod read_ahead;
mod shards;
mod ways;
