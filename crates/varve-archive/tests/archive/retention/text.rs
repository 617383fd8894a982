//! Text forms of policies and of their parts, and the errors of malformed ones.

use varve_archive::retention::{
    CountLike, KeepCount, KeepSpan, KeepTags, RetentionGroupBy, RetentionPolicy, RetentionRule, RetentionZone,
};

use super::policy;

/// An error with its sources.
fn chain(error: &dyn std::error::Error) -> String {
    let sources = std::iter::successors(error.source(), |error| error.source());
    sources.fold(error.to_string(), |text, source| format!("{text}: {source}"))
}

fn policy_error(text: &str) -> String {
    chain(&text.parse::<RetentionPolicy>().unwrap_err())
}

#[test]
fn a_policy_is_printed_as_a_policy_file() {
    let text = r#"
        zone = "europe/berlin"
        keep_yearly = "unlimited"
        keep_daily = "7"
        keep_within_monthly = "2h1y"
        keep_tags = ["b, c=1", "a"]
        group_by = ["name", "host"]
        keep_last = 3
    "#;
    let printed = r#"keep_last = 3
keep_daily = 7
keep_yearly = "unlimited"
keep_within_monthly = "1y2h"
keep_tags = ["a", "b,c=1"]
zone = "Europe/Berlin"
group_by = ["host", "name"]
count_like = "union"
"#;
    assert_eq!(policy(text).to_string(), printed);
    assert_eq!(policy(printed), policy(text));
    let empty = "zone = \"UTC\"\ngroup_by = [\"host\", \"name\", \"kind\"]\ncount_like = \"union\"\n";
    assert_eq!(RetentionPolicy::default().to_string(), empty);
    assert_eq!(policy(""), RetentionPolicy::default());
}

#[test]
fn a_rule_replaces_one_with_the_same_key_and_tags_add_up() {
    let rule = |key: &str, value: &str| RetentionRule::parse(key, value).unwrap();
    let rules = [
        rule("keep_daily", "7"),
        rule("keep_tags", "a"),
        rule("keep_daily", "3"),
        rule("keep_tags", "b"),
        rule("keep_tags", "a"),
    ];
    let policy = rules.into_iter().fold(RetentionPolicy::default(), RetentionPolicy::with_rule);
    let found: Vec<_> = policy.rules().iter().map(ToString::to_string).collect();
    assert_eq!(found, ["keep_daily = 3", "keep_tags = a", "keep_tags = b"]);
}

#[test]
fn every_rule_has_a_key_that_is_parsed() {
    let keys: Vec<_> = RetentionRule::keys().collect();
    assert_eq!(keys.len(), 13);
    for key in keys {
        let value = if key.starts_with("keep_within") { "1d" } else { "5" };
        let rule = RetentionRule::parse(&key, value).unwrap();
        assert_eq!((rule.key(), rule.value()), (key, value.to_owned()));
    }
}

#[test]
fn malformed_policies_are_errors() {
    let cases = [
        ("keep_dayly = 7", "keep_dayly is not a key of a policy: did you mean keep_daily?"),
        ("colour = 7", "colour is not a key of a policy"),
        ("keep_daily = 0", "the value of keep_daily is malformed: 0 keeps nothing: leave the rule out"),
        (
            "keep_daily = -1",
            "the value of keep_daily is malformed: \"-1\" is not a number of snapshots: write 1 to 4294967295, \
             or unlimited",
        ),
        ("keep_daily = true", "keep_daily: expected a number, or a text in quotes, found boolean"),
        (
            "keep_within = 7",
            "the value of keep_within is malformed: no unit after 7: write y, m, d or h (years, months, days, hours)",
        ),
        ("keep_tags = \"a\"", "keep_tags: expected a list of texts, found string"),
        ("keep_tags = [\"a,,b\"]", "keep_tags: \"a,,b\" has an empty tag"),
        (
            "zone = \"Europe/Bielefeld\"",
            "the value of zone is malformed: \"Europe/Bielefeld\" is not a known time zone: write an IANA name, \
             such as Europe/Berlin",
        ),
        (
            "group_by = [\"host\", \"path\"]",
            "the value of group_by is malformed: \"path\" is not a property of groups: write host, name, kind, or \
             several of them",
        ),
        ("count_like = \"restic\"", "the value of count_like is malformed: write union, borg or pbs"),
    ];
    for (text, error) in cases {
        assert_eq!(policy_error(text), error);
    }
    assert!(policy_error("keep_daily = 7\nkeep_daily = 8").starts_with("the policy is not TOML: "));
}

#[test]
fn spans_are_those_of_restic() {
    let parsed =
        |text: &str| text.parse::<KeepSpan>().map(|span| span.to_string()).map_err(|error| chain(&error));
    assert_eq!(parsed("1y5m7d2h"), Ok("1y5m7d2h".into()));
    assert_eq!(parsed("2h0y1m"), Ok("1m2h".into()));
    assert_eq!(parsed("1000000d"), Ok("1000000d".into()));
    let errors = [
        ("", "an empty span keeps nothing: leave the rule out"),
        ("0d", "an empty span keeps nothing: leave the rule out"),
        ("d", "no number before \"d\": write a span such as 1y5m7d2h"),
        ("1d-2h", "no number before \"-2h\": write a span such as 1y5m7d2h"),
        ("1d 2h", "no number before \" 2h\": write a span such as 1y5m7d2h"),
        ("1d2", "no unit after 2: write y, m, d or h (years, months, days, hours)"),
        ("2w", "'w' is not a unit: write y, m, d or h (years, months, days, hours); a week is 7d"),
        ("2ü", "'ü' is not a unit: write y, m, d or h (years, months, days, hours); a week is 7d"),
        ("1d0d", "the unit d is there twice"),
        ("1000001h", "1000001h is too long: at most 1000000"),
        ("99999999999999999999y", "99999999999999999999y is too long: at most 1000000"),
    ];
    for (text, error) in errors {
        assert_eq!(parsed(text), Err(error.into()));
    }
}

#[test]
fn counts_zones_groups_and_ways_have_text_forms() {
    assert_eq!("7".parse::<KeepCount>().unwrap().to_string(), "7");
    assert_eq!("unlimited".parse::<KeepCount>().unwrap(), KeepCount::Unlimited);
    for malformed in ["", "+7", "7 ", "4294967296", "all", "0"] {
        assert!(malformed.parse::<KeepCount>().is_err(), "{malformed}");
    }
    assert_eq!("america/new_york".parse::<RetentionZone>().unwrap().to_string(), "America/New_York");
    assert_eq!("UTC".parse::<RetentionZone>().unwrap(), RetentionZone::default());
    for malformed in
        ["", "localtime", "Local", "CET-1CEST,M3.5.0,M10.5.0/3", "+01:00", "/etc/localtime", "../UTC"]
    {
        assert!(malformed.parse::<RetentionZone>().is_err(), "{malformed}");
    }
    assert_eq!("kind,host".parse::<RetentionGroupBy>().unwrap().to_string(), "host,kind");
    assert_eq!("".parse::<RetentionGroupBy>().unwrap().to_string(), "");
    assert!("host,".parse::<RetentionGroupBy>().is_err());
    assert_eq!("borg".parse::<CountLike>().unwrap(), CountLike::Borg);
    assert_eq!(" a , b=1".parse::<KeepTags>().unwrap().to_string(), "a,b=1");
}
