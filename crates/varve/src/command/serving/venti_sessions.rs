//! `varve venti`

use std::collections::BTreeSet;

use anyhow::{Result, bail};
use serde_json::json;
use varve_serve::venti::{ClientSession, blocks_of, list_sessions, mark_sessions};
use varve_session::UsageError;
use varve_store::Store;
use varve_world::Timestamp;

use crate::arguments::VentiCommand;
use crate::invocation::Invocation;
use crate::outcome::CommandOutcome;
use crate::{moment, say, show};

pub fn run(invocation: &Invocation, args: &VentiCommand) -> Result<CommandOutcome> {
    match args {
        VentiCommand::Sessions => sessions(invocation),
        VentiCommand::SetAside { sessions, dry_run } => mark(invocation, sessions, true, *dry_run),
        VentiCommand::PutBack { sessions } => mark(invocation, sessions, false, false),
    }
}

fn sessions(invocation: &Invocation) -> Result<CommandOutcome> {
    let store = invocation.session.read_store()?;
    let (sessions, damaged_places) = list_sessions(&store)?;
    if invocation.json {
        sessions.iter().for_each(|session| say::item("venti_session", as_json(session)));
    } else if sessions.is_empty() {
        say!("no session is recorded: `varve serve --venti ADDRESS --sessions` records them");
    } else {
        let headings = ["session", "from", "begun", "ended", "new", "known", "set aside"];
        let mut table = show::table(&headings, &[0, 4, 5]);
        for session in &sessions {
            table.add_row([
                session.number.to_string(),
                show::name(session.peer.as_bytes()),
                shown(session.begun),
                shown(session.ended),
                session.new_count.to_string(),
                session.known_count.to_string(),
                shown(session.set_aside),
            ]);
        }
        say!("{}", table.trim_fmt());
    }
    if damaged_places == 0 {
        return Ok(CommandOutcome::Done);
    }
    let places = show::count(damaged_places, "place");
    warning!("the record of sessions is damaged in {places}: some sessions and their blocks may be missing");
    Ok(CommandOutcome::Damage)
}

fn shown(at: Option<Timestamp>) -> String {
    at.map_or_else(|| "-".into(), moment::show)
}

fn as_json(session: &ClientSession) -> serde_json::Value {
    let at = |at: Option<Timestamp>| at.map(moment::rfc3339);
    json!({
        "session": session.number,
        "from": session.peer,
        "begun": at(session.begun),
        "ended": at(session.ended),
        "new_blocks": session.new_count,
        "known_blocks": session.known_count,
        "set_aside": at(session.set_aside),
    })
}

/// Sets sessions aside, or serves them again.
fn mark(invocation: &Invocation, numbers: &[u64], is_aside: bool, dry_run: bool) -> Result<CommandOutcome> {
    let store = if dry_run { invocation.session.read_store()? } else { invocation.session.write_store()? };
    let (known, damaged_places) = list_sessions(&store)?;
    if let Some(number) = numbers.iter().find(|number| !known.iter().any(|known| known.number == **number)) {
        bail!(UsageError(format!("there is no session {number}: `varve venti sessions` lists them")));
    }
    if is_aside && damaged_places > 0 {
        bail!(
            "the record of sessions is damaged in {}: blocks that other sessions have also written would be set aside, too",
            show::count(damaged_places, "place")
        );
    }
    let before: BTreeSet<u64> =
        known.iter().filter(|session| session.set_aside.is_some()).map(|session| session.number).collect();
    let chosen: BTreeSet<u64> = numbers.iter().copied().collect();
    let after: BTreeSet<u64> = if is_aside {
        before.union(&chosen).copied().collect()
    } else {
        before.difference(&chosen).copied().collect()
    };
    let counts =
        [&before, &after].map(|sessions| blocks_of(&store, sessions).map(|blocks| blocks.len() as u64));
    let [before_count, after_count] = counts;
    let (before_count, after_count) = (before_count?, after_count?);
    if !dry_run {
        mark_sessions(&store, numbers, is_aside)?;
    }
    close(store, dry_run)?;
    print(invocation, is_aside, dry_run, before_count.abs_diff(after_count), after_count);
    Ok(CommandOutcome::Done)
}

fn close(store: Store, dry_run: bool) -> Result<()> {
    if !dry_run {
        store.close()?;
    }
    Ok(())
}

fn print(invocation: &Invocation, is_aside: bool, dry_run: bool, changed: u64, all: u64) {
    if invocation.json {
        let kind = if is_aside { "venti_set_aside" } else { "venti_put_back" };
        say::record(kind, json!({ "blocks": changed, "blocks_set_aside": all, "dry_run": dry_run }));
        return;
    }
    if invocation.quiet {
        return;
    }
    let blocks = show::count(changed, "block");
    match (is_aside, dry_run) {
        (true, true) => say!("{blocks} would be set aside; nothing was changed"),
        (true, false) => say!(
            "{blocks} set aside: the Venti server refuses them from its next start on; nothing was removed"
        ),
        (false, _) => say!("{blocks} put back: the Venti server serves them from its next start on"),
    }
}
