//! The words of `varve import` and `varve copy`.

use std::path::PathBuf;

use clap::{Args, ValueHint};

pub const IMPORT_HELP: &str = "\
Every block is hashed before it is stored, and every seal is checked. What is damaged is told, and hides nothing else. If it is interrupted, or an arena has grown since, \
the same command goes on where it stopped. The roots of archives that are met are printed: what vac and vbackup once said, should nobody \
have kept it.

Examples:
  varve -s /backup/store init --score sha1
  varve -s /backup/store import --venti-arenas /dev/sdb1 arena7
  varve -s /backup/store ls vac:4a88b8d2d3472284cf60e0d27cf6e61ee670c531";

pub const COPY_HELP: &str = "\
What is there already is not copied. All that a block leads to is copied before the block itself, so an interrupted copy goes on with the same command. With \
--fast a block that is there is taken to be there with all that it leads to, as venti/copy -f does: then nothing below it is looked at.

Examples:
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
    /// The store that has it, or a Venti server
    #[arg(value_hint = ValueHint::DirPath)]
    pub from: PathBuf,

    /// What to copy: vac:SCORE, ext2:SCORE and the like, or a .vac file
    pub archive: String,

    /// The store that is to have it, or a Venti server
    #[arg(value_hint = ValueHint::DirPath)]
    pub to: PathBuf,

    /// Take what is there to be there with all that it leads to
    #[arg(short, long)]
    pub fast: bool,
}
