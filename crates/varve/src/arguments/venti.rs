//! The arguments of `varve import`, `varve copy` and `varve venti`.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueHint};

use super::which::Which;

pub const IMPORT_HELP: &str = "\
Every block is hashed before it is stored, and every seal is checked. What is damaged is told, and hides nothing else. If it is interrupted, or an arena has grown since, \
the same command goes on where it stopped. The roots of archives that are met are printed: what vac and vbackup once said, should nobody \
have kept it.

Examples:
  varve -s /backup/store init --score sha1
  varve -s /backup/store import --venti-arenas /dev/sdb1 arena7
  varve -s /backup/store ls vac:4a88b8d2d3472284cf60e0d27cf6e61ee670c531";

pub const COPY_HELP: &str = "\
Snapshots go to a store of any other kind: encrypted or not, by hash or by value, with any index. Each keeps its id, its time and its tags, and those that are there already \
are not copied again: an interrupted copy goes on with the same command. What snapshots share is read once. FROM may be a replica.

The key that is given opens both stores, if both are encrypted; --from-key-file, or the passphrase in VARVE_FROM_PASSPHRASE, opens FROM if that has another one.

Of an archive that vac or vbackup wrote, what is there already is not copied. All that a block leads to is copied before the block itself, so an interrupted copy goes on with the same command. With \
--fast a block that is there is taken to be there with all that it leads to, as venti/copy -f does: then nothing below it is looked at.

Examples:
  varve copy /old/store latest /new/store
  varve copy --all --from-key-file old.key /old/store /new/store
  varve copy /old/store vac:4a88b8d2d3472284cf60e0d27cf6e61ee670c531 /new/store
  varve copy --fast /old/store home.vac /new/store
  varve copy venti://old home.vac venti://new";

#[derive(Debug, Clone, Args)]
pub struct Import {
    /// Partitions of arenas, or single arenas, of plan9port's Venti
    #[arg(long, required = true, num_args = 1.., value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub venti_arenas: Vec<PathBuf>,
}

#[derive(Debug, Clone, Args)]
pub struct Copy {
    /// The store that has it; what to copy: snapshots, or one vac:SCORE, ext2:SCORE and the like,
    /// or .vac file; the store that is to have it. For vac archives, either may be a Venti server
    #[arg(required = true, num_args = 2.., value_names = ["FROM", "WHAT", "TO"], value_hint = ValueHint::AnyPath)]
    pub words: Vec<PathBuf>,

    /// All snapshots, the oldest first; all that the conditions leave, if there are any
    #[arg(short, long, conflicts_with = "fast")]
    pub all: bool,

    /// The key file of FROM, if that is another one
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub from_key_file: Option<PathBuf>,

    /// Of a vac archive: take what is there to be there with all that it leads to
    #[arg(short, long)]
    pub fast: bool,

    #[command(flatten)]
    pub which: Which,
}

/// What to do with sessions: each is a connection to a door of `varve serve --venti ADDRESS
/// --sessions` by which something was written.
#[derive(Debug, Clone, Subcommand)]
pub enum Venti {
    /// List the sessions: from where, when, and how many blocks they wrote
    Sessions,
    /// Stop serving the blocks that only these sessions wrote; nothing is removed
    ///
    /// A block that was in the store before, or that any other session has written before or since,
    /// is served as before. The door heeds this when it is next started, and the store must not be
    /// served meanwhile. Commands of this program, such as `restore`, still read these blocks.
    SetAside {
        /// Their numbers, as `varve venti sessions` shows them
        #[arg(required = true)]
        sessions: Vec<u64>,

        /// Only print how many blocks that would be
        #[arg(long)]
        dry_run: bool,
    },
    /// Serve again what was set aside
    PutBack {
        /// Their numbers, as `varve venti sessions` shows them
        #[arg(required = true)]
        sessions: Vec<u64>,
    },
}
