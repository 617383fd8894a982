//! `varve import --venti-arenas`

use std::path::PathBuf;

use anyhow::{Result, bail};
use serde_json::json;
use varve_archive::venti_arenas::{
    ArenaDamage, ArenaObserver, ArenaReport, FoundRoot, ImportArenaError, SealCheck, VentiArenas,
    import_venti_arena,
};
use varve_block::with_causes;

use crate::invocation::Invocation;
use crate::outcome::CommandOutcome;
use crate::progress_bar::ShownProgress;
use crate::signals::cancellable_progress;
use crate::{say, show};

/// The maximum number of damaged places that are reported for each arena.
const TOLD_DAMAGE_MAX: u64 = 20;

pub fn run(invocation: &Invocation, venti_arenas: &[PathBuf]) -> Result<CommandOutcome> {
    // Open all files first, so that an unreadable one is reported before hours of work on the
    // others.
    let files = venti_arenas.iter().map(|file| VentiArenas::open(file)).collect::<Result<Vec<_>, _>>()?;
    let store = invocation.session.write_store()?;
    let progress = cancellable_progress()?;
    let mut outcome = CommandOutcome::Done;
    for (file, path) in files.iter().zip(venti_arenas) {
        let total = file.arenas().iter().map(|arena| arena.range.end - arena.range.start).sum();
        progress.set_total(0, total);
        let shown =
            ShownProgress::start(&path.display().to_string(), &progress, invocation.quiet || invocation.json);
        for arena in file.arenas() {
            let mut reporter =
                ImportReporter { invocation, arena: arena.name.clone(), damage_count: 0, roots: Vec::new() };
            match import_venti_arena(&store, file, arena, &progress, &mut reporter) {
                Ok(report) => {
                    print(invocation, &report, &reporter.roots);
                    if !report.is_whole() {
                        outcome = CommandOutcome::Damage;
                    }
                }
                // A bad header concerns this arena alone: continue with the next one.
                Err(error @ ImportArenaError::Head { .. }) => {
                    warning!("{}", with_causes(&error));
                    outcome = CommandOutcome::Damage;
                }
                Err(error) => {
                    drop(shown);
                    store.close()?;
                    bail!(error);
                }
            }
        }
        drop(shown);
    }
    store.close()?;
    Ok(outcome)
}

/// Reports the progress and the problems of reading an arena.
struct ImportReporter<'a> {
    invocation: &'a Invocation,
    arena: String,
    damage_count: u64,
    roots: Vec<FoundRoot>,
}

impl ArenaObserver for ImportReporter<'_> {
    fn damaged(&mut self, damage: ArenaDamage) {
        self.damage_count += 1;
        if self.damage_count <= TOLD_DAMAGE_MAX {
            let (arena, range) = (show::name(self.arena.as_bytes()), &damage.range);
            let reason = with_causes(&damage.reason);
            warning!("{arena}, bytes {}..{} of its clumps: {reason}", range.start, range.end);
        } else if self.damage_count == TOLD_DAMAGE_MAX + 1 {
            warning!("{}: more places are damaged", show::name(self.arena.as_bytes()));
        }
    }

    fn found(&mut self, root: FoundRoot) {
        if self.invocation.json {
            self.roots.push(root);
        } else if !self.invocation.quiet {
            let line = format!("{}  {}", show::name(root.line.as_bytes()), show::name(&root.name));
            say!("{}", line.trim_end());
        }
    }
}

fn print(invocation: &Invocation, report: &ArenaReport, roots: &[FoundRoot]) {
    if let Err(error) = &report.trailer {
        warning!("{}: {error}", show::name(report.name.as_bytes()));
    }
    if report.seal == SealCheck::Bad {
        warning!("{}: its bytes do not match its seal", show::name(report.name.as_bytes()));
    }
    if report.directory_is_right == Some(false) {
        warning!("{}: its directory does not match its clumps", show::name(report.name.as_bytes()));
    }
    let seal = match report.seal {
        SealCheck::Good => "seal good",
        SealCheck::Bad => "seal broken",
        SealCheck::Absent => "no seal yet",
    };
    if invocation.json {
        let root = |root: &FoundRoot| {
            let mut value = json!({ "archive": root.line });
            show::put_name(&mut value, "name", &root.name);
            value
        };
        let roots: Vec<_> = roots.iter().map(root).collect();
        say::record(
            "arena_imported",
            json!({
                "arena": report.name,
                "version": report.version,
                "sealed": report.is_sealed,
                "seal": seal,
                "clumps": report.clump_count,
                "known": report.known_count,
                "blocks": report.block_count,
                "bytes": report.block_bytes,
                "damaged": report.damage_count,
                "roots": roots,
            }),
        );
    } else if !invocation.quiet {
        let known = match report.known_count {
            0 => String::new(),
            count => format!(", {count} known from before"),
        };
        say!(
            "{}: {}{known}, {} read, {}; {}, {seal}",
            show::name(report.name.as_bytes()),
            show::count(report.clump_count, "clump"),
            show::count(report.block_count, "block"),
            show::bytes(report.block_bytes),
            show::count(report.damage_count, "damaged place")
        );
    }
}
