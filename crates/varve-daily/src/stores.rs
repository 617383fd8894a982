//! Looks at stores and replicas: what they say of themselves, each for a bounded time.

mod open_store;
mod replica_views;
mod server_clocks;
mod store_identity;
mod taken_over;

pub use open_store::{open_store, read_facts};
pub use replica_views::look_at_replicas;
pub use server_clocks::ask_clocks;
pub use store_identity::{check_identity, id_at};
pub use taken_over::check_series;
