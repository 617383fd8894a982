//! Exclusion of files from a snapshot.

use std::collections::BTreeSet;
use std::fs;
use std::io::Write;
use std::path::PathBuf;

use proptest::strategy::{Strategy, ValueTree};
use proptest::test_runner::{Config, TestRunner};

use varve_content::Node;
use varve_content::folder::{Excludes, ExcludesError, ListEvent, ListNext, StoredFiles, list};

use super::sample::{Place, is_root};

fn paths(place: &Place, root: &Node) -> BTreeSet<String> {
    let mut paths = BTreeSet::new();
    list(&StoredFiles::new(&place.blocks), root, &mut |listed| {
        let ListEvent::Node { path, .. } = listed else { panic!("{listed:?}") };
        paths.insert(path.to_str().unwrap().to_owned());
        ListNext::Descend
    });
    paths
}

fn excludes(patterns: &[&str]) -> Excludes {
    Excludes::new(&patterns.iter().map(|pattern| (*pattern).to_owned()).collect::<Vec<_>>(), &[]).unwrap()
}

fn archived_with(patterns: &[&str]) -> BTreeSet<String> {
    let mut place = Place::new();
    for path in ["a.o", "keep.o", "src/a.o", "src/a.c", "target/x", "src/target", "deep/src/er/log"] {
        place.file(path, path);
    }
    place.options.excludes = excludes(patterns);
    let archived = place.archive(None);
    paths(&place, &archived.root)
}

fn all_but(left_out: &[&str]) -> BTreeSet<String> {
    let mut all = archived_with(&[]);
    for path in left_out {
        assert!(all.remove(*path), "{path}");
    }
    all
}

#[test]
fn patterns_mean_what_they_mean_to_git() {
    assert_eq!(archived_with(&["*.o"]), all_but(&["a.o", "keep.o", "src/a.o"]));
    assert_eq!(archived_with(&["*.o", "!keep.o"]), all_but(&["a.o", "src/a.o"]));
    assert_eq!(archived_with(&["/*.o"]), all_but(&["a.o", "keep.o"]));
    assert_eq!(archived_with(&["target/"]), all_but(&["target", "target/x"]));
    assert_eq!(archived_with(&["deep/**/log"]), all_but(&["deep/src/er/log"]));
    assert_eq!(archived_with(&["/src"]), all_but(&["src", "src/a.c", "src/a.o", "src/target"]));
}

#[test]
fn patterns_come_from_files_too() {
    let mut place = Place::new();
    let list = place.file("list", "# a comment\n*.log\n\n!kept.log\n");
    place.file("some.log", "");
    place.file("kept.log", "");
    place.file("other", "");
    place.options.excludes = Excludes::new(&["other".to_owned()], std::slice::from_ref(&list)).unwrap();
    let archived = place.archive(None);
    assert_eq!(paths(&place, &archived.root), ["", "kept.log", "list"].map(str::to_owned).into());
    let missing = Excludes::new(&[], &[list.with_file_name("missing")]);
    assert!(matches!(missing, Err(ExcludesError::File { .. })), "{missing:?}");
    let broken = Excludes::new(&["[z-a]".to_owned()], &[]);
    assert!(matches!(broken, Err(ExcludesError::Pattern { .. })), "{broken:?}");
}

#[test]
fn of_a_cache_only_its_tag_is_kept() {
    let mut place = Place::new();
    place.file("cache/CACHEDIR.TAG", "Signature: 8a477f597d28d172789f06886806bc55\n# made by a test");
    place.file("cache/folder/file", "");
    place.file("not/CACHEDIR.TAG", "Signature: 8a477f597d28d172789f06886806bc5\n");
    place.file("not/file", "");
    let all = paths(&place, &place.archive(None).root);
    place.options.exclude_caches = true;
    let left = paths(&place, &place.archive(None).root);
    let left_out: Vec<&String> = all.difference(&left).collect();
    assert_eq!(left_out, ["cache/folder", "cache/folder/file"]);
}

#[test]
fn the_folder_of_the_store_is_left_out_whatever_it_is_called() {
    let mut place = Place::new();
    place.file("sub/store/arenas/0", "");
    place.file("sub/file", "");
    std::os::unix::fs::symlink(place.source().join("sub"), place.folder.path().join("alias")).unwrap();
    place.options.store_folder = Some(place.folder.path().join("alias/store"));
    let archived = place.archive(None);
    assert_eq!(paths(&place, &archived.root), ["", "sub", "sub/file"].map(str::to_owned).into());
}

#[test]
fn another_file_system_is_an_empty_folder() {
    if !is_root() {
        eprintln!("skipped as not root: another_file_system_is_an_empty_folder");
        return;
    }
    let mut place = Place::new();
    let mounted = place.source().join("mounted");
    fs::create_dir(&mounted).unwrap();
    let mount = std::process::Command::new("mount").args(["-t", "tmpfs", "none"]).arg(&mounted).status();
    if !mount.is_ok_and(|status| status.success()) {
        eprintln!("skipped as nothing can be mounted: another_file_system_is_an_empty_folder");
        return;
    }
    let _unmount = Unmount(mounted.clone());
    fs::write(mounted.join("file"), "").unwrap();
    assert_eq!(paths(&place, &place.archive(None).root).len(), 3);
    place.options.one_file_system = true;
    assert_eq!(paths(&place, &place.archive(None).root), ["", "mounted"].map(str::to_owned).into());
}

struct Unmount(PathBuf);

impl Drop for Unmount {
    fn drop(&mut self) {
        std::process::Command::new("umount").arg(&self.0).status().unwrap();
    }
}

/// Random patterns exclude the files that git ignores, in a folder with names of all kinds.
#[test]
fn patterns_leave_out_what_git_ignores() {
    let mut place = Place::new();
    let (source, home) = (place.source(), place.folder.path().to_path_buf());
    let repository = place.folder.path().join("repository");
    let git = |args: &[&str], input: &str| {
        let mut child = std::process::Command::new("git")
            .arg("--git-dir")
            .arg(&repository)
            .arg("--work-tree")
            .arg(&source)
            .args(args)
            .current_dir(&source)
            .env("GIT_CONFIG_NOSYSTEM", "1")
            .env("HOME", &home)
            .stdin(std::process::Stdio::piped())
            .stdout(std::process::Stdio::piped())
            .stderr(std::process::Stdio::null())
            .spawn()
            .ok()?;
        child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
        Some(String::from_utf8(child.wait_with_output().unwrap().stdout).unwrap())
    };
    for path in [
        "a/a/x.o",
        "a/b/y",
        "b/a/x.o",
        "b/sp /x",
        "#h",
        "!k",
        "sp ",
        "deep/a/b/a/x.o",
        "deep/ab",
        "x.o",
        "ab",
    ] {
        place.file(path, "");
    }
    if git(&["init"], "").is_none_or(|said| said.is_empty()) {
        eprintln!("skipped as there is no git: patterns_leave_out_what_git_ignores");
        return;
    }
    let all = paths(&place, &place.archive(None).root);
    let input: String = all.iter().filter(|path| !path.is_empty()).map(|path| format!("{path}\0")).collect();
    let mut runner = TestRunner::new(Config { cases: 150, ..Config::default() });
    let mut matched_count = 0;
    for _ in 0..150 {
        let lines = pattern_lines().new_tree(&mut runner).unwrap().current();
        let text = lines.join("\n");
        fs::write(repository.join("info/exclude"), &text).unwrap();
        let ignored = git(&["check-ignore", "--no-index", "-z", "--stdin"], &input).unwrap();
        let ignored: BTreeSet<_> = ignored.split_terminator('\0').map(str::to_owned).collect();
        let list = place.folder.path().join("list");
        fs::write(&list, &text).unwrap();
        place.options.excludes = Excludes::new(&[], &[list]).unwrap();
        let found = paths(&place, &place.archive(None).root);
        let left_out: BTreeSet<_> = all.difference(&found).cloned().collect();
        assert_eq!(left_out, ignored, "{lines:?}");
        matched_count += ignored.len();
    }
    assert!(matched_count > 100, "{matched_count}");
}

/// Lines of patterns, made of parts that git and Varve interpret alike.
fn pattern_lines() -> impl Strategy<Value = Vec<String>> {
    let part = proptest::sample::select(vec![
        "a", "b", "*", "**", "?", "*.o", "[ab]", "[!a]", "a*", "x.o", "deep", "\\#h", "sp\\ ", "#h", "!k",
        "\\!k", "sp ", "ab",
    ]);
    let end = proptest::sample::select(vec!["", "", "/", " ", "  ", "/**"]);
    let line = (proptest::bool::ANY, proptest::bool::ANY, proptest::collection::vec(part, 1..4), end);
    let line = line.prop_map(|(takes_back, is_bound, parts, end)| {
        let (back, bound) = (if takes_back { "!" } else { "" }, if is_bound { "/" } else { "" });
        format!("{back}{bound}{}{end}", parts.join("/"))
    });
    proptest::collection::vec(line, 1..5)
}
