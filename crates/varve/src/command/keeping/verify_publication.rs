//! `varve verify --publication`

use anyhow::{Context, Result, bail};
use serde_json::json;
use varve_edition::PublicationAddress;
use varve_publish::{CheckedPublication, check_publication};
use varve_session::{NamedBy, UsageError, target};
use varve_world::RealWorkers;

use crate::invocation::Invocation;
use crate::outcome::CommandOutcome;
use crate::{say, show};

pub fn run(invocation: &Invocation, address: &PublicationAddress) -> Result<CommandOutcome> {
    let Some(key) = address.key else {
        bail!(UsageError(
            "the address has no key: write it as `varve publish` has printed it, PLACE/#varve1-KEY".into()
        ));
    };
    let place = target::shown(&address.place);
    let there = invocation.session.target(&address.place, NamedBy::User, None)?;
    let checked = check_publication(&*there, &[key], &RealWorkers::one_a_core())
        .with_context(|| format!("cannot check the publication at {place}"))?;
    print(invocation, &place, &checked);
    Ok(if checked.finding_count == 0 { CommandOutcome::Done } else { CommandOutcome::Damage })
}

fn print(invocation: &Invocation, place: &str, checked: &CheckedPublication) {
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
        });
        say::record("publication_verified", fields);
        return;
    }
    for finding in &checked.findings {
        let image = show::name(finding.image.as_bytes());
        remark!("varve: {}: {}; it belongs to {image}", finding.object.path(), finding.reason);
    }
    if checked.finding_count > 0 {
        let more = checked.finding_count - checked.findings.len() as u64;
        let more = if more == 0 { String::new() } else { format!(" ({more} are not listed)") };
        say!("{} missing or damaged{more}", show::count(checked.finding_count, "object"));
        remark!("hint: `varve publish --repair` uploads them again, from a store with the same images");
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
