//! The arguments of `varve copy` and `varve venti`.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueHint};

use super::snapshot_filter::SnapshotFilterArgs;

pub const COPY_HELP: &str = "\
Snapshots can be copied to a store of any kind: encrypted or not, by hash or by value, with any index. Each keeps its id, its time \
and its tags. Snapshots that the destination already has are not copied again, so an interrupted copy continues with the same \
command. Data that several snapshots share is read once. FROM may be a replica.

The given key opens both stores, if both are encrypted; --from-key-file, or the passphrase in VARVE_FROM_PASSPHRASE, opens FROM if \
its key differs.

For an archive of vac or vbackup, blocks that the destination already has are not copied. All blocks below a block are copied \
before the block itself, so an interrupted copy continues with the same command. With --fast, all blocks below an existing block \
are assumed to exist, as with venti/copy -f, and are not examined.

Examples:
  varve copy /old/store latest /new/store
  varve copy --all --from-key-file old.key /old/store /new/store
  varve copy /old/store vac:4a88b8d2d3472284cf60e0d27cf6e61ee670c531 /new/store
  varve copy --fast /old/store home.vac /new/store
  varve copy venti://old home.vac venti://new";

#[derive(Debug, Clone, Args)]
pub struct CopyArgs {
    /// The source store, the snapshots or the archive to copy, and the destination store
    ///
    /// An archive of vac or vbackup is vac:SCORE, ext2:SCORE and the like, or a .vac file. For
    /// these, either store may be a Venti server.
    #[arg(required = true, num_args = 2.., value_names = ["FROM", "WHAT", "TO"], value_hint = ValueHint::AnyPath)]
    pub operands: Vec<PathBuf>,

    /// Copy all snapshots, or all that meet the conditions, the oldest first
    #[arg(short, long, conflicts_with = "fast")]
    pub all: bool,

    /// The key file of FROM, if it differs
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub from_key_file: Option<PathBuf>,

    /// For vac archives: assume that all blocks below an existing block exist, too
    #[arg(short, long)]
    pub fast: bool,

    #[command(flatten)]
    pub which: SnapshotFilterArgs,
}

/// The operations on sessions. A session is a connection to `varve serve --venti ADDRESS
/// --sessions` that wrote blocks.
#[derive(Debug, Clone, Subcommand)]
pub enum VentiCommand {
    /// List the sessions, with their clients, times and numbers of blocks
    Sessions,
    /// Stop serving the blocks that only these sessions wrote; nothing is removed
    ///
    /// A block that was in the store before, or that any other session has written before or since,
    /// is still served. This takes effect when the server is next started, and the store must not
    /// be served meanwhile. Commands of this program, such as `restore`, still read these blocks.
    SetAside {
        /// The numbers of the sessions, as `varve venti sessions` shows them
        #[arg(required = true)]
        sessions: Vec<u64>,

        /// Only print the number of blocks
        #[arg(short = 'n', long)]
        dry_run: bool,
    },
    /// Serve blocks again that were set aside
    PutBack {
        /// The numbers of the sessions, as `varve venti sessions` shows them
        #[arg(required = true)]
        sessions: Vec<u64>,
    },
}
