//! `varve verify --publication`

use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use serde_json::json;
use varve_edition::{PublicationAddress, PublishedImage};
use varve_publish::{CheckedPublication, check_publication};
use varve_session::target::{self, ReaderPatience};
use varve_session::{NamedBy, UsageError};
use varve_world::{Clock, RealClock, RealWorkers};

use super::content_key::block_forms;
use crate::invocation::Invocation;
use crate::outcome::CommandOutcome;
use crate::{moment, say, show};

/// A server that fails more often is reported.
const TRIES: u32 = 3;

pub fn run(
    invocation: &Invocation,
    address: &PublicationAddress,
    content_keys: &[PathBuf],
) -> Result<CommandOutcome> {
    let Some(key) = address.key else {
        bail!(UsageError(
            "the address has no key: write it as `varve publish` has printed it, PLACE/#varve1-KEY".into()
        ));
    };
    let forms = block_forms(content_keys)?;
    let place = target::shown(&address.place);
    let reader = ReaderPatience { try_count: TRIES, patience: None };
    let there = invocation.session.target_for_reader(&address.place, NamedBy::User, reader, true)?;
    let checked = check_publication(&*there, &[key], &forms, &RealWorkers::one_a_core())
        .with_context(|| format!("cannot check the publication at {place}"))?;
    warn_if_expired(&checked);
    print(invocation, &place, &checked);
    Ok(if checked.finding_count == 0 { CommandOutcome::Done } else { CommandOutcome::Damage })
}

/// Warns of an edition that has expired, as `attach` does.
fn warn_if_expired(checked: &CheckedPublication) {
    if RealClock.now() > checked.expires {
        warning!(
            "edition {} has expired ({}): a newer one may be kept from you",
            checked.serial,
            moment::show(checked.expires)
        );
    }
}

fn print(invocation: &Invocation, place: &str, checked: &CheckedPublication) {
    let shown = |image: &PublishedImage| {
        format!("{}@{}", show::name(image.name.as_bytes()), moment::show(image.time))
    };
    let unopened: Vec<_> = checked.unopened.iter().map(shown).collect();
    if invocation.json {
        let findings = checked.findings.iter().map(|finding| {
            json!({
                "image": finding.image,
                "object": finding.object.to_string(),
                "reason": finding.reason,
            })
        });
        let fields = json!({
            "target": place,
            "serial": checked.serial,
            "images": checked.image_count,
            "blocks": checked.block_count,
            "bytes": checked.block_bytes,
            "damaged": checked.finding_count,
            "findings": findings.collect::<Vec<_>>(),
            "unopened_images": unopened,
            "compared_objects": checked.compared_count,
        });
        say::record("publication_verified", fields);
        return;
    }
    for finding in &checked.findings {
        let belongs = match &finding.image {
            Some(image) => format!("it belongs to {}", show::name(image.as_bytes())),
            None => "the target lists it, and no opened map leads to it".to_owned(),
        };
        warning!("{}: {}; {belongs}", finding.object.path(), finding.reason);
    }
    if checked.finding_count > 0 {
        let more = checked.finding_count - checked.findings.len() as u64;
        let more = if more == 0 { String::new() } else { format!(" ({more} are not listed)") };
        say!("{} missing or damaged{more}", show::count(checked.finding_count, "object"));
        hint!("`varve publish --repair` uploads them again, from a store with the same images");
    }
    if !unopened.is_empty() {
        let compared = match checked.compared_count {
            Some(count) => format!(
                "{} that the target lists were compared with their names",
                show::count(count, "object")
            ),
            None => "the target lists no objects to be compared with their names".to_owned(),
        };
        warning!(
            "not opened, because no given content key fits: {}; {compared}, and missing ones are not noticed",
            unopened.join(", ")
        );
        hint!("--content-key FILE checks them completely");
    }
    if !invocation.quiet {
        say!(
            "edition {}: {}, {} of {} checked",
            checked.serial,
            show::count(checked.image_count as u64, "image"),
            show::count(checked.block_count, "block"),
            show::bytes(checked.block_bytes)
        );
    }
}
