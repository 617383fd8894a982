//! How a failure is told: what happened, why, and what to do next.

use std::os::unix::ffi::OsStrExt;

use anyhow::Error;
use serde_json::json;
use varve_archive::{NameTaken, RestoreFolderError, RestoreImageError};
use varve_block::{causes, with_causes};
use varve_replica::{CloneError, OpenReplicaError, ReplicateError};
use varve_session::{FailureKind, OpenToOthers, typed_causes};
use varve_store::{ConfigError, CreateError, KeyError, NotPermitted, OpenError, Permission};

use crate::arguments::Command;
use crate::command::WouldChange;
use crate::{exit_status, say, show};

/// Prints an error with its causes, and a hint if there is one.
pub fn print(error: &Error) {
    print_with(error, || Some(STORE_FULL), None);
}

/// The same for what a whole command has ended with.
pub fn print_end(command: &Command, error: &Error) {
    let is_damage = matches!(command, Command::Restore(_)) && exit_status::is_damage(error.as_ref());
    print_with(error, || when_full(command), is_damage.then_some(KEEP_DAMAGED));
}

fn print_with(error: &Error, when_full: impl FnOnce() -> Option<&'static str>, last: Option<&'static str>) {
    let full = || if FailureKind::NoSpace.is_in(error.as_ref()) { when_full() } else { None };
    let hint = hint(error).or_else(full).or(last);
    let message = told(&with_causes(error.as_ref()));
    let fields = || {
        let causes: Vec<_> = error.chain().skip(1).map(ToString::to_string).collect();
        json!({ "message": message, "causes": causes, "hint": hint, "status": exit_status::of(error) })
    };
    match hint {
        Some(hint) => say::diagnosis("error", fields, format_args!("varve: {message}\nhint: {hint}")),
        None => say::diagnosis("error", fields, format_args!("varve: {message}")),
    }
}

/// Prints what is wrong with the command line. Returns the exit status.
pub fn print_usage(error: &clap::Error) -> u8 {
    if std::env::args_os().all(|argument| argument != "--json") {
        // If that fails there is nobody to report it to.
        drop(error.print());
        return exit_status::USAGE;
    }
    say::set_form(say::Form::Json);
    let text = error.to_string();
    let message = text.strip_prefix("error: ").unwrap_or(&text).trim_end();
    let none: [&str; 0] = [];
    say::record(
        "error",
        json!({ "message": message, "causes": none, "hint": null, "status": exit_status::USAGE }),
    );
    exit_status::USAGE
}

/// Reports a file that an operation met trouble with.
pub fn report_problem(problem: &varve_archive::Problem) {
    let fields = || {
        let mut fields = json!({ "message": told(&with_causes(problem.error.as_ref())) });
        show::put_name(&mut fields, "path", problem.path.as_os_str().as_bytes());
        fields
    };
    say::diagnosis("problem", fields, format_args!("varve: {}", self::problem(problem)));
}

/// A file that an operation met trouble with.
fn problem(problem: &varve_archive::Problem) -> String {
    let path = show::name(problem.path.as_os_str().as_bytes());
    let path = if path.is_empty() { "." } else { &path };
    format!("{path}: {}", told(&with_causes(problem.error.as_ref())))
}

/// What an error says, which may be in the words of somebody else: a second line of it is set in, and so is none of ours.
fn told(text: &str) -> String {
    show::plain(text).replace('\n', "\n  ")
}

const STORE_FULL: &str =
    "nothing that was archived before is lost; make space and run the same command again";
/// What may help where there is no room for what comes out of the archive.
pub const DESTINATION_FULL: &str = "the archive is as it was; make space where it is restored to, and the same command goes on where it stopped";
/// What helps where something is damaged.
pub const KEEP_DAMAGED: &str = "--keep-damaged restores all that can be read, and lists the rest; `varve repair --from COPY` may bring it back";
/// What helps where something is there already, the way that changes least first.
const EXISTS: &str = "--dry-run shows what would be done; --overwrite if-changed replaces what differs, and removes nothing; a / at the \
                      end of the destination restores into that folder, under its own name";

/// What may help a command that has met a full disk.
fn when_full(command: &Command) -> Option<&'static str> {
    match command {
        Command::Restore(_) => Some(DESTINATION_FULL),
        Command::Clone(_) => {
            Some("the replica is as it was; make space, and the same command goes on where it stopped")
        }
        Command::Init(_) => Some("make space, and run the same command again"),
        Command::Snapshots(_)
        | Command::Stats
        | Command::Ls(_)
        | Command::Cat(_)
        | Command::Diff(_)
        | Command::Find(_)
        | Command::Plan(_)
        | Command::Bench(_)
        | Command::Completions { .. }
        | Command::Man { .. } => None,
        _ => Some(STORE_FULL),
    }
}

const PUT_BACK: &str =
    "it is the same in every copy and replica of the store: `varve repair --from COPY` puts it back";

/// What may help.
fn hint(error: &Error) -> Option<&'static str> {
    for cause in typed_causes(error.as_ref()) {
        if cause.is::<NameTaken>() {
            return Some(
                "--name NAME with the same name goes on with it all the same, as after a move or on a machine with a new host \
                 name; --name with another name begins a series of its own",
            );
        }
        if let Some(OpenError::NotAStore) = cause.downcast_ref() {
            return Some(
                "`varve -s PATH init` makes a store there; if there was one, check the path, and whether its disk is mounted",
            );
        }
        let of_replica = match cause.downcast_ref() {
            Some(ReplicateError::Open(error)) => Some(error),
            _ => cause.downcast_ref::<OpenReplicaError>(),
        };
        match (of_replica, cause.downcast_ref()) {
            (Some(OpenReplicaError::Config(_)), _) | (_, Some(ReplicateError::ForeignConfig)) => {
                return Some(
                    "`varve replicate TARGET --replace config.toml` puts the store's there; a copy of the file does as well",
                );
            }
            (Some(OpenReplicaError::Mark), _) => {
                return Some("`varve replicate TARGET --replace replica.toml` puts it there again");
            }
            _ => {}
        }
        let is_config_damaged =
            matches!(cause.downcast_ref(), Some(ConfigError::Parse(_) | ConfigError::Value { .. }));
        if is_config_damaged
            || matches!(cause.downcast_ref(), Some(OpenError::ConfigLost | OpenError::Downgraded { .. }))
        {
            return Some(PUT_BACK);
        }
        if let Some(OpenError::Locked { .. }) = cause.downcast_ref() {
            return Some(
                "--wait 10m waits until it is done; the store can be read meanwhile: only writers exclude each other",
            );
        }
        if cause.is::<OpenToOthers>() {
            return Some("`chmod 600 FILE` closes it; if others may have read it, make another key");
        }
        if let Some(NotPermitted { permission: Permission::Read, .. }) = cause.downcast_ref() {
            return Some("give a key that `varve key list` shows as full or append-only");
        }
        if let Some(NotPermitted { permission: Permission::Destroy, .. }) = cause.downcast_ref() {
            return Some("give a key that `varve key list` shows as full");
        }
        let is_there = cause.is::<WouldChange>()
            || matches!(cause.downcast_ref(), Some(RestoreFolderError::Exists { .. }))
            || matches!(cause.downcast_ref(), Some(RestoreImageError::Exists { .. }));
        if is_there {
            return Some(EXISTS);
        }
        // Of what is to be replaced: the folder that it lies in is told by the system itself, and not by somebody between.
        let is_closed = |error: &std::io::Error| error.kind() == std::io::ErrorKind::PermissionDenied;
        if let Some(RestoreFolderError::Destination { source, .. }) = cause.downcast_ref()
            && source.kind() == std::io::ErrorKind::Other
            && causes(source).any(|cause| cause.downcast_ref().is_some_and(is_closed))
        {
            return Some(
                "what is to be replaced has folders that are closed to you: `chmod -R u+rwX` opens your own; or restore elsewhere",
            );
        }
        if matches!(cause.downcast_ref(), Some(CreateError::NotEmpty { .. }))
            || matches!(cause.downcast_ref(), Some(CloneError::Exists | CloneError::NotEmpty { .. }))
        {
            return Some("name an empty folder, or one that does not exist yet");
        }
        match cause.downcast_ref() {
            Some(ReplicateError::Ahead { .. }) => {
                return Some("`varve clone TARGET FOLDER` brings the newer state into another folder");
            }
            Some(ReplicateError::ForeignObject { .. }) => {
                return Some("remove it there by hand; who has put it there can do worse");
            }
            Some(ReplicateError::NotReplaceable(_)) => {
                return Some(
                    "`varve verify --replica TARGET --data` names what is damaged there, as --replace wants it",
                );
            }
            Some(ReplicateError::Diverged { .. } | ReplicateError::ForeignStore { .. }) => {
                return Some("name another folder or prefix as the target of this store");
            }
            _ => {}
        }
        match cause.downcast_ref() {
            Some(KeyError::Missing) => {
                return Some("set VARVE_PASSPHRASE, or name a key file with --key-file");
            }
            Some(KeyError::NoSuchKind { what: "passphrase" }) => {
                return Some("name its key file with --key-file");
            }
            Some(KeyError::NoSuchKind { .. }) => return Some("leave --key-file out and give its passphrase"),
            Some(KeyError::Malformed { .. } | KeyError::NoKeys) => {
                return Some(
                    "`varve repair --from COPY` puts it back from a copy or a replica of the store; else use another key, or \
                     the paper key: `varve key import`",
                );
            }
            Some(KeyError::Last { .. }) => return Some("add another key first: `varve key add`"),
            Some(KeyError::NotPermitted(_)) => return Some("use a key that `varve key list` shows as full"),
            _ => {}
        }
    }
    None
}
