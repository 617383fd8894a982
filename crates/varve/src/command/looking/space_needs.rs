//! `varve stats --snapshots`: the bytes that each snapshot and each name needs alone, and shares.

use anyhow::Result;
use serde_json::{Value, json};
use varve_archive::{NameNeeds, PlaceDensity, SnapshotNeeds, SpaceNeeds, SpaceNeedsError};
use varve_session::WithHint;

use crate::arguments::StatsArgs;
use crate::command::looking::snapshot_list::short_id;
use crate::invocation::Invocation;
use crate::outcome::CommandOutcome;
use crate::progress_bar::ShownProgress;
use crate::signals::cancellable_progress;
use crate::{moment, say, show};

const HEADINGS: [&str; 8] = ["id", "time", "name", "size", "own", "shared", "frees", ""];
/// The columns with numbers.
const NUMBERS: [usize; 4] = [3, 4, 5, 6];
const NAME_HEADINGS: [&str; 9] =
    ["name", "snapshots", "size", "of one", "of several", "own", "shared", "frees", "places/GiB"];
const NAME_NUMBERS: [usize; 8] = [1, 2, 3, 4, 5, 6, 7, 8];

pub fn run(invocation: &Invocation, args: &StatsArgs) -> Result<CommandOutcome> {
    let progress = cancellable_progress()?;
    let archive = invocation.session.read()?;
    let shown =
        ShownProgress::start("finding who needs what", &progress, invocation.quiet || invocation.json);
    let found = SpaceNeeds::of(&archive, args.memory, &progress);
    drop(shown);
    let mut found = found.with_hint(hint_of)?;
    found.snapshots.sort_by_key(|needs| needs.snapshot.time);
    if invocation.json {
        print_json(&found)
    } else {
        print(&found)
    }
    Ok(CommandOutcome::Done)
}

fn hint_of(error: &SpaceNeedsError) -> Option<&'static str> {
    match error {
        SpaceNeedsError::Memory { .. } => Some("--memory allows more"),
        SpaceNeedsError::Roots(_) | SpaceNeedsError::Walk(_) => {
            Some("`varve verify` shows the damage, if there is any")
        }
        _ => None,
    }
}

fn print(found: &SpaceNeeds) {
    let mut table = show::table(&HEADINGS, &NUMBERS);
    for needs in &found.snapshots {
        table.add_row([
            short_id(&needs.snapshot),
            moment::show(needs.snapshot.time),
            show::name(needs.snapshot.name.as_bytes()),
            show::bytes(needs.snapshot.size),
            show::bytes(needs.own_bytes),
            show::bytes(needs.shared_bytes),
            bytes_or_dash(needs.freed_bytes),
            if needs.is_in_trash { "in the trash".into() } else { String::new() },
        ]);
    }
    say!("{}\n", table.trim_fmt());
    let mut table = show::table(&NAME_HEADINGS, &NAME_NUMBERS);
    for name in &found.names {
        table.add_row([
            show::name(name.name.as_bytes()),
            name.snapshot_count.to_string(),
            show::bytes(name.size),
            show::bytes(name.of_one_bytes),
            show::bytes(name.of_several_bytes),
            show::bytes(name.own_bytes()),
            show::bytes(name.shared_bytes),
            bytes_or_dash(name.freed_bytes),
            places_per_gib(name).map_or_else(|| "-".into(), |places| places.to_string()),
        ]);
    }
    say!("{}\n", table.trim_fmt());
    for (what, bytes) in [
        ("of several names", found.several_names_bytes),
        ("catalog and notes", found.catalog_bytes),
        ("needed by no snapshot", found.unneeded_bytes),
        ("directories", found.directory_bytes),
        ("all arenas", found.log_bytes),
    ] {
        say!("{what:<22}{:>20}", show::bytes(bytes));
    }
    if found.delta_count > 0 {
        say!("{:<22}{:>20}", "stored as deltas", show::count(found.delta_count, "block"));
    }
    if found.only_trash_bytes > 0 {
        say!("only forgotten snapshots in the trash need {}", show::bytes(found.only_trash_bytes));
    }
}

fn bytes_or_dash(bytes: Option<u64>) -> String {
    bytes.map_or_else(|| "-".into(), show::bytes)
}

fn places_per_gib(name: &NameNeeds) -> Option<u64> {
    name.newest_places.as_ref().and_then(PlaceDensity::per_gib)
}

fn print_json(found: &SpaceNeeds) {
    found.snapshots.iter().for_each(|needs| say::item("snapshot_space", snapshot_as_json(needs)));
    found.names.iter().for_each(|name| say::item("name_space", name_as_json(name)));
    say::record(
        "space_sum",
        json!({
            "several_names_bytes": found.several_names_bytes,
            "catalog_bytes": found.catalog_bytes,
            "unneeded_bytes": found.unneeded_bytes,
            "directory_bytes": found.directory_bytes,
            "bytes": found.log_bytes,
            "only_trash_bytes": found.only_trash_bytes,
            "deltas": found.delta_count,
            "passes": found.pass_count,
        }),
    );
}

fn snapshot_as_json(needs: &SnapshotNeeds) -> Value {
    let SnapshotNeeds { snapshot, is_in_trash, own_bytes, shared_bytes, freed_bytes } = needs;
    json!({
        "id": snapshot.id.to_string(),
        "name": snapshot.name,
        "time": moment::rfc3339(snapshot.time),
        "size": snapshot.size,
        "own_bytes": own_bytes,
        "shared_bytes": shared_bytes,
        "freed_bytes": freed_bytes,
        "in_trash": is_in_trash,
    })
}

fn name_as_json(needs: &NameNeeds) -> Value {
    json!({
        "name": needs.name,
        "snapshots": needs.snapshot_count,
        "size": needs.size,
        "of_one_bytes": needs.of_one_bytes,
        "of_several_bytes": needs.of_several_bytes,
        "own_bytes": needs.own_bytes(),
        "shared_bytes": needs.shared_bytes,
        "freed_bytes": needs.freed_bytes,
        "newest_places": needs.newest_places.map(|places| places.place_count),
        "newest_content_bytes": needs.newest_places.map(|places| places.content_bytes),
        "places_per_gib": places_per_gib(needs),
    })
}
