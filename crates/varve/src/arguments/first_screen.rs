//! The first screen of help: the commands that most users need, in four groups, and the names of
//! the others.

use std::fmt::Write;

use clap::Command;
use clap::builder::Resettable;

use super::Arguments;

/// The groups. All other commands are named after them.
const GROUPS: [(&str, &[&str]); 4] = [
    ("Daily work", &["setup", "run", "status"]),
    (
        "Archive",
        &[
            "init",
            "snapshot",
            "snapshots",
            "forget",
            "prune",
            "verify",
            "repair",
            "replicate",
            "clone",
            "import",
            "key",
        ],
    ),
    ("Looking and restoring", &["ls", "find", "diff", "cat", "restore", "mount", "serve"]),
    ("Machines and disks", &["boot", "publish", "attach"]),
];

const TEMPLATE: &str = "{about-with-newline}\n{usage-heading} {usage}\n\n{before-help}{all-args}{after-help}";

const END: &str = "`varve COMMAND --help` explains a command; `varve --help` has all options.";

impl Arguments {
    /// Returns all commands for parsing and for help: `-h` prints the first screen, and `--help`
    /// has all commands and options after it.
    pub(super) fn command_with_first_screen() -> Command {
        let mut command = Self::whole_command();
        let (short, long) = (first_screen(&command, false), first_screen(&command, true));
        let examples = command.get_after_help().cloned().unwrap_or_default();
        // The groups stand in place of the list.
        command = command.mut_subcommands(|command| command.hide(true));
        command
            .mut_args(|argument| argument.hide_short_help(true))
            .help_template(TEMPLATE)
            .before_help(short)
            .before_long_help(long)
            .after_help(Resettable::Reset)
            .after_long_help(examples)
    }
}

/// Prints the groups, and the other commands: their names, or, in the long form, all about them.
fn first_screen(command: &Command, is_long: bool) -> String {
    let mut text = String::new();
    let mut print = |title: &str, commands: &[&Command]| {
        let _ = writeln!(text, "{title}:");
        let width = commands.iter().map(|command| command.get_name().len()).max().unwrap_or(0).max(9);
        for command in commands {
            let about = command.get_about().map(ToString::to_string).unwrap_or_default();
            let _ = writeln!(text, "  {:<width$}  {about}", command.get_name());
        }
        text.push('\n');
    };
    for (title, names) in GROUPS {
        let commands: Vec<_> = names.iter().filter_map(|name| command.find_subcommand(name)).collect();
        print(title, &commands);
    }
    let is_grouped = |name: &str| GROUPS.iter().any(|(_, names)| names.contains(&name));
    let others: Vec<_> = command
        .get_subcommands()
        .filter(|other| other.get_name() != "help" && !is_grouped(other.get_name()))
        .collect();
    if is_long {
        print("Other commands", &others);
    } else {
        let names: Vec<_> = others.iter().map(|command| command.get_name()).collect();
        let _ = write!(text, "Also: {}.\n{END}", names.join(", "));
    }
    text.trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINES_MAX: usize = 40;
    const COLUMNS_MAX: usize = 80;

    #[test]
    fn the_first_screen_fits_a_terminal() {
        let screen = Arguments::command_with_first_screen().term_width(COLUMNS_MAX).render_help().to_string();
        let screen = screen.trim_end();
        assert!(screen.lines().count() <= LINES_MAX, "{screen}");
        assert!(screen.lines().all(|line| line.chars().count() <= COLUMNS_MAX), "{screen}");
        let command = Arguments::whole_command();
        for name in command.get_subcommands().map(Command::get_name).filter(|name| *name != "help") {
            let mut words = screen.split(|letter: char| !letter.is_alphanumeric() && letter != '-');
            assert!(words.any(|word| word == name), "{name} is missing: {screen}");
        }
    }

    #[test]
    fn the_groups_have_commands() {
        let command = Arguments::whole_command();
        for name in GROUPS.iter().flat_map(|(_, names)| names.iter()) {
            assert!(command.find_subcommand(name).is_some(), "{name}");
        }
    }
}
