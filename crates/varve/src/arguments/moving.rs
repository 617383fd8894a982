//! The arguments of `varve import`.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, Subcommand, ValueHint};
use varve_world::Timestamp;

use super::value::{parse_name, parse_time};

pub const IMPORT_HELP: &str = "\
Snapshots of another program keep their times and hosts, and get the tag import=KIND:ID. Those that were imported before are not \
imported again, so both programs may run side by side, and the same command brings in what is new. A content that an earlier snapshot \
has is linked, not read. The other program's files are opened for reading only.

With --venti-arenas, every block is hashed before it is stored, and every seal is checked. Damage is reported, and does not prevent \
the import of the rest. If the import is interrupted, or an arena has grown since, the same command continues where it stopped. The \
roots of archives are printed, as vac and vbackup printed them, in case they were not kept.

Examples:
  varve import restic /srv/restic-repository
  varve import borg /srv/borg-repository
  varve import rsnapshot /backup/rsnapshot --by-mtime --name server
  varve import tar home-2026-05-01.tar
  varve -s /backup/store init --score sha1
  varve -s /backup/store import --venti-arenas /dev/sdb1 arena7
  varve -s /backup/store ls vac:4a88b8d2d3472284cf60e0d27cf6e61ee670c531";

pub const RESTIC_HELP: &str = "\
The repository is a folder on this machine; no lock is written into it. The password is that of restic: --password-file, \
RESTIC_PASSWORD_FILE or RESTIC_PASSWORD, else it is asked for. Everything that is read is authenticated, and compared with its \
SHA-256.

A snapshot of one folder becomes a snapshot of that folder, so `varve snapshot FOLDER` continues it without reading unchanged files. \
A snapshot of several paths keeps the paths from the root.

If a part of the repository is damaged, the rest is imported: the files that cannot be read are named.

Examples:
  varve import restic /srv/restic-repository
  varve import restic /srv/restic-repository --host web1 --name web1 --dry-run";

pub const BORG_HELP: &str = "\
The repository is a folder, or a place at a server in borg's own form. It is read by borg 1 itself, which must be installed, and which \
keeps its own lock while it reads. The passphrase is that of borg: BORG_PASSPHRASE or BORG_PASSCOMMAND, else it is asked for.

An archive becomes a snapshot with the time of the archive. If borg was called with one folder, the snapshot is one of that folder. \
Otherwise the name of the series is the name of the archive without its date, and the paths are those of borg.

A file whose chunks an earlier snapshot has is linked, not read.

Examples:
  varve import borg /srv/borg-repository
  varve import borg ssh://backup@vault.example/./borg --archives 'web1-*' --name web1";

pub const RSNAPSHOT_HELP: &str = "\
Each folder in DIR is a snapshot: the folders of rsnapshot, of rsync with --link-dest, of Back In Time and of other programs that keep \
unchanged files as hard links. A file that an earlier snapshot has under the same inode is not read again.

The time of a snapshot is the date in the name of its folder, such as 2026-05-01 or 20260501-231500, in the time zone of this \
machine. rsnapshot's names have no date: --by-mtime takes the modification time of each folder, which rsnapshot sets.

Examples:
  varve import rsnapshot /backup/rsnapshot --by-mtime --name server
  varve import rsnapshot /backup/dated-folders";

pub const TAR_HELP: &str = "\
A tar file becomes one snapshot. `-` reads it from standard input, so a compressed file is unpacked on the way. Its time is --time, or \
the date in its name, or with --by-mtime its modification time.

Long names, exact times, extended attributes, hard links and sparse files are read in the formats ustar, GNU and PAX. Access lists \
that GNU tar wrote as text (--acls) are named, and left out.

Examples:
  varve import tar home-2026-05-01.tar --name home
  zstd -dc home.tar.zst | varve import tar - --time 2026-05-01 --name home";

pub const ZIP_HELP: &str = "\
A zip file becomes one snapshot. Its time is --time, or the date in its name, or with --by-mtime its modification time.

Contents are compared with their CRC-32 and their sizes. If an entry is encrypted, nothing is imported.

Examples:
  varve import zip photos-2026-05-01.zip --name photos";

pub const QCOW2_HELP: &str = "\
Each image of a chain of backing files becomes a snapshot of the disk as that image has it, the oldest first. Clusters that an image \
does not hold itself are linked to the snapshot of the image below, and not read again. The images are read through QEMU's tools.

The time of a snapshot is the date in the name of the image, or with --by-mtime the modification time of the image.

Examples:
  varve import qcow2 /vm/web/today.qcow2 --allow-backing /vm/web --by-mtime --name web";

#[derive(Debug, Clone, Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub struct ImportArgs {
    /// Partitions of arenas, or single arenas, of plan9port's Venti
    #[arg(long, required = true, num_args = 1.., value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub venti_arenas: Vec<PathBuf>,

    #[command(subcommand)]
    pub from: Option<ImportCommand>,
}

/// The programs whose snapshots can be imported.
#[derive(Debug, Clone, Subcommand)]
pub enum ImportCommand {
    /// Import the snapshots of a repository of restic
    #[command(after_help = RESTIC_HELP)]
    Restic(ImportResticArgs),
    /// Import the snapshots of a repository of rustic
    #[command(after_help = RESTIC_HELP)]
    Rustic(ImportResticArgs),
    /// Import the archives of a repository of borg 1
    #[command(after_help = BORG_HELP)]
    Borg(ImportBorgArgs),
    /// Import folders of hard links, such as those of rsnapshot
    #[command(after_help = RSNAPSHOT_HELP)]
    Rsnapshot(ImportLinkTreesArgs),
    /// Import a tar file as a snapshot
    #[command(after_help = TAR_HELP)]
    Tar(ImportTarArgs),
    /// Import a zip file as a snapshot
    #[command(after_help = ZIP_HELP)]
    Zip(ImportZipArgs),
    /// Import the images of a qcow2 chain as snapshots of a disk
    #[command(after_help = QCOW2_HELP)]
    Qcow2(ImportImagesArgs),
}

/// The arguments that all kinds have.
#[derive(Debug, Clone, Args)]
pub struct ImportedArgs {
    /// The name of the snapshots [default: made from their sources]
    #[arg(long, value_parser = parse_name)]
    pub name: Option<String>,

    /// Only list the snapshots that would be imported
    #[arg(short = 'n', long)]
    pub dry_run: bool,

    /// Restore each imported snapshot with the other program too, and compare everything
    ///
    /// Contents, names, modes, times and extended attributes are compared, and owners if root runs
    /// it, also those of snapshots that were imported before. Needs the other program (unzip for
    /// zip files, qemu-img for disks), and room for a snapshot in TMPDIR.
    #[arg(long, conflicts_with = "dry_run")]
    pub check: bool,

    /// Write a report of --check to this file
    #[arg(long, value_name = "FILE", requires = "check", value_hint = ValueHint::FilePath)]
    pub report: Option<PathBuf>,
}

/// The time of a file that becomes one snapshot.
#[derive(Debug, Clone, Args)]
pub struct ImportedFileTime {
    /// The time of the snapshot, such as 2026-05-01T23:15
    #[arg(long, value_parser = parse_time)]
    pub time: Option<Timestamp>,

    /// The time of the snapshot is the modification time of the file
    #[arg(long, conflicts_with = "time")]
    pub by_mtime: bool,
}

#[derive(Debug, Clone, Args)]
pub struct ImportResticArgs {
    /// The folder of the repository
    #[arg(value_name = "REPOSITORY", value_hint = ValueHint::DirPath)]
    pub repository: PathBuf,

    /// Read the password from this file
    #[arg(long, env = "RESTIC_PASSWORD_FILE", value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub password_file: Option<PathBuf>,

    /// Import the snapshots of this host only; may be given several times
    #[arg(long, value_name = "HOST")]
    pub host: Vec<String>,

    /// Import the snapshots of this path only; may be given several times
    #[arg(long, value_name = "PATH")]
    pub path: Vec<String>,

    #[command(flatten)]
    pub imported: ImportedArgs,
}

#[derive(Debug, Clone, Args)]
pub struct ImportBorgArgs {
    /// The folder of the repository, or user@host:path, or an ssh:// URL
    #[arg(value_name = "REPOSITORY", value_hint = ValueHint::DirPath)]
    pub repository: OsString,

    /// Import only archives whose names match this pattern of borg, such as 'web1-*'
    #[arg(long, value_name = "PATTERN")]
    pub archives: Option<String>,

    /// Import the archives of this host only; may be given several times
    #[arg(long, value_name = "HOST")]
    pub host: Vec<String>,

    #[command(flatten)]
    pub imported: ImportedArgs,
}

#[derive(Debug, Clone, Args)]
pub struct ImportLinkTreesArgs {
    /// The folder that holds a folder for each snapshot
    #[arg(value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub folder: PathBuf,

    /// The time of a snapshot is the modification time of its folder
    #[arg(long)]
    pub by_mtime: bool,

    #[command(flatten)]
    pub imported: ImportedArgs,
}

#[derive(Debug, Clone, Args)]
pub struct ImportTarArgs {
    /// The tar file, or - for standard input
    #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub file: PathBuf,

    #[command(flatten)]
    pub time: ImportedFileTime,

    #[command(flatten)]
    pub imported: ImportedArgs,
}

#[derive(Debug, Clone, Args)]
pub struct ImportZipArgs {
    /// The zip file
    #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub file: PathBuf,

    #[command(flatten)]
    pub time: ImportedFileTime,

    #[command(flatten)]
    pub imported: ImportedArgs,
}

#[derive(Debug, Clone, Args)]
pub struct ImportImagesArgs {
    /// The newest image of the chain
    #[arg(value_name = "IMAGE", value_hint = ValueHint::FilePath)]
    pub image: PathBuf,

    /// A folder for the other images of the chain; may be given several times
    #[arg(long = "allow-backing", value_name = "FOLDER", value_hint = ValueHint::DirPath)]
    pub allow_backing: Vec<PathBuf>,

    /// The time of a snapshot is the modification time of its image
    #[arg(long)]
    pub by_mtime: bool,

    #[command(flatten)]
    pub imported: ImportedArgs,
}
