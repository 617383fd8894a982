//! The proxies, each over stores that work, that are away, and that lie. The write buffer is over a
//! disk that may lose power at any call.

mod behind;
mod bounded;
mod buffer;
mod cache;
mod read_ahead;
mod recording;
mod shards;
mod ways;
