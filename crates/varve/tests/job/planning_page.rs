//! `docs/guide/planning.md`: a plan for three years in five commands. The program prints what the
//! page says.

use crate::sandbox::Sandbox;

const PAGE: &str = include_str!("../../../../docs/guide/planning.md");

/// The commands of the page, each with the output that it shows.
fn session() -> Vec<(&'static str, Vec<&'static str>)> {
    let mut session: Vec<(&str, Vec<&str>)> = Vec::new();
    for block in PAGE.split("```").filter_map(|block| block.strip_prefix("console\n")) {
        for line in block.lines() {
            match line.strip_prefix("$ varve-plan ") {
                Some(command) => session.push((command, Vec::new())),
                None => session.last_mut().unwrap().1.push(line),
            }
        }
    }
    session
}

#[test]
fn three_years_are_planned_in_five_commands() {
    let sandbox = Sandbox::empty().planner();
    let session = session();
    assert_eq!(session.len(), 5, "{session:?}");
    for (command, shown) in session {
        let (command, into) =
            command.split_once(" > ").map_or((command, None), |(one, file)| (one, Some(file)));
        let output =
            sandbox.command().args(command.split_whitespace()).current_dir(sandbox.path("")).output();
        let output = output.unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(output.status.success(), "{command}: {text}{}", String::from_utf8_lossy(&output.stderr));
        if let Some(file) = into {
            std::fs::write(sandbox.path(file), &text).unwrap();
        }
        // The page leaves out some lines, and says so.
        for line in shown.into_iter().filter(|line| *line != "…") {
            assert!(text.lines().any(|printed| printed.trim_end() == line), "{command}: {line:?} in\n{text}");
        }
    }
    assert!(sandbox.path("cost.svg").is_file());
}
