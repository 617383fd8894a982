//! The arguments of `varve stats`.

use clap::Args;

use super::value::parse_size;

pub const STATS_HELP: &str = "\
With --arenas, every arena is listed with what `gc` would find: the bytes that snapshots need, those that nothing needs, and the \
reason why `gc` would leave it as it is. Nothing is changed. Snapshots in the trash need their space until their undo has ended.

With --snapshots, the stored bytes are counted that only one snapshot needs, its own: they are freed if it alone is forgotten. \
For a name, its own bytes are those that one or several of its snapshots need, and no other name: they are freed if all of them \
are forgotten. Snapshots in the trash count too. Every byte of the store is in exactly one of the sums.

Examples:
  varve -s /backup/store stats
  varve -s /backup/store stats --arenas
  varve -s /backup/store stats --snapshots";

/// `varve stats`
#[derive(Debug, Clone, Args)]
pub struct StatsArgs {
    /// Show how much of each arena is needed, and how much is dead
    #[arg(long, group = "where")]
    pub arenas: bool,

    /// Show the space that each snapshot and each name needs alone
    #[arg(long, group = "where")]
    pub snapshots: bool,

    /// Use at most this much memory to find out who needs what
    #[arg(long, value_name = "SIZE", default_value = "256M", value_parser = parse_size, requires = "where")]
    pub memory: u64,

    /// Count every archive of another program as needed
    #[arg(long, requires = "arenas", conflicts_with = "no_foreign_roots")]
    pub keep_all_roots: bool,

    /// No other program keeps scores of this store: what no snapshot needs is dead
    #[arg(long, requires = "arenas")]
    pub no_foreign_roots: bool,
}
