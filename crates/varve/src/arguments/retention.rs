//! The options that make up a policy of retention.

use std::path::PathBuf;

use anyhow::{Context, Result};
use clap::{Args, ValueHint};
use varve_archive::retention::{RetentionGroupBy, RetentionPolicy, RetentionRule, RetentionZone};
use varve_block::with_causes;

use crate::moment;

/// The rules decide which of the chosen snapshots are kept: all that any of them keeps.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Rules of retention")]
pub struct RetentionArgs {
    /// Take the rules from a file, with lines such as keep_daily = 7; options take precedence
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub policy: Option<PathBuf>,

    /// Keep the newest COUNT snapshots of each group
    #[arg(long, value_name = "COUNT", value_parser = rule("keep_last"))]
    pub keep_last: Option<RetentionRule>,

    /// Keep the newest snapshot of each of the newest COUNT hours; a number, or unlimited
    #[arg(long, value_name = "COUNT", value_parser = rule("keep_hourly"))]
    pub keep_hourly: Option<RetentionRule>,

    /// The same for days
    #[arg(long, value_name = "COUNT", value_parser = rule("keep_daily"))]
    pub keep_daily: Option<RetentionRule>,

    /// The same for weeks, which begin on Mondays
    #[arg(long, value_name = "COUNT", value_parser = rule("keep_weekly"))]
    pub keep_weekly: Option<RetentionRule>,

    /// The same for months
    #[arg(long, value_name = "COUNT", value_parser = rule("keep_monthly"))]
    pub keep_monthly: Option<RetentionRule>,

    /// The same for years
    #[arg(long, value_name = "COUNT", value_parser = rule("keep_yearly"))]
    pub keep_yearly: Option<RetentionRule>,

    /// Keep all snapshots of this time before the newest of their group, such as 1m15d
    #[arg(long, value_name = "SPAN", value_parser = rule("keep_within"))]
    pub keep_within: Option<RetentionRule>,

    /// Keep the snapshots with all of these tags; may be given several times
    #[arg(long, value_name = "TAGS", value_parser = rule("keep_tags"))]
    pub keep_tags: Vec<RetentionRule>,

    /// The time zone of days, weeks, months and years, such as Europe/Berlin [default: that of
    /// the machine]
    #[arg(long, value_name = "ZONE")]
    pub zone: Option<RetentionZone>,

    /// The properties that the snapshots of a group have in common [default: host,name,kind]
    #[arg(long, value_name = "WHAT")]
    pub group_by: Option<RetentionGroupBy>,
}

fn rule(key: &'static str) -> impl Fn(&str) -> Result<RetentionRule, String> + Clone + Send + Sync {
    move |text| RetentionRule::parse(key, text).map_err(|error| with_causes(&error))
}

impl RetentionArgs {
    /// Returns the policy of the file and of the options; `None` if there are no rules.
    ///
    /// # Errors
    /// When the file cannot be read, or is no policy.
    pub fn policy(&self) -> Result<Option<RetentionPolicy>> {
        let zone = RetentionZone::from(moment::zone());
        let mut policy = match &self.policy {
            None => RetentionPolicy::in_zone(zone),
            Some(path) => {
                let what = || path.display().to_string();
                let text = std::fs::read_to_string(path).with_context(what)?;
                RetentionPolicy::parse(&text, zone).with_context(what)?
            }
        };
        let counted =
            [&self.keep_last, &self.keep_hourly, &self.keep_daily, &self.keep_weekly, &self.keep_monthly];
        let others = [&self.keep_yearly, &self.keep_within].into_iter().flatten();
        for rule in counted.into_iter().flatten().chain(others).chain(&self.keep_tags) {
            policy = policy.with_rule(rule.clone());
        }
        if let Some(zone) = &self.zone {
            policy.zone = zone.clone();
        }
        policy.group_by = self.group_by.unwrap_or(policy.group_by);
        Ok((!policy.rules().is_empty()).then_some(policy))
    }
}
