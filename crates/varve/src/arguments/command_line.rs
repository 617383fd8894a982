//! Parses the command line and the environment. Command names of other programs are accepted as
//! aliases or explained.

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::parser::ValueSource;
use clap::{Command, CommandFactory, FromArgMatches};

use super::{Arguments, GlobalArgs, PlanningArguments};

/// The options of which only one may give the secret.
const SECRETS: [&str; 4] = ["key_file", "key_file_command", "passphrase_file", "passphrase_command"];

/// Commands here, with the names that other programs have for them.
const ALIASES: [(&str, &str); 3] = [("snapshot", "backup"), ("snapshots", "list"), ("verify", "check")];

/// Command names of other programs that have no equivalent command here, with an explanation.
const EXPLAINED: [(&[&str], &str); 10] = [
    (&["umount", "unmount"], "unmount with `fusermount3 -u FOLDER`, or with Ctrl-C where `varve mount` runs"),
    (
        &["unlock", "break-lock"],
        "no unlock is needed: a lock ends with the process that holds it; `--wait` waits for that",
    ),
    (
        &["delete", "compact", "purge", "expire"],
        "`varve forget` takes snapshots off the list, and `varve gc` frees their space; `varve prune` does both by rules",
    ),
    (&["create"], "`varve snapshot FOLDER` archives a folder, `varve init` makes a store"),
    (&["extract"], "`varve restore SNAPSHOT[:PATH] DESTINATION` takes files out"),
    (&["dump"], "`varve cat SNAPSHOT:PATH` writes a file to standard output"),
    (&["plan"], "`varve-plan predict` compares stores and hardware"),
    (&["bench"], "`varve-plan bench` measures a server or a disk"),
    (&["trace"], "`varve-plan trace` makes traces, and shows them"),
    (&["info"], "`varve snapshots` lists the snapshots, `varve stats` shows their cost"),
];

/// The arguments of a program.
pub trait ProgramArguments: CommandFactory + FromArgMatches {
    fn global_mut(&mut self) -> &mut GlobalArgs;

    /// Returns all commands for parsing and for help.
    fn shown_command() -> Command {
        Self::whole_command()
    }

    /// Parses the command line and the environment. A secret on the command line takes precedence
    /// over all secrets in the environment.
    ///
    /// # Errors
    /// Help or version text, if it was requested, or a usage error.
    fn read() -> Result<Self, clap::Error> {
        let mut command = Self::shown_command();
        let matches = command.try_get_matches_from_mut(std::env::args_os()).map_err(explained)?;
        let mut arguments = Self::from_arg_matches(&matches).map_err(|error| error.format(&mut command))?;
        let is_typed = |id: &&&str| matches.value_source(id) == Some(ValueSource::CommandLine);
        let typed: Vec<_> = SECRETS.iter().filter(is_typed).collect();
        match typed.as_slice() {
            [] => {}
            [typed] => arguments.global_mut().keep_secret(typed),
            [first, second, ..] => {
                let [first, second] = [first, second].map(|id| id.replace('_', "-"));
                let text = format!("--{first} and --{second} cannot be used together: give one of them");
                return Err(command.error(ErrorKind::ArgumentConflict, text));
            }
        }
        Ok(arguments)
    }

    /// Returns all commands, with their usage lines. By default clap would show an option that the
    /// environment sets as a required one.
    fn whole_command() -> Command {
        let mut command = with_aliases(Self::command(), |command, alias| command.visible_alias(alias));
        command.build();
        fix_usage(&mut command);
        command
    }

    /// Returns all commands for completion. A candidate is the name of a command, and an alias only
    /// if nothing else begins as the typed word does.
    fn completed_command() -> Command {
        with_aliases(Self::command(), |command, alias| command.alias(alias))
    }
}

impl ProgramArguments for Arguments {
    fn global_mut(&mut self) -> &mut GlobalArgs {
        &mut self.global
    }

    fn shown_command() -> Command {
        Self::command_with_first_screen()
    }
}

impl ProgramArguments for PlanningArguments {
    fn global_mut(&mut self) -> &mut GlobalArgs {
        &mut self.global
    }
}

impl GlobalArgs {
    /// Drops all secrets but this one.
    fn keep_secret(&mut self, kept: &str) {
        if kept != "key_file" {
            self.key_file = None;
        }
        if kept != "key_file_command" {
            self.key_file_command = None;
        }
        if kept != "passphrase_file" {
            self.passphrase_file = None;
        }
        if kept != "passphrase_command" {
            self.passphrase_command = None;
        }
    }
}

fn with_aliases(command: Command, add: fn(Command, &'static str) -> Command) -> Command {
    let known = ALIASES.into_iter().filter(|(name, _)| command.find_subcommand(name).is_some());
    let known: Vec<_> = known.collect();
    known.into_iter().fold(command, |command, (name, alias)| {
        command.mut_subcommand(name, |subcommand| add(subcommand, alias))
    })
}

fn fix_usage(command: &mut Command) {
    let usage = command.render_usage().to_string();
    let usage = usage.trim_start_matches("Usage:").trim().to_owned();
    *command = std::mem::take(command).override_usage(usage);
    command.get_subcommands_mut().for_each(fix_usage);
}

/// Explains the alternative to a command name of another program.
fn explained(mut error: clap::Error) -> clap::Error {
    let Some(ContextValue::String(word)) = error.get(ContextKind::InvalidSubcommand) else { return error };
    let Some((_, text)) = EXPLAINED.iter().find(|(words, _)| words.contains(&word.as_str())) else {
        return error;
    };
    error.remove(ContextKind::SuggestedSubcommand);
    error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![(*text).into()]));
    error
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn error(words: &[&str]) -> String {
        let words = ["varve"].iter().chain(words);
        explained(Arguments::whole_command().try_get_matches_from_mut(words).unwrap_err()).to_string()
    }

    #[test]
    fn the_words_fit_together() {
        Arguments::whole_command().debug_assert();
        Arguments::completed_command().debug_assert();
    }

    /// An option that shares its id with a global one would take the value of that one, also from
    /// the environment.
    #[test]
    fn no_command_takes_the_value_of_a_global_option() {
        fn check(command: &clap::Command, global: &BTreeSet<String>) {
            for argument in command.get_arguments().filter(|argument| !argument.is_global_set()) {
                let id = argument.get_id().to_string();
                assert!(!global.contains(&id), "{} has an option {id} of its own", command.get_name());
            }
            command.get_subcommands().for_each(|command| check(command, global));
        }
        let command = Arguments::command();
        let arguments = command.get_arguments().filter(|argument| argument.is_global_set());
        let global: BTreeSet<_> = arguments.map(|argument| argument.get_id().to_string()).collect();
        assert!(global.len() > 5, "{global:?}");
        command.get_subcommands().for_each(|command| check(command, &global));
    }

    #[test]
    fn other_programs_words_are_understood_or_explained() {
        for (words, text) in EXPLAINED {
            for word in words {
                let said = error(&[word]);
                assert!(said.contains(text) && said.matches("tip:").count() == 1, "{said}");
            }
        }
        for (word, own) in [("backup", "snapshot"), ("check", "verify"), ("list", "snapshots")] {
            let command = Arguments::whole_command();
            let found =
                command.get_subcommands().find(|known| known.get_all_aliases().any(|alias| alias == word));
            assert_eq!(found.unwrap().get_name(), own);
        }
        assert!(error(&["snapshost"]).contains("'snapshots'"), "a slip is told by likeness");
    }

    #[test]
    fn what_the_environment_sets_is_not_shown_as_missing() {
        let said = error(&["--store", "x", "--cache", "y", "snapshot"]);
        let usage = said.lines().find(|line| line.starts_with("Usage:")).unwrap();
        assert!(usage.contains("[OPTIONS]") && !usage.contains("--store"), "{said}");
    }

    /// Each paragraph must be a single line, which clap wraps at the terminal's width. Lines that
    /// are already wrapped would be wrapped twice.
    #[test]
    fn help_is_broken_once() {
        fn check(command: &Command) {
            let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
            let lines: Vec<_> = help.lines().collect();
            for pair in lines.windows(2) {
                let [first, second] = pair else { continue };
                let is_text = |line: &str| !line.is_empty() && !line.starts_with(' ') && !line.ends_with(':');
                assert!(!is_text(first) || !is_text(second), "{}: {first}\n{second}", command.get_name());
            }
            command.get_subcommands().for_each(check);
        }
        check(&Arguments::command());
    }
}
