//! The first screen of help: the commands under four headings. Those that are needed now and then
//! are in groups, one level down.

use std::fmt::Write;

use clap::Command;
use clap::builder::Resettable;

use super::{Arguments, ProgramArguments};

/// The headings, with their commands.
const HEADINGS: [(&str, &[&str]); 4] = [
    ("Daily work", &["setup", "run", "status", "daily"]),
    (
        "Archive",
        &[
            "init",
            "snapshot",
            "snapshots",
            "mark",
            "forget",
            "prune",
            "verify",
            "repair",
            "replicate",
            "import",
            "key",
            "store",
        ],
    ),
    ("Looking and restoring", &["ls", "find", "versions", "diff", "cat", "restore", "mount", "serve"]),
    ("Machines, disks and tools", &["boot", "disk", "tools"]),
];
/// The groups, whose commands also go by their own names.
pub const GROUPS: [&str; 5] = ["daily", "mark", "store", "disk", "tools"];

const TEMPLATE: &str = "{about-with-newline}\n{usage-heading} {usage}\n\n{before-help}{all-args}{after-help}";

const END: &str = "`varve COMMAND --help` explains a command; `varve --help` has all options.";

impl Arguments {
    /// Returns all commands for parsing and for help: `-h` prints the first screen, and `--help`
    /// has all commands and options after it.
    pub(super) fn command_with_first_screen() -> Command {
        let mut command = Self::whole_command();
        let (short, long) = (first_screen(&command, false), first_screen(&command, true));
        let examples = command.get_after_help().cloned().unwrap_or_default();
        // The headings stand in place of the list.
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

/// Prints the commands under their headings, and, in the long form, those of the groups.
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
    let named = |names: &[&str]| -> Vec<&Command> {
        names.iter().filter_map(|name| command.find_subcommand(name)).collect()
    };
    for (title, names) in HEADINGS {
        print(title, &named(names));
    }
    if is_long {
        let members = named(&GROUPS).into_iter().flat_map(Command::get_subcommands);
        let members: Vec<_> = members.filter(|member| member.get_name() != "help").collect();
        let [first @ .., last] = &GROUPS;
        print(&format!("Commands of {} and {last}, by their own names", first.join(", ")), &members);
    } else {
        text.push_str(END);
    }
    text.trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINES_MAX: usize = 40;
    const COLUMNS_MAX: usize = 80;

    /// Returns the commands that a user types.
    fn shown(command: &Command) -> Vec<&str> {
        let typed = command.get_subcommands().filter(|one| !one.is_hide_set());
        typed.map(Command::get_name).filter(|name| *name != "help").collect()
    }

    #[test]
    fn the_first_screen_fits_a_terminal() {
        let screen = Arguments::command_with_first_screen().term_width(COLUMNS_MAX).render_help().to_string();
        let screen = screen.trim_end();
        assert!(screen.lines().count() <= LINES_MAX, "{screen}");
        assert!(screen.lines().all(|line| line.chars().count() <= COLUMNS_MAX), "{screen}");
        let command = Arguments::whole_command();
        for name in shown(&command) {
            let mut words = screen.split(|letter: char| !letter.is_alphanumeric() && letter != '-');
            assert!(words.any(|word| word == name), "{name} is missing: {screen}");
        }
    }

    #[test]
    fn every_command_has_a_place() {
        let command = Arguments::whole_command();
        let under_headings: Vec<_> = HEADINGS.iter().flat_map(|(_, names)| names.iter().copied()).collect();
        assert!(under_headings.len() <= 30, "{}", under_headings.len());
        let in_groups = GROUPS.iter().flat_map(|group| {
            let group = command.find_subcommand(group).unwrap();
            group.get_subcommands().map(Command::get_name).filter(|name| *name != "help")
        });
        let mut placed: Vec<_> = under_headings.into_iter().chain(in_groups).collect();
        placed.sort_unstable();
        let mut names = shown(&command);
        names.sort_unstable();
        assert_eq!(placed, names);
    }
}
