//! Properties of verdicts on random snapshots under random policies.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::{
    Just, ProptestConfig, Strategy, any, prop_assert, prop_assert_eq, prop_oneof, proptest,
};
use proptest::sample::{select, subsequence};
use varve_archive::retention::{
    ContentKind, CountLike, Dated, DropReason, KeptBy, RetentionRule, Verdict, judge,
};
use varve_store::{Origin, Role};
use varve_world::Timestamp;

use super::{HOUR, at, dated, number_of, policy};

const MINUTE: i64 = HOUR / 60;
const PERIODS: [&str; 5] = ["hourly", "daily", "weekly", "monthly", "yearly"];

/// Times within three years, many of them around a change of the clock in Berlin.
pub(super) fn times() -> impl Strategy<Value = Timestamp> {
    let change = at("2024-10-27T01:00Z").0;
    prop_oneof![
        (-30_i64..30).prop_map(move |steps| change + steps * 10 * MINUTE),
        (-60_i64..60).prop_map(move |steps| change + steps * 11 * HOUR),
        (-13_000_i64..13_000).prop_map(move |hours| change + hours * HOUR),
    ]
    .prop_map(Timestamp)
}

fn snapshots() -> impl Strategy<Value = Vec<Dated>> {
    let tags = subsequence(vec!["a=1", "b=2"], 0..=2);
    let rarely = || proptest::bool::weighted(0.05);
    let key = select(vec![None, None, Some("a"), Some("b")]);
    let origin = (key, proptest::bool::weighted(0.2));
    let one = (times(), select(vec!["h", "i"]), any::<bool>(), tags, (rarely(), rarely()), origin);
    proptest::collection::vec(one, 0..24).prop_map(|all| {
        let made = all.into_iter().enumerate().map(|(number, one)| {
            let (time, host, is_image, tags, (held, until), (key, is_backdated)) = one;
            Dated {
                host: host.into(),
                kind: if is_image { ContentKind::Image } else { ContentKind::Folder },
                tags: tags.into_iter().map(str::to_owned).collect(),
                holds: if held { vec!["hold".into()] } else { Vec::new() },
                keep_until: until.then_some(Timestamp(time.0 + 5000 * HOUR)),
                has_gaps: false,
                lesser_key: key.map(|key| Origin::new(Role::WriteOnly, key)),
                is_backdated,
                ..dated(number, time)
            }
        });
        made.collect()
    })
}

/// A number of units: of years, months, days and hours in a span, or of snapshots.
#[derive(Debug, Clone)]
pub(super) enum Amount {
    Count(u32),
    Unlimited,
    Span([u32; 4]),
}

impl Amount {
    fn text(&self) -> String {
        match self {
            Self::Count(count) => count.to_string(),
            Self::Unlimited => "\"unlimited\"".into(),
            Self::Span([years, months, days, hours]) => format!("\"{years}y{months}m{days}d{hours}h\""),
        }
    }

    /// The sum with a smaller, equal or greater part for each unit.
    fn raised(&self, by: [u32; 4]) -> Self {
        match self {
            Self::Count(_) if by[0] > 2 => Self::Unlimited,
            Self::Count(count) => Self::Count(count + by[1] + 1),
            Self::Unlimited => Self::Unlimited,
            Self::Span(parts) => Self::Span(std::array::from_fn(|unit| parts[unit] + by[unit])),
        }
    }
}

fn counts() -> impl Strategy<Value = Amount> {
    prop_oneof![9 => (1_u32..6).prop_map(Amount::Count), 1 => Just(Amount::Unlimited)]
}

fn parts() -> impl Strategy<Value = [u32; 4]> {
    (0_u32..2, 0_u32..14, 0_u32..40, 0_u32..30)
        .prop_map(|(years, months, days, hours)| [years, months, days, hours])
}

fn spans() -> impl Strategy<Value = Amount> {
    let part = (0_usize..4, parts()).prop_map(|(unit, parts)| {
        let only: [u32; 4] = std::array::from_fn(|other| if other == unit { parts[other].max(1) } else { 0 });
        Amount::Span(only)
    });
    let hours_too =
        parts().prop_map(|[years, months, days, hours]| Amount::Span([years, months, days, hours + 1]));
    prop_oneof![3 => part, 1 => hours_too]
}

/// Rules that count periods, each with its key.
pub(super) fn counting_rules() -> impl Strategy<Value = BTreeMap<String, Amount>> {
    let keys: Vec<_> = std::iter::once("last").chain(PERIODS).map(|word| format!("keep_{word}")).collect();
    proptest::collection::btree_map(select(keys), counts(), 0..4)
}

fn span_rules() -> impl Strategy<Value = BTreeMap<String, Amount>> {
    let periods = PERIODS.map(|word| format!("keep_within_{word}"));
    let keys = [vec!["keep_within".to_owned()], periods.to_vec()].concat();
    proptest::collection::btree_map(select(keys), spans(), 0..3)
}

fn rules() -> impl Strategy<Value = BTreeMap<String, Amount>> {
    (counting_rules(), span_rules()).prop_map(|(mut all, more)| {
        all.extend(more);
        all
    })
}

pub(super) fn text(rules: &BTreeMap<String, Amount>, rest: &str) -> String {
    let lines: Vec<_> = rules.iter().map(|(key, amount)| format!("{key} = {}\n", amount.text())).collect();
    format!("zone = \"Europe/Berlin\"\n{}{rest}", lines.concat())
}

/// Keys of a policy other than those of rules for times.
fn rest() -> impl Strategy<Value = String> {
    let tags = select(vec!["", "keep_tags = [\"a\"]\n", "keep_tags = [\"a,b\", \"b=3\"]\n"]);
    let groups = select(vec!["", "group_by = [\"host\"]\n", "group_by = []\n"]);
    (tags, groups).prop_map(|(tags, groups)| format!("{tags}{groups}"))
}

fn ways() -> impl Strategy<Value = String> {
    select(vec!["union", "borg", "pbs"]).prop_map(|way| format!("count_like = \"{way}\"\n"))
}

fn kept_ids(snapshots: &[Dated], text: &str, now: Timestamp) -> BTreeSet<usize> {
    let verdicts = judge(snapshots, &policy(text), now);
    let kept = snapshots.iter().zip(verdicts).filter(|(_, verdict)| verdict.is_kept());
    kept.map(|(snapshot, _)| number_of(snapshot.id)).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(20_000) })]

    #[test]
    fn a_further_rule_drops_nothing(
        snapshots in snapshots(), rules in rules(), more in rules(), rest in rest(), now in times(),
    ) {
        let mut all = rules.clone();
        for (key, amount) in more {
            all.entry(key).or_insert(amount);
        }
        let before = text(&rules, &rest);
        if !policy(&before).rules().is_empty() {
            let (before, after) = (kept_ids(&snapshots, &before, now), kept_ids(&snapshots, &text(&all, &rest), now));
            prop_assert!(before.is_subset(&after), "{before:?} {after:?}");
            let tagged = format!("{}keep_tags = [\"b\"]\n", text(&rules, ""));
            if rest.is_empty() {
                prop_assert!(before.is_subset(&kept_ids(&snapshots, &tagged, now)));
            }
        }
    }

    #[test]
    fn a_greater_number_drops_nothing(
        snapshots in snapshots(), rules in rules(), by in parts(), chosen in any::<usize>(), rest in rest(),
        now in times(),
    ) {
        let mut raised = rules.clone();
        if !rules.is_empty() {
            let amount = raised.values_mut().nth(chosen % rules.len()).unwrap();
            *amount = amount.raised(by);
        }
        let before = kept_ids(&snapshots, &text(&rules, &rest), now);
        let after = kept_ids(&snapshots, &text(&raised, &rest), now);
        prop_assert!(before.is_subset(&after), "{before:?} {after:?}");
    }

    #[test]
    fn the_order_of_the_snapshots_makes_no_difference(
        (snapshots, shuffled) in snapshots().prop_flat_map(|all| (Just(all.clone()), Just(all).prop_shuffle())),
        rules in rules(), rest in rest(), way in ways(), now in times(),
    ) {
        let rules = policy(&text(&rules, &(rest + &way)));
        let in_order = judge(&snapshots, &rules, now);
        for (snapshot, verdict) in shuffled.iter().zip(judge(&shuffled, &rules, now)) {
            prop_assert_eq!(&in_order[number_of(snapshot.id)], &verdict);
        }
    }

    /// The holder of a lesser key claims any host, name, kind, tags and time. None of that changes
    /// a verdict on the snapshots of another key. Its own additions in the past change none on the
    /// snapshots that were there.
    #[test]
    fn a_claim_displaces_nothing_of_another_key_and_nothing_that_was_there(
        snapshots in snapshots(), claims in snapshots(), is_intruder in any::<bool>(),
        rules in rules(), rest in rest(), way in ways(), now in times(),
    ) {
        let rules = policy(&text(&rules, &(rest + &way)));
        let honest: Vec<_> =
            snapshots.into_iter().filter(|one| is_intruder || !one.is_backdated).collect();
        let claimed = claims.into_iter().enumerate().map(|(number, claim)| Dated {
            id: dated(100 + number, claim.time).id,
            lesser_key: if is_intruder { Some(Origin::new(Role::WriteOnly, "intruder")) } else { claim.lesser_key },
            is_backdated: !is_intruder || claim.is_backdated,
            ..claim
        });
        let all: Vec<_> = honest.iter().cloned().chain(claimed).collect();
        let (alone, among) = (judge(&honest, &rules, now), judge(&all, &rules, now));
        prop_assert_eq!(&among[..honest.len()], alone);
    }

    #[test]
    fn the_newest_is_kept_and_the_future_counts_for_nothing(
        snapshots in snapshots(), rules in rules(), rest in rest(), way in ways(), now in times(),
    ) {
        let rules = policy(&text(&rules, &(rest + &way)));
        let verdicts = judge(&snapshots, &rules, now);
        let (past, future): (Vec<_>, Vec<_>) =
            snapshots.iter().zip(verdicts).partition(|(snapshot, _)| snapshot.time <= now);
        for (_, verdict) in future {
            prop_assert_eq!(verdict, Verdict::Keep(vec![KeptBy::AfterNow]));
        }
        let alone: Vec<_> = past.iter().map(|(snapshot, _)| (*snapshot).clone()).collect();
        let found: Vec<_> = past.iter().map(|(_, verdict)| verdict.clone()).collect();
        prop_assert_eq!(judge(&alone, &rules, now), found);
        for (snapshot, verdict) in &past {
            let group = rules.group_by.group_of(snapshot);
            let in_group = past.iter().filter(|(other, _)| rules.group_by.group_of(other) == group);
            let newest = in_group.map(|(other, _)| (other.time, other.id)).max();
            let is_newest = newest == Some((snapshot.time, snapshot.id));
            prop_assert_eq!(verdict.kept_by().contains(&KeptBy::Newest), is_newest);
        }
    }

    /// A snapshot that stands for another one is kept and of the same group. It is newer, except
    /// with Proxmox's way to count: a week may keep the snapshot of 27 October, and the month drops
    /// that of 28 October for it, which lies in a week that keeps one of November.
    #[test]
    fn each_verdict_has_a_true_reason(
        snapshots in snapshots(), rules in rules(), rest in rest(), way in ways(), now in times(),
    ) {
        let rules = policy(&text(&rules, &(rest + &way)));
        let verdicts = judge(&snapshots, &rules, now);
        for (snapshot, verdict) in snapshots.iter().zip(&verdicts) {
            match verdict {
                Verdict::Keep(reasons) => prop_assert!(!reasons.is_empty()),
                Verdict::Drop(DropReason::OutOfReach) => {}
                Verdict::Drop(DropReason::Represented { rule, by }) => {
                    let by = number_of(*by);
                    prop_assert!(verdicts[by].is_kept());
                    let is_newer = (snapshots[by].time, snapshots[by].id) > (snapshot.time, snapshot.id);
                    prop_assert!(is_newer || rules.count_like == CountLike::Pbs);
                    prop_assert!(snapshots[by].id != snapshot.id);
                    prop_assert_eq!(rules.group_by.group_of(&snapshots[by]), rules.group_by.group_of(snapshot));
                    prop_assert!(!matches!(rule, RetentionRule::Tags(_)));
                }
            }
        }
    }

    #[test]
    fn a_policy_survives_its_text_form(rules in rules(), rest in rest(), way in ways()) {
        let rules = policy(&text(&rules, &(rest + &way)));
        prop_assert_eq!(policy(&rules.to_string()), rules);
    }
}
