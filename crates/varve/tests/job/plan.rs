//! Planning a store by figures: a disk is measured, and a plan is made from the results.

use std::fs;

use crate::sandbox::{Sandbox, noise};

#[test]
fn a_plan_is_made_from_what_was_measured() {
    let sandbox = Sandbox::empty().planner();
    let folder = sandbox.arg("disk");
    fs::create_dir(&folder).unwrap();
    let measured = sandbox.ok(["bench", "device", &folder, "--size", "4M", "--seconds", "0.02", "--json"]);
    assert_eq!(fs::read_dir(&folder).unwrap().count(), 0, "it leaves nothing behind");
    let figures = sandbox.arg("disk.json");
    fs::write(&figures, measured).unwrap();

    let small = &sandbox.json(["predict", "--disk-size", "1T", "--device", &figures])[0];
    let forecasts = small["plan"]["forecasts"].as_array().unwrap();
    assert_eq!(forecasts.len(), 4);
    assert_eq!(small["plan"]["choice"], 0);
    for forecast in forecasts {
        assert_eq!(forecast["cases"].as_array().unwrap().len(), 6);
        assert!(forecast["night_rate"].as_f64().unwrap() > 0.0);
    }
    // The index of sixteen times as many blocks does not fit into memory, so it goes to disk.
    let large = &sandbox.json(["predict", "--disk-size", "16T", "--memory", "8G", "--device", &figures])[0];
    assert_eq!(large["plan"]["choice"], 1);
    let shown = sandbox.ok(["predict", "--disk-size", "16T", "--memory", "8G"]);
    assert!(shown.contains("Take `varve init --index disk"), "{shown}");
    assert!(shown.contains("assumed"), "{shown}");
    // If nothing fits, the plan says so on standard output.
    let none = sandbox.run(["predict", "--disk-size", "16T", "--memory", "50M"]);
    assert_eq!(none.code, Some(1));
    assert!(String::from_utf8_lossy(&none.stdout).contains("Nothing fits"));
}

#[test]
fn many_settings_are_one_table() {
    let sandbox = Sandbox::empty().planner();
    let words = ["predict", "--disk-size", "1T..4T", "--block-size", "16K,64K", "--memory", "2G"];
    let shown = sandbox.ok(words);
    let rows: Vec<&str> = shown.lines().filter(|line| line.contains("by hash, index in memory")).collect();
    // With 16 KiB blocks the index of 1 TiB and 2 TiB fits into memory; with 64 KiB blocks every
    // index here fits.
    assert!(rows.len() >= 4 && rows[0].contains("1.00 TiB") && rows[0].contains("64.0 KiB"), "{shown}");
    assert!(shown.contains("outside the limits"), "{shown}");
    let plans = sandbox.json(words);
    assert_eq!(plans.len(), 6);
    let memory = |plan: &serde_json::Value| plan["plan"]["forecasts"][0]["memory_bytes"].as_f64().unwrap();
    let ratio = memory(&plans[1]) / memory(&plans[0]);
    assert!((1.99..2.01).contains(&ratio), "twice the disk takes twice the memory: {ratio}");

    let strict = [&words[..], &["--collision-interval", "1000M", "--empty-memory", "1M"]].concat();
    let plans = sandbox.json(["predict", "--disk-size", "1T", "--collision-interval", "1000M"]);
    assert_eq!(plans[0]["plan"]["forecasts"][0]["misfit"], "collision_interval", "{}", plans[0]);
    let none = sandbox.run(strict);
    assert_eq!(none.code, Some(1), "{}", String::from_utf8_lossy(&none.stdout));
    for wrong in [
        ["--disk-size", "4T..1T"],
        ["--disk-size", "1T,"],
        ["--disk-size", "0..4T"],
        ["--block-size", "4K,5K"],
        ["--block-size", "256..1K"],
        ["--collision-interval", "0"],
    ] {
        let disk: &[&str] = if wrong[0] == "--disk-size" { &[] } else { &["--disk-size", "1T"] };
        let said = sandbox.fails(2, [&["predict"], disk, &wrong[..]].concat());
        assert!(said.contains("write"), "{wrong:?}: {said}");
    }
    // A range of all sizes, four hundred times, is too large for a table.
    let many = vec!["1..1T"; 400].join(",");
    assert!(sandbox.fails(2, ["predict", "--disk-size", &many]).contains("give fewer"));
}

#[test]
fn what_makes_no_plan_is_said() {
    let sandbox = Sandbox::empty().planner();
    let figures = sandbox.arg("disk.json");
    fs::write(&figures, r#"{"rows":[],"is_direct":true}"#).unwrap();
    let said = sandbox.fails(2, ["predict", "--disk-size", "1T", "--device", &figures]);
    assert!(said.contains("larger than zero"), "{said}");
    fs::write(&figures, "nonsense").unwrap();
    let said = sandbox.fails(1, ["predict", "--disk-size", "1T", "--device", &figures]);
    assert!(said.contains("varve-plan bench device --json"), "{said}");
    sandbox.fails(2, ["predict", "--disk-size", "1T", "--stored", "0%"]);
    sandbox.fails(2, ["predict"]);
    let said = sandbox.fails(1, ["bench", "device", &sandbox.arg("nowhere")]);
    assert!(said.contains("there is no folder") && said.contains("nowhere"), "{said}");
    assert!(!said.contains("measured in"), "{said}");
}

/// Writes the examples, and returns the arguments that name them.
fn examples(sandbox: &Sandbox, devices: &str) -> Vec<String> {
    let mut words = vec!["predict".to_owned()];
    for (option, example) in [("--workload", "workload"), ("--devices", devices), ("--sla", "sla")] {
        let file = sandbox.arg(&format!("{example}.toml"));
        fs::write(&file, sandbox.ok(["predict", "--example", example])).unwrap();
        words.extend([option.to_owned(), file]);
    }
    words
}

#[test]
fn hardware_is_chosen_by_cost() {
    let sandbox = Sandbox::empty().planner();
    for devices in ["devices", "devices-2012"] {
        let mut words = examples(&sandbox, devices);
        if devices == "devices-2012" {
            // The disks of 2012 are small.
            let text = fs::read_to_string(&words[2]).unwrap();
            fs::write(&words[2], text.replace("source_bytes = 2e12", "source_bytes = 2e11")).unwrap();
        }
        let picture = sandbox.arg("cost.svg");
        words.extend(["--svg".to_owned(), picture.clone()]);
        #[expect(clippy::disallowed_methods, reason = "a test measures itself")]
        let started = std::time::Instant::now();
        let shown = sandbox.ok(&words);
        assert!(started.elapsed().as_secs() < 20, "{:?}", started.elapsed());
        for part in
            ["The cheapest design is a store by hash", "snapshot_hours", "look_ms", "FLIPS AT", "LOWEST"]
        {
            assert!(shown.contains(part), "{part}: {shown}");
        }
        assert!(fs::read_to_string(&picture).unwrap().starts_with("<svg "));
        let study = &sandbox.json(&words)[0]["study"];
        let best = &study["best"];
        let parts = best["parts"].as_array().unwrap().iter().map(|part| part["cost"].as_f64().unwrap());
        assert!((parts.sum::<f64>() - best["cost"].as_f64().unwrap()).abs() < 1e-6, "{best}");
        assert!(best["snapshot_hours"].as_f64().unwrap() <= 6.0 && best["look_ms"].as_f64().unwrap() <= 20.0);
        assert_eq!(study["curves"].as_array().unwrap().len(), 3);
        let other = study["others"][0]["cost"].as_f64().unwrap();
        assert!(other >= best["cost"].as_f64().unwrap());
    }
    let mut words = examples(&sandbox, "devices");
    let sla = words.last().unwrap().clone();
    fs::write(&sla, fs::read_to_string(&sla).unwrap().replace("look_ms = 20", "look_ms = 0.001")).unwrap();
    let none = sandbox.run(&words);
    assert_eq!(none.code, Some(1));
    assert!(String::from_utf8_lossy(&none.stdout).contains("Without look_ms the cheapest one costs"));
    fs::write(&sla, "years = 3").unwrap();
    let said = sandbox.fails(1, &words);
    assert!(said.contains("varve-plan predict --example sla") && said.contains("snapshot_hours"), "{said}");
    words.extend(["--memory".to_owned(), "1G".to_owned()]);
    sandbox.fails(2, &words);
    sandbox.fails(2, ["predict", "--workload", &sla]);
    sandbox.fails(2, ["predict", "--svg", &sla, "--disk-size", "1T"]);
    sandbox.fails(2, ["predict", "--svg", &sla]);
}

#[test]
fn an_archive_is_endowed() {
    let sandbox = Sandbox::empty().planner();
    let (costs, picture) = (sandbox.arg("costs.toml"), sandbox.arg("money.svg"));
    fs::write(&costs, sandbox.ok(["predict", "--example", "endowment"])).unwrap();
    let words = ["predict", "--endowment", "50", "--costs", &costs, "--runs", "5000", "--svg", &picture];
    let shown = sandbox.ok(words);
    assert!(shown.contains("Take ") && shown.contains("two disks and a bucket"), "{shown}");
    assert!(fs::read_to_string(&picture).unwrap().contains("no snapshot lost"));
    let endowment = &sandbox.json(words)[0]["endowment"];
    let schemes = endowment["schemes"].as_array().unwrap();
    assert_eq!(schemes.len(), 5);
    assert_eq!(schemes[0]["kept_by_year"].as_array().unwrap().len(), 50);
    assert!(schemes[0]["kept"].as_f64().unwrap() < schemes[3]["kept"].as_f64().unwrap());
    // The same seed gives the same figures.
    assert_eq!(sandbox.ok(words), shown);
    let text = fs::read_to_string(&costs).unwrap();
    fs::write(&costs, text.replace("probability = 0.99", "probability = 0.99999")).unwrap();
    let none = sandbox.run(["predict", "--endowment", "50", "--costs", &costs, "--runs", "100"]);
    assert_eq!(none.code, Some(1));
    fs::write(&costs, text.replace("needed = 2", "needed = 9")).unwrap();
    let said = sandbox.fails(1, ["predict", "--endowment", "50", "--costs", &costs]);
    assert!(said.contains("needed: 9 is not between 1 and 3"), "{said}");
    sandbox.fails(2, ["predict", "--endowment", "50"]);
    sandbox.fails(2, ["predict", "--endowment", "0", "--costs", &costs]);
}

#[test]
fn block_sizes_are_compared_by_merging() {
    let sandbox = Sandbox::empty().planner();
    let folder = sandbox.path("days");
    fs::create_dir_all(folder.join("deep")).unwrap();
    let monday = noise(1, 1 << 20);
    // One page changes, and another one is zero.
    let mut tuesday = monday.clone();
    tuesday[40_960..45_056].fill(7);
    tuesday[81_920..86_016].fill(0);
    fs::write(folder.join("monday"), &monday).unwrap();
    fs::write(folder.join("deep/tuesday"), &tuesday).unwrap();
    let folder = folder.to_str().unwrap();
    let study = &sandbox.json(["bench", "chunks", folder])[0]["study"];
    assert_eq!((study["bytes"].as_u64(), study["zero_bytes"].as_u64()), (Some(2 << 20), Some(4096)));
    let rows = study["rows"].as_array().unwrap();
    let unique = |bytes: u64| {
        let row = rows.iter().find(|row| row["block_bytes"] == bytes && row["way"] == "fixed").unwrap();
        row["unique_bytes"].as_f64().unwrap()
    };
    // One different page, or two blocks around the two pages.
    assert!((unique(4096) - f64::from((1 << 20) + 4096)).abs() < 0.5, "{study}");
    assert!((unique(16384) - f64::from((1 << 20) + 2 * 16384)).abs() < 0.5, "{study}");
    let shown = sandbox.ok(["bench", "chunks", folder]);
    assert!(shown.contains("take the least space together"), "{shown}");
    let estimated = sandbox.ok(["bench", "chunks", folder, "--memory", "1K"]);
    assert!(estimated.contains("estimates"), "{estimated}");
    sandbox.fails(2, ["bench", "chunks"]);
    sandbox.fails(1, ["bench", "chunks", &sandbox.arg("nowhere")]);
    fs::write(sandbox.path("empty"), "").unwrap();
    assert!(sandbox.fails(1, ["bench", "chunks", &sandbox.arg("empty")]).contains("no data"));
}
