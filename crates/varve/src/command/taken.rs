//! What was taken, for people.

use varve_archive::Snapshot;
use varve_image::LeftOut;

use super::snapshots;
use crate::{moment, show};

/// What is not in a snapshot, for people.
pub(super) fn say_left_out(left_out: &LeftOut) {
    for part in left_out.parts().iter().filter(|part| part.bytes > 0) {
        say!("  left out: {} of {}, {}", part.what, part.volume, show::bytes(part.bytes));
    }
}

/// A snapshot that was taken, for people.
pub(super) fn as_line(snapshot: &Snapshot) -> String {
    let entries = match snapshot.file_count {
        0 => String::new(),
        number => format!(" in {}", show::count(number, "entry")),
    };
    format!(
        "{} {}: {}{entries}{}, {}",
        snapshots::short_id(snapshot),
        show::name(snapshot.name.as_bytes()),
        show::bytes(snapshot.size),
        growth(snapshot),
        show::duration(snapshot.elapsed)
    )
}

/// Says so if another snapshot of the name shows a later moment, as after a night with the clock ahead: that one is the newest for whoever
/// gives the name alone.
pub(super) fn warn_if_hidden(snapshots: &[Snapshot], taken: &Snapshot) {
    let later = snapshots.iter().filter(|other| other.name == taken.name && other.time > taken.time);
    let Some(newest) = later.max_by_key(|other| other.time) else { return };
    let name = show::name(taken.name.as_bytes());
    remark!(
        "varve: {name} alone still means {}, of {}: its moment is later than that of {}. Is the clock right, or was it wrong then?",
        snapshots::short_id(newest),
        moment::show(newest.time),
        snapshots::short_id(taken)
    );
}

/// What a snapshot has added to its store, with a comma before it; nothing where that is not known.
pub(super) fn growth(snapshot: &Snapshot) -> String {
    snapshot.growth.map_or_else(String::new, |growth| {
        format!(", {} new, {} stored", show::bytes(growth.new_bytes), show::bytes(growth.stored_bytes))
    })
}
