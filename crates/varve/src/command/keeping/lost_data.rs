//! Formats lost data, as text and for programs: both permanent losses, and blocks that may come
//! back.

use serde_json::{Value, json};
use varve_archive::{Losses, LostBlock, LostPlace, PlaceId};

use crate::{moment, show};

/// The maximum number of blocks, and of places, that text output names. The rest is counted.
const NAMED_IN_TEXT_MAX: usize = 20;
/// The same limit in the output for programs.
const NAMED_IN_JSON_MAX: usize = 10_000;

/// Prints the losses, one on each line.
pub(super) fn print(losses: &Losses) {
    for place in losses.places().take(NAMED_IN_TEXT_MAX) {
        say!("  lost: {}", place_text(&place));
    }
    print_rest(losses.places().count(), "place");
    for block in losses.blocks().take(NAMED_IN_TEXT_MAX) {
        say!("  lost: {}", block_text(&block));
    }
    print_rest(losses.block_count(), "block");
    if losses.is_incomplete() {
        say!("  lost: more than the list of losses shows, because a part of that list is lost, too");
    }
}

fn print_rest(count: usize, what: &str) {
    if let Some(rest @ 1..) = count.checked_sub(NAMED_IN_TEXT_MAX) {
        say!("  lost: {} more", show::count(rest as u64, what));
    }
}

fn block_text(block: &LostBlock) -> String {
    let size = block.size.map(|size| format!(", {}", show::bytes(size))).unwrap_or_default();
    format!("{}{size}, since {}", block.name, moment::show(block.noticed))
}

fn place_text(place: &LostPlace) -> String {
    let PlaceId { arena, generation, range, may_hide_snapshots, .. } = place.id;
    let bytes = match range.last {
        Some(last) => format!("bytes {} to {last}", range.first),
        None => format!("from byte {} on", range.first),
    };
    let generation = match generation {
        None | Some(0) => String::new(),
        Some(generation) => format!(" (generation {generation})"),
    };
    let snapshots = if may_hide_snapshots { "blocks, and maybe snapshots," } else { "blocks" };
    let end = if place.id.is_end_of_log() { "the end of the log: " } else { "" };
    format!(
        "{end}arena {arena}{generation}, {bytes}: {snapshots} with unknown names, since {}",
        moment::show(place.noticed)
    )
}

/// Summarises the losses in a few words; `None` if there are none.
pub(super) fn summary(losses: &Losses) -> Option<String> {
    let blocks = losses.block_count() as u64;
    let places = losses.places().count() as u64;
    let counts = [(blocks, "block"), (places, "unnamed place")];
    let counts: Vec<_> = counts.into_iter().filter(|(count, _)| *count > 0).collect();
    let texts: Vec<_> = counts.into_iter().map(|(count, what)| show::count(count, what)).collect();
    match (texts.is_empty(), losses.is_incomplete()) {
        (true, false) => None,
        (true, true) => Some("unnamed blocks lost".into()),
        (false, _) => Some(format!("{} lost", texts.join(" and "))),
    }
}

/// Prints a hint how lost blocks can be brought back.
pub(super) fn print_hint(losses: &Losses) {
    if losses.block_count() > 0 {
        hint!(
            "a lost block heals when it is stored again: by the same snapshot, the same run of vac, or `varve repair --from COPY`"
        );
    }
    if losses.places().next().is_some() {
        hint!(
            "`varve repair --from COPY` fetches lost data from a copy; `varve verify vac:SCORE` shows what a vac archive lacks; `varve repair --accept-loss` ends this report"
        );
    }
}

/// Formats the losses for programs.
pub(super) fn as_json(losses: &Losses) -> Value {
    let block = |block: LostBlock| {
        json!({
            "score": block.name.score.to_string(),
            "kind": block.name.block_type.to_string(),
            "size": block.size,
            "noticed": moment::rfc3339(block.noticed),
        })
    };
    let place = |place: LostPlace| {
        json!({
            "arena": place.id.arena.0,
            "generation": place.id.generation,
            "first": place.id.range.first,
            "last": place.id.range.last,
            "may_hide_snapshots": place.id.may_hide_snapshots,
            "is_end_of_log": place.id.is_end_of_log(),
            "noticed": moment::rfc3339(place.noticed),
        })
    };
    json!({
        "blocks": losses.blocks().take(NAMED_IN_JSON_MAX).map(block).collect::<Vec<_>>(),
        "block_count": losses.block_count(),
        "places": losses.places().take(NAMED_IN_JSON_MAX).map(place).collect::<Vec<_>>(),
        "place_count": losses.places().count(),
        "is_incomplete": losses.is_incomplete(),
    })
}
