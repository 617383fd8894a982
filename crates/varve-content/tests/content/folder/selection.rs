//! The choice of files by other means than patterns: sizes, marks, lists, and virtual file systems.
//! The survey reports the same choice.
#![allow(clippy::print_stderr, reason = "says what it skipped")]

use std::collections::BTreeSet;
use std::fs;
use std::ops::ControlFlow;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use varve_content::folder::{
    ArchivedFolder, LeftOutReason, ListEvent, ListNext, ListedPaths, StoredFiles, SurveyEvent, list,
    survey_folder,
};
use varve_content::{Node, NodeProblem};

use super::sample::{Place, is_root};

fn nodes(place: &Place, root: &Node) -> Vec<(String, Node)> {
    let mut nodes = Vec::new();
    list(&StoredFiles::new(&place.blocks), root, &mut |listed| {
        let ListEvent::Node { path, node } = listed else { panic!("{listed:?}") };
        nodes.push((path.to_str().unwrap().to_owned(), node.clone()));
        ListNext::Descend
    });
    nodes
}

fn paths(place: &Place, root: &Node) -> BTreeSet<String> {
    nodes(place, root).into_iter().map(|(path, _)| path).collect()
}

/// Archives the source, and compares the result with the survey.
fn archive(place: &Place) -> (BTreeSet<String>, ArchivedFolder) {
    let archived = place.try_archive(None).0.unwrap();
    let mut told = BTreeSet::new();
    let survey = survey_folder(&place.source(), &place.options, &mut |surveyed| {
        match surveyed {
            SurveyEvent::GoesIn { path, .. } => {
                told.insert(path.to_str().unwrap().to_owned());
            }
            SurveyEvent::LeftOut(_) => {}
            SurveyEvent::Unreadable { path, .. } => {
                told.insert(path.to_str().unwrap().to_owned());
            }
        }
        ControlFlow::Continue(())
    })
    .unwrap();
    let found = paths(place, &archived.root);
    assert_eq!(told, found, "the survey and the snapshot");
    assert_eq!(survey.left_out, archived.left_out);
    (found, archived)
}

fn set(paths: &[&str]) -> BTreeSet<String> {
    paths.iter().map(|path| (*path).to_owned()).collect()
}

#[test]
fn large_files_are_left_out_and_counted() {
    let mut place = Place::new();
    place.file("small", "1234");
    place.file("sub/large", "12345");
    place.file("sub/large.o", "1234567");
    place.options.larger_than = Some(4);
    place.options.excludes = varve_content::folder::Excludes::new(&["*.o".to_owned()], &[]).unwrap();
    let (found, archived) = archive(&place);
    assert_eq!(found, set(&["", "small", "sub"]));
    let left_out = archived.left_out;
    assert_eq!(
        (left_out.file_count, left_out.folder_count, left_out.bytes, left_out.notice_count),
        (2, 0, 12, 0)
    );
}

#[test]
fn of_a_marked_folder_only_the_mark_goes_in() {
    let mut place = Place::new();
    for path in ["keep/file", "cache/.nobackup", "cache/deep/file", "alone/.nobackup"] {
        place.file(path, "");
    }
    place.options.if_present = vec![b".nobackup".to_vec()];
    let (found, archived) = archive(&place);
    assert_eq!(
        found,
        set(&["", "alone", "alone/.nobackup", "cache", "cache/.nobackup", "keep", "keep/file"])
    );
    assert_eq!(archived.left_out.folder_count, 1, "nothing is left out of the other");
}

#[test]
fn only_listed_paths_go_in() {
    let mut place = Place::new();
    for path in ["a/b/c", "a/b/d", "a/e", "whole/x/y", "not/z", "file"] {
        place.file(path, path);
    }
    let mut listed = ListedPaths::default();
    for path in ["a/b/c", "whole", "file", "missing/deep", "file/below"] {
        listed.add(Path::new(path)).unwrap();
    }
    place.options.listed = Some(Arc::new(listed));
    let (found, archived) = archive(&place);
    let expected = ["", "a", "a/b", "a/b/c", "file", "missing", "whole", "whole/x", "whole/x/y"];
    assert_eq!(found, set(&expected));
    assert_eq!(archived.counts.problem_count, 1, "what is listed and not there is missing");
    let missing = nodes(&place, &archived.root).into_iter().find(|(path, _)| path == "missing").unwrap().1;
    assert_eq!(missing.problem, Some(NodeProblem::Vanished));
    place.file("missing/deep", "");
    place.file("missing/other", "");
    assert!(archive(&place).0.contains("missing/deep"));
}

#[test]
fn something_listed_below_a_file_is_a_problem() {
    let mut place = Place::new();
    place.file("file", "bytes");
    let mut listed = ListedPaths::default();
    listed.add(Path::new("file/below")).unwrap();
    place.options.listed = Some(Arc::new(listed));
    let (archived, problems) = place.try_archive(None);
    assert_eq!((archived.unwrap().counts.problem_count, problems.len()), (1, 1));
}

/// Mounts these file systems below the source. Returns `None` if that is not possible here.
fn mounted(place: &Place, mounts: &[(&str, &str)]) -> Option<()> {
    if !is_root() {
        eprintln!("skipped as not root: file systems of the kernel");
        return None;
    }
    for (kind, at) in mounts {
        let at = place.source().join(at);
        fs::create_dir_all(&at).unwrap();
        let mounted = Command::new("mount").args(["-t", kind, "none"]).arg(&at).status();
        if !mounted.is_ok_and(|status| status.success()) {
            eprintln!("skipped as {kind} cannot be mounted: file systems of the kernel");
            return None;
        }
    }
    Some(())
}

struct Unmounted<'a>(&'a Place, &'a [(&'a str, &'a str)]);

impl Drop for Unmounted<'_> {
    fn drop(&mut self) {
        for (_, at) in self.1.iter().rev() {
            let _ = Command::new("umount")
                .arg("-l")
                .arg(self.0.source().join(at))
                .stderr(std::process::Stdio::null())
                .status();
        }
    }
}

#[test]
fn what_the_kernel_makes_up_is_left_empty_and_told() {
    let place = Place::new();
    let mounts =
        [("proc", "root/proc"), ("sysfs", "root/sys"), ("tmpfs", "root/tmp"), ("devpts", "root/dev/pts")];
    let _unmounted = Unmounted(&place, &mounts);
    if mounted(&place, &mounts).is_none() {
        return;
    }
    place.file("root/tmp/file", "data");
    let (_, found) = archive(&place);
    let expected =
        ["", "root", "root/dev", "root/dev/pts", "root/proc", "root/sys", "root/tmp", "root/tmp/file"];
    assert_eq!(paths(&place, &found.root), set(&expected));
    assert_eq!(found.counts.problem_count, 0);
    let told: Vec<_> = found
        .left_out
        .notices
        .iter()
        .map(|entry| (entry.path.to_str().unwrap(), entry.reason.clone()))
        .collect();
    assert_eq!(
        told,
        [
            ("root/dev/pts", LeftOutReason::Virtual("devpts")),
            ("root/proc", LeftOutReason::Virtual("proc")),
            ("root/sys", LeftOutReason::Virtual("sysfs")),
        ]
    );
}

/// A virtual file system is archived if it is the source: each file has the bytes that it returns,
/// and no file counts as changed.
#[test]
fn files_that_the_kernel_makes_up_are_what_they_give() {
    let place = Place::new();
    let source = Path::new("/sys/kernel/mm/transparent_hugepage");
    if !source.is_dir() {
        eprintln!("skipped: there is no {}", source.display());
        return;
    }
    let archived = place.try_archive_of(source, None).0.unwrap();
    let found = nodes(&place, &archived.root);
    let enabled = &found.iter().find(|(path, _)| path == "enabled").unwrap().1;
    let bytes = fs::read(source.join("enabled")).unwrap();
    assert_eq!(enabled.size, bytes.len() as u64, "and not 4096");
    let changed = found.iter().filter(|(_, node)| node.problem == Some(NodeProblem::Changed)).count();
    assert_eq!(changed, 0);
    // Files of procfs report a size of 0.
    let source = Path::new("/proc/sys/kernel/random");
    let (archived, problems) = place.try_archive_of(source, None);
    assert!(problems.is_empty(), "{problems:?}");
    let found = nodes(&place, &archived.unwrap().root);
    let pool = &found.iter().find(|(path, _)| path == "poolsize").unwrap().1;
    assert_eq!(fs::metadata(source.join("poolsize")).unwrap().len(), 0);
    assert_eq!(pool.size, fs::read(source.join("poolsize")).unwrap().len() as u64);
    assert!(pool.content.is_some_and(|content| content.size() == pool.size));
}
