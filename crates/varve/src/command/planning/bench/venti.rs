//! `varve-plan bench venti`

use anyhow::{Context, Result};
use serde_json::json;
use varve_remote::{Load, LoadAction, LoadOrder, VentiOptions, load};

use crate::arguments::{ActionChoice, BenchVentiArgs, OrderChoice};
use crate::invocation::Invocation;
use crate::outcome::CommandOutcome;
use crate::{say, show};

pub fn run(invocation: &Invocation, args: &BenchVentiArgs) -> Result<CommandOutcome> {
    let wanted = Load {
        action: match args.action {
            ActionChoice::Write => LoadAction::Write,
            ActionChoice::Read => LoadAction::Read,
        },
        order: match args.order {
            OrderChoice::Sequential => LoadOrder::Sequential,
            OrderChoice::Permuted => LoadOrder::Permuted,
            OrderChoice::Random => LoadOrder::Random,
            OrderChoice::Same => LoadOrder::Same,
        },
        block_bytes: args.block_size,
        count: args.count,
        among: args.among.unwrap_or(args.count),
        depth: args.depth.into(),
        seed: args.seed,
    };
    let options = VentiOptions { tls: varve_session::venti_tls()?, ..VentiOptions::default() };
    let result = load(&args.address, &options, &wanted)
        .with_context(|| format!("{} could not be measured", args.address))?;
    let bytes = args.count * args.block_size as u64;
    let [half, most, nearly_all, all] =
        [500, 990, 999, 1000].map(|share| result.latency(share).as_secs_f64() * 1e3);
    #[expect(clippy::cast_precision_loss, reason = "a rate is shown with few digits")]
    let rate = bytes as f64 / (result.elapsed + result.sync).as_secs_f64().max(1e-9) / 1e6;
    if invocation.json {
        let value = json!({
            "bytes": bytes,
            "seconds": result.elapsed.as_secs_f64(),
            "sync_seconds": result.sync.as_secs_f64(),
            "megabytes_per_second": rate,
            "latency_milliseconds": { "50": half, "99": most, "99.9": nearly_all, "100": all },
        });
        say::record("venti_benchmark", value);
        return Ok(CommandOutcome::Done);
    }
    let what = match args.action {
        ActionChoice::Write => "written",
        ActionChoice::Read => "read",
    };
    say!(
        "{} {what} in {:.2} s and {:.2} s for a sync: {rate:.0} MB/s",
        show::bytes(bytes),
        result.elapsed.as_secs_f64(),
        result.sync.as_secs_f64()
    );
    say!("latency: 50% {half:.2} ms, 99% {most:.2} ms, 99.9% {nearly_all:.2} ms, the longest {all:.2} ms");
    Ok(CommandOutcome::Done)
}
