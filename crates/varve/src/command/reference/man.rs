//! Generates the man pages: one page for each command, with the usual sections.

use std::path::Path;

use varve_content::{NewFile, PUBLIC};

use clap::{Arg, ArgAction, Command};
use clap_mangen::roff::{Inline, Roff, bold, italic, roman};

use crate::arguments::GROUPS;
use crate::environment::VARIABLES;
use crate::exit_status;

/// The date of the last full review of these pages: that of the release.
const DATE: &str = "November 2026";

/// The exit statuses of `docs/guide/exit-status.md`.
const STATUSES: [(u8, &str); 10] = [
    (exit_status::DONE, "success"),
    (exit_status::FAILED, "failure"),
    (exit_status::USAGE, "usage error: nothing was done"),
    (exit_status::GAPS, "done with gaps: some files could not be read or restored"),
    (exit_status::DAMAGE, "damage was found"),
    (exit_status::NO_STORE, "there is no store or replica at the given place"),
    (exit_status::LOCKED, "another writer holds the store; --wait waits for it"),
    (exit_status::WRONG_KEY, "wrong key or passphrase, or one that is not allowed to do this"),
    (exit_status::NEWER_VERSION, "a newer version of the program wrote the store; nothing was changed"),
    (exit_status::INTERRUPTED, "interrupted"),
];

/// The files that this program keeps, with their purpose.
const FILES: [(&str, &str); 5] = [
    (
        "~/.cache/varve",
        "data that was read from replicas, and the last known state of each; it may be deleted",
    ),
    ("~/.local/state/varve/roots", "the catalog's roots at each Venti server"),
    ("~/.local/state/varve/known-servers", "servers that may be sent VARVE_REMOTE_PASSWORD"),
    ("STORE/replicas.toml", "the replicas that the store remembers"),
    ("STORE/FORMAT.md", "a description of the store, for reading it without this program"),
];

/// Writes one page for each command into a folder.
///
/// # Errors
/// Errors of the system.
pub fn write(command: &Command, folder: &Path) -> std::io::Result<()> {
    let names: Vec<_> = names(command).into_iter().map(|name| format!("{name}(1)")).collect();
    write_with(command, command, &names, folder)
}

fn names(command: &Command) -> Vec<String> {
    std::iter::once(page_name(command)).chain(with_pages(command).flat_map(names)).collect()
}

/// Returns the commands below this one that have pages of their own. The commands of a group have
/// them under their own names.
fn with_pages(command: &Command) -> impl Iterator<Item = &Command> {
    let is_group = GROUPS.contains(&command.get_name());
    command.get_subcommands().filter(move |below| !is_group && !is_hidden(below))
}

fn is_hidden(command: &Command) -> bool {
    command.is_hide_set() || command.get_name() == "help"
}

fn page_name(command: &Command) -> String {
    let words = command.get_bin_name().unwrap_or_else(|| command.get_name());
    let mut words: Vec<_> = words.split(' ').collect();
    if words.len() > 2 && words.get(1).is_some_and(|word| GROUPS.contains(word)) {
        words.remove(1);
    }
    words.join("-")
}

fn write_with(root: &Command, command: &Command, names: &[String], folder: &Path) -> std::io::Result<()> {
    let file = folder.join(format!("{}.1", page_name(command)));
    NewFile::write(&file, PUBLIC, true, page(root, command, names).as_bytes())?;
    with_pages(command).try_for_each(|below| write_with(root, below, names, folder))
}

fn page(root: &Command, command: &Command, names: &[String]) -> String {
    let name = page_name(command);
    let is_root = std::ptr::eq(root, command);
    let root_page = format!("{}(1)", page_name(root));
    let mut roff = Roff::new();
    let version = format!("varve {}", root.get_version().unwrap_or_default());
    roff.control("TH", [name.to_uppercase().as_str(), "1", DATE, &version, "Varve"]);
    roff.control("SH", ["NAME"]);
    let about = command.get_about().map(ToString::to_string).unwrap_or_default();
    roff.text([roman(format!("{name} - {about}"))]);
    roff.control("SH", ["SYNOPSIS"]);
    roff.text(synopsis(command, is_root));
    roff.control("SH", ["DESCRIPTION"]);
    let (notes, examples) = after_help(command);
    let long = command.get_long_about().map_or(about, ToString::to_string);
    paragraphs(&mut roff, &long);
    paragraphs(&mut roff, &notes);
    commands(&mut roff, command);
    options(&mut roff, command, (!is_root).then_some(&root_page));
    if !examples.is_empty() {
        roff.control("SH", ["EXAMPLES"]);
        roff.control("nf", []);
        roff.text([roman(examples)]);
        roff.control("fi", []);
    }
    listed(&mut roff, "EXIT STATUS", STATUSES.iter().map(|(status, text)| (status.to_string(), *text)));
    roff.control("SH", ["ENVIRONMENT"]);
    if is_root {
        VARIABLES.iter().for_each(|(variable, text)| item(&mut roff, variable, text));
        listed(&mut roff, "FILES", FILES.iter().map(|(file, text)| ((*file).to_owned(), *text)));
    } else {
        let own = "VARVE_STORE names the store, and VARVE_KEY_FILE, VARVE_KEY_FILE_COMMAND, VARVE_PASSPHRASE_FILE, \
                   VARVE_PASSPHRASE_COMMAND or VARVE_PASSPHRASE opens it.";
        roff.text([roman(format!("{own} {root_page} lists all variables."))]);
        roff.control("SH", ["FILES"]);
        roff.text([roman(format!("See {root_page}."))]);
    }
    roff.control("SH", ["SEE ALSO"]);
    let own = format!("{name}(1)");
    let others: Vec<_> = names.iter().filter(|other| **other != own).map(String::as_str).collect();
    roff.text([roman(others.join(", "))]);
    roff.to_roff()
}

/// Returns the text and the examples that `--help` shows after the options.
fn after_help(command: &Command) -> (String, String) {
    let text = command.get_after_help().map(ToString::to_string).unwrap_or_default();
    let Some((before, rest)) = text.split_once("Examples:\n") else { return (text, String::new()) };
    let end = rest.find("\n\n").unwrap_or(rest.len());
    let (examples, after) = rest.split_at(end);
    (format!("{before}{after}"), examples.to_owned())
}

fn synopsis(command: &Command, is_root: bool) -> Vec<Inline> {
    let name = command.get_bin_name().unwrap_or_else(|| command.get_name());
    let mut line = vec![bold(name)];
    let own = command.get_opts().filter(|arg| !arg.is_hide_set() && (is_root || !arg.is_global_set()));
    for option in own {
        line.push(roman(if option.is_required_set() { " " } else { " [" }));
        line.extend(heading(option));
        if !option.is_required_set() {
            line.push(roman("]"));
        }
    }
    if !is_root {
        line.extend([roman(" ["), italic("options of every command"), roman("]")]);
    }
    for positional in command.get_positionals().filter(|arg| !arg.is_hide_set()) {
        let is_required = positional.is_required_set();
        line.push(roman(if is_required { " " } else { " [" }));
        line.push(italic(values(positional)));
        line.push(roman(if is_required { "" } else { "]" }));
        line.push(roman(if takes_several(positional) { "..." } else { "" }));
    }
    if command.has_subcommands() {
        line.extend([roman(" "), italic("command"), roman(" ...")]);
    }
    line
}

fn takes_several(arg: &Arg) -> bool {
    matches!(arg.get_action(), ArgAction::Append)
        || arg.get_num_args().is_some_and(|range| range.max_values() > 1)
}

fn values(arg: &Arg) -> String {
    let names = arg.get_value_names().unwrap_or_default();
    let names: Vec<_> = names.iter().map(|name| name.to_uppercase()).collect();
    if names.is_empty() { arg.get_id().as_str().to_uppercase() } else { names.join(" ") }
}

/// `-s, --store PATH`
fn heading(arg: &Arg) -> Vec<Inline> {
    let short = arg.get_short().map(|short| format!("-{short}"));
    let long = arg.get_long().map(|long| format!("--{long}"));
    let names: Vec<_> = short.into_iter().chain(long).collect();
    let mut heading = vec![bold(names.join("|"))];
    if arg.get_action().takes_values() {
        heading.extend([roman(" "), italic(values(arg))]);
    }
    heading
}

fn commands(roff: &mut Roff, command: &Command) {
    if !command.has_subcommands() {
        return;
    }
    roff.control("SH", ["COMMANDS"]);
    for below in command.get_subcommands().filter(|below| !is_hidden(below)) {
        let about = below.get_about().map(ToString::to_string).unwrap_or_default();
        item(roff, &format!("{}(1)", page_name(below)), &about);
    }
}

fn options(roff: &mut Roff, command: &Command, root_page: Option<&String>) {
    let shown = |arg: &&Arg| !arg.is_hide_set();
    let (everywhere, own): (Vec<_>, Vec<_>) =
        command.get_opts().filter(shown).partition(|arg| arg.is_global_set());
    let positionals: Vec<_> = command.get_positionals().filter(shown).collect();
    for (title, args) in [("ARGUMENTS", positionals), ("OPTIONS", own)] {
        if !args.is_empty() {
            roff.control("SH", [title]);
            args.into_iter().for_each(|arg| option(roff, arg));
        }
    }
    roff.control("SH", ["OPTIONS OF EVERY COMMAND"]);
    let Some(root_page) = root_page else {
        everywhere.into_iter().for_each(|arg| option(roff, arg));
        return;
    };
    let names = everywhere.iter().filter_map(|arg| arg.get_long()).map(|long| format!("--{long}"));
    roff.text([roman(format!("{}: see {root_page}.", names.collect::<Vec<_>>().join(", ")))]);
}

fn option(roff: &mut Roff, arg: &Arg) {
    roff.control("TP", []);
    match arg.is_positional() {
        true => roff.text([italic(values(arg))]),
        false => roff.text(heading(arg)),
    };
    let help = arg.get_long_help().or_else(|| arg.get_help()).map(ToString::to_string).unwrap_or_default();
    let mut text = help.trim().replace("\n\n", "\n");
    let choices: Vec<_> = arg
        .get_possible_values()
        .iter()
        .filter(|value| !value.is_hide_set() && arg.get_action().takes_values())
        .map(|value| match value.get_help() {
            Some(help) => format!("{} ({help})", value.get_name()),
            None => value.get_name().to_owned(),
        })
        .collect();
    if !choices.is_empty() {
        text.push_str(&format!(" One of {}.", choices.join(", ")));
    }
    let defaults: Vec<_> = arg.get_default_values().iter().map(|value| value.to_string_lossy()).collect();
    if !defaults.is_empty() && arg.get_action().takes_values() {
        text.push_str(&format!(" [default: {}]", defaults.join(" ")));
    }
    if let Some(variable) = arg.get_env() {
        text.push_str(&format!(" [environment: {}]", variable.to_string_lossy()));
    }
    roff.text([roman(text)]);
}

fn listed<'a>(roff: &mut Roff, title: &str, items: impl Iterator<Item = (String, &'a str)>) {
    roff.control("SH", [title]);
    items.for_each(|(name, text)| item(roff, &name, text));
}

fn item(roff: &mut Roff, name: &str, text: &str) {
    roff.control("TP", []);
    roff.text([bold(name)]);
    roff.text([roman(text)]);
}

fn paragraphs(roff: &mut Roff, text: &str) {
    for paragraph in text.split("\n\n").map(str::trim).filter(|paragraph| !paragraph.is_empty()) {
        roff.control("PP", []);
        let is_table = paragraph.lines().any(|line| line.starts_with("  "));
        if is_table {
            roff.control("nf", []);
        }
        roff.text([roman(paragraph)]);
        if is_table {
            roff.control("fi", []);
        }
    }
}
