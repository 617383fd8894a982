//! The arguments of `varve stats`.

use clap::Args;

use super::value::parse_size;

pub const STATS_HELP: &str = "\
With --arenas, every arena is listed with what `gc` would find: the bytes that snapshots need, those that nothing needs, and the \
reason why `gc` would leave it as it is. Nothing is changed. Snapshots in the trash need their space until their undo has ended.

With --snapshots, the stored bytes are counted that only one snapshot needs, its own, and those that it shares with others. \
FREES is what becomes free in the end if it alone is forgotten: the bytes that beside it at most the trash needs. \
For a name, its own bytes are those that one or several of its snapshots need, and no other name. Snapshots in the trash count \
too. PLACES/GIB is the number of places on the disk that a sequential read of its newest snapshot visits, for each GiB.

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

    /// Show the space that each snapshot and each name needs alone, and shares
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
