//! Moves the clock of a program by whole seconds, or lets it run faster: a small library that is
//! loaded before the others answers for the system. Other clocks go on as they are.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

const LIBRARY: &str = r#"
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <time.h>
typedef int asked(clockid_t, struct timespec *);
int clock_gettime(clockid_t clock, struct timespec *now) {
    static asked *system_clock;
    if (!system_clock) system_clock = (asked *)dlsym(RTLD_NEXT, "clock_gettime");
    int failed = system_clock(clock, now);
    const char *seconds = getenv("MOVED_CLOCK_SECONDS");
    const char *times = getenv("MOVED_CLOCK_TIMES"), *since = getenv("MOVED_CLOCK_SINCE");
    if (failed || clock != CLOCK_REALTIME) return failed;
    if (times && since) now->tv_sec = atoll(since) + (now->tv_sec - atoll(since)) * atoll(times);
    if (seconds) now->tv_sec += atoll(seconds);
    return failed;
}
"#;

/// The library.
pub struct MovedClock(PathBuf);

impl MovedClock {
    /// Makes the library in a folder; `None` if there is no compiler of C.
    pub fn make(folder: &Path) -> Option<Self> {
        let (source, library) = (folder.join("moved_clock.c"), folder.join("moved_clock.so"));
        fs::write(&source, LIBRARY).unwrap();
        let mut command = Command::new("cc");
        command.args(["-shared", "-fPIC", "-O1", "-o"]).arg(&library).arg(&source).arg("-ldl");
        let made = command.output().is_ok_and(|output| output.status.success());
        made.then_some(Self(library))
    }

    /// Moves the clock of a program, and of those that it starts.
    pub fn move_by(&self, command: &mut Command, seconds: i64) {
        command.env("LD_PRELOAD", &self.0).env("MOVED_CLOCK_SECONDS", seconds.to_string());
    }

    /// Lets the clock of a program, and of those that it starts, run so many times as fast from now
    /// on.
    pub fn run_faster(&self, command: &mut Command, times: i64) {
        let now = std::time::UNIX_EPOCH.elapsed().unwrap().as_secs();
        command.env("LD_PRELOAD", &self.0).env("MOVED_CLOCK_SINCE", now.to_string());
        command.env("MOVED_CLOCK_TIMES", times.to_string());
    }
}
