//! The arguments of `varve stats`.

use clap::Args;

use super::value::parse_size;

pub const STATS_HELP: &str = "\
With --arenas, every arena is listed with what `gc` would find: the bytes that snapshots need, those that nothing needs, and the \
reason why `gc` would leave it as it is. Nothing is changed. Snapshots in the trash need their space until their undo has ended.

Examples:
  varve -s /backup/store stats
  varve -s /backup/store stats --arenas";

/// `varve stats`
#[derive(Debug, Clone, Args)]
pub struct StatsArgs {
    /// Show how much of each arena is needed, and how much is dead
    #[arg(long)]
    pub arenas: bool,

    /// Use at most this much memory for the set of live blocks
    #[arg(long, value_name = "SIZE", default_value = "256M", value_parser = parse_size, requires = "arenas")]
    pub memory: u64,

    /// Count every archive of another program as needed
    #[arg(long, requires = "arenas", conflicts_with = "no_foreign_roots")]
    pub keep_all_roots: bool,

    /// No other program keeps scores of this store: what no snapshot needs is dead
    #[arg(long, requires = "arenas")]
    pub no_foreign_roots: bool,
}
