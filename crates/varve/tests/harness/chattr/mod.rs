//! File flags that `chattr` sets, in the letters of `lsattr`.
#![allow(dead_code, reason = "each test uses its own part of this")]

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Sets flags (`+iA`) or clears them (`-iA`). Returns false if the file system or this user cannot
/// have them.
pub fn chattr(flags: &str, path: &Path) -> bool {
    let status = Command::new("chattr").arg(flags).arg(path).stderr(Stdio::null()).status();
    status.is_ok_and(|status| status.success())
}

/// Returns the flags of a file, without those that the file system sets for itself.
pub fn letters(path: &Path) -> String {
    let output = Command::new("lsattr").arg("-d").arg(path).output().unwrap();
    of_line(&String::from_utf8_lossy(&output.stdout)).0
}

/// Returns a line of `lsattr` for each entry with flags below a folder, without the folder's path.
pub fn letters_below(folder: &Path) -> Vec<String> {
    let output = Command::new("lsattr").args(["-R", "-a", "."]).current_dir(folder).output();
    let text = output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default();
    let flagged = text.lines().map(of_line).filter(|(flags, _)| !flags.is_empty());
    let mut lines: Vec<_> = flagged.map(|(flags, path)| format!("{flags} {path}")).collect();
    lines.sort();
    lines
}

fn of_line(line: &str) -> (String, &str) {
    let (flags, path) = line.split_once(' ').unwrap_or_default();
    (flags.chars().filter(|letter| !matches!(letter, '-' | 'e' | 'I' | 'N' | 'V')).collect(), path)
}

/// Clears the immutable and append-only flags on drop, even if the test fails. Otherwise nobody
/// could remove its folder.
pub struct Unlocked(pub PathBuf);

impl Drop for Unlocked {
    fn drop(&mut self) {
        let _ = Command::new("chattr").args(["-R", "-f", "-ia"]).arg(&self.0).stderr(Stdio::null()).status();
    }
}
