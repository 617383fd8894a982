//! The loss that each rule prevents: the shortest path to it, in a model without that rule.

use std::collections::BTreeSet;

use super::{Promise, Rules, Setup};
use crate::search::shortest_loss;

/// Each rule with a model that loses something without it, and with the steps of the shortest path.
fn losses() -> Vec<(&'static str, Setup, Promise, usize)> {
    use Promise::{Acknowledged, Listed, Reported, SameList};
    let (one, two, fold) = (Setup::new(1, 1), Setup::new(2, 1), Setup::with_fold(1));
    let forgetting = Setup::with_forgetting(1);
    vec![
        ("registers_before_it_reads", one.clone(), Acknowledged, 14),
        ("takes_nothing_from_dying_arenas", one.clone(), Acknowledged, 16),
        ("barren_blocks_count_as_absent", one.clone(), Acknowledged, 14),
        ("takes_structure_from_covered_arenas_only", two.clone(), Acknowledged, 21),
        ("looks_if_it_was_closed", one.clone(), Acknowledged, 13),
        ("stops_if_a_later_epoch_is_claimed", fold, Acknowledged, 18),
        ("waits_for_older_sessions", one.clone(), Acknowledged, 14),
        ("marks_twice", one.clone(), Acknowledged, 15),
        ("keeps_what_the_first_mark_found", forgetting.clone(), Acknowledged, 17),
        ("covers_only_the_listed_part", two, Acknowledged, 21),
        ("a_fold_looks_for_later_claims", forgetting, Reported, 11),
        ("any_final_root_makes_void", Setup::new(1, 2), Listed, 20),
        ("any_final_root_makes_void", Setup::new(1, 2), SameList, 18),
        ("writes_its_root_before_its_statement", one, SameList, 12),
    ]
}

/// The same for rules whose loss needs two push sessions and two exclusive sessions.
fn losses_of_two_exclusive_sessions() -> Vec<(&'static str, Setup, Promise, usize)> {
    use Promise::Acknowledged;
    vec![
        ("inherits_dying_arenas", Setup::other_arenas(2), Acknowledged, 19),
        ("roots_without_a_verdict_free_no_block", Setup::new(2, 2), Acknowledged, 23),
        ("roots_with_a_verdict_free_no_block", Setup::new(2, 2), Acknowledged, 27),
        ("a_fold_copies_unfinished_statements", Setup::with_forgetting_of_ended(2), Acknowledged, 27),
        ("the_latest_epoch_names_the_generation", Setup::new(2, 2), Acknowledged, 31),
    ]
}

/// The rules whose absence loses nothing in any of the models.
const NOT_NEEDED: [&str; 2] = ["void_roots_count_nowhere", "a_fold_covers_recent_sessions_only"];

/// Compares the shortest path to each loss with the expected one.
#[cfg(test)]
fn check(losses: Vec<(&str, Setup, Promise, usize)>) {
    let mut findings = Vec::new();
    for (rule, setup, promise, expected) in losses {
        let found = shortest_loss(Setup { rules: Rules::without(rule), promise, ..setup });
        let steps = found.as_ref().map(Vec::len);
        println!("without {rule}: {promise:?} is broken after {steps:?} steps: {found:?}");
        if steps != Some(expected) {
            findings.push(format!("{rule}: {steps:?}, not {expected}"));
        }
    }
    assert!(findings.is_empty(), "{}", findings.join("\n"));
}

#[test]
fn each_rule_is_needed() {
    check(losses());
}

#[test]
#[ignore = "up to 9 million states each: 80 s"]
fn each_rule_for_two_exclusive_sessions_is_needed() {
    check(losses_of_two_exclusive_sessions());
}

#[test]
fn every_rule_has_a_loss_or_a_reason() {
    let losses = losses().into_iter().chain(losses_of_two_exclusive_sessions());
    let listed: BTreeSet<&str> = losses.map(|(rule, ..)| rule).chain(NOT_NEEDED).collect();
    assert_eq!(listed, Rules::NAMES.iter().copied().collect());
}

/// A rule that turns out to be needed belongs to the others.
#[test]
fn rules_without_a_loss_are_known() {
    for rule in NOT_NEEDED {
        for setup in [Setup::with_fold(1), Setup::with_forgetting(1), Setup::new(1, 2), Setup::new(2, 1)] {
            let loss =
                shortest_loss(Setup { rules: Rules::without(rule), promise: Promise::Listed, ..setup });
            assert_eq!(loss, None, "{rule}");
        }
    }
}
