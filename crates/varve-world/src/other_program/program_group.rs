//! Other programs that this one starts, such as hooks. Each is the leader of a process group of its
//! own, so it is ended with all programs that it has started.

use std::fs;
use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{
    Pid, PidfdFlags, Signal, WaitId, WaitIdOptions, getpgrp, kill_process, kill_process_group, pidfd_open,
    waitid,
};
use rustix::termios::tcgetpgrp;

/// The time between the request to end and the end by force.
pub const PROGRAM_GRACE: Duration = Duration::from_secs(5);
/// The time between two looks at programs whose end wakes nobody.
const LOOK: Duration = Duration::from_millis(10);
/// The time between two looks whether a program must end.
const STOP_LOOK: Duration = Duration::from_millis(50);
const WAIT_STEP: Duration = Duration::from_secs(60);
/// The groups of all programs that run, in case this program ends at once.
static GROUPS: Mutex<Vec<Pid>> = Mutex::new(Vec::new());

/// Sends a signal to the groups of all programs that run. Returns whether there are any.
pub fn signal_program_groups(signal: Signal) -> bool {
    let groups = GROUPS.lock();
    for group in groups.iter() {
        // It may have ended by itself.
        let _ = kill_process_group(*group, signal);
    }
    !groups.is_empty()
}

/// Why a program was ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EarlyEnd {
    TimeLimit,
    /// Its caller had to end it.
    Stopped,
}

/// A running program with its process group. It is ended by force if it is dropped before it was
/// waited for, and by [`signal_program_groups`].
pub struct ProgramGroup {
    child: Child,
    pid: Option<Pid>,
    has_own_group: bool,
    is_waited_for: bool,
}

impl ProgramGroup {
    /// Starts a program in a process group of its own.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn spawn(command: &mut Command) -> io::Result<Self> {
        command.process_group(0);
        Self::start(command, true)
    }

    /// Starts a program, at a terminal in the process group of this one: only programs of the
    /// foreground may ask for a password there.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn spawn_with_terminal(command: &mut Command) -> io::Result<Self> {
        if is_in_foreground() { Self::start(command, false) } else { Self::spawn(command) }
    }

    fn start(command: &mut Command, has_own_group: bool) -> io::Result<Self> {
        let child = command.spawn()?;
        let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
        if let Some(pid) = pid.filter(|_| has_own_group) {
            GROUPS.lock().push(pid);
        }
        Ok(Self { child, pid, has_own_group, is_waited_for: false })
    }

    /// Returns the program, for its input and output.
    pub fn child(&mut self) -> &mut Child {
        &mut self.child
    }

    /// Reports whether the program has ended. It is not waited for yet, so no other process and no
    /// other group has its id.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        self.pid.is_none_or(|pid| !matches!(waitid(WaitId::Pid(pid), options), Ok(None)))
    }

    /// Waits for the end of the program, for at most `time`. Returns whether it has ended.
    pub fn wait_for(&self, time: Duration) -> bool {
        let Some(pid) = self.pid else { return true };
        match (pidfd_open(pid, PidfdFlags::empty()), Timespec::try_from(time)) {
            (Ok(end), Ok(time)) => {
                // It may be interrupted: then it was one more look for the caller.
                let _ = poll(&mut [PollFd::new(&end, PollFlags::IN)], Some(&time));
            }
            // Linux before 5.3, or no descriptors are left.
            _ => pause(time.min(LOOK)),
        }
        self.has_ended()
    }

    /// Waits for the end of the program, and ends it after `time_limit`, or when `must_end` returns
    /// true. It is asked to end first, and ended by force after [`PROGRAM_GRACE`]. Returns the
    /// reason if it was ended early. [`wait`](Self::wait) then returns its status.
    #[expect(clippy::disallowed_methods, reason = "programs end in real time")]
    pub fn end_within(&self, time_limit: Option<Duration>, must_end: &dyn Fn() -> bool) -> Option<EarlyEnd> {
        let begun = Instant::now();
        let mut early: Option<(Instant, EarlyEnd)> = None;
        while !self.wait_for(STOP_LOOK) {
            match early {
                Some((asked, _)) if asked.elapsed() >= PROGRAM_GRACE => self.signal(Signal::KILL),
                Some(_) => {}
                None => {
                    let is_late = time_limit.is_some_and(|limit| begun.elapsed() >= limit);
                    let reason = is_late.then_some(EarlyEnd::TimeLimit);
                    if let Some(reason) = reason.or_else(|| must_end().then_some(EarlyEnd::Stopped)) {
                        early = Some((Instant::now(), reason));
                        self.signal(Signal::TERM);
                    }
                }
            }
        }
        early.map(|(_, reason)| reason)
    }

    /// Sends a signal to all programs of the group.
    pub fn signal(&self, signal: Signal) {
        // They may have ended by themselves.
        let _ = match self.pid {
            None => Ok(()),
            Some(pid) if self.has_own_group => kill_process_group(pid, signal),
            Some(pid) => kill_process(pid, signal),
        };
    }

    /// Returns the names of the programs of the group that are still at work, besides the leader.
    #[must_use]
    pub fn left_programs(&self) -> Vec<String> {
        match self.pid.filter(|_| self.has_own_group) {
            Some(pid) => group_members(pid),
            None => Vec::new(),
        }
    }

    /// Ends the programs that the leader has left behind, and waits a moment for their end.
    #[expect(clippy::disallowed_methods, reason = "programs end in real time")]
    pub fn end_left_programs(&self) {
        self.signal(Signal::TERM);
        let begun = Instant::now();
        while begun.elapsed() < PROGRAM_GRACE && !self.left_programs().is_empty() {
            std::thread::sleep(LOOK);
        }
        self.signal(Signal::KILL);
    }

    /// Waits for the end of the program.
    ///
    /// # Errors
    /// When the system cannot tell it.
    pub fn wait(&mut self) -> io::Result<ExitStatus> {
        // After the wait, another group may have the id.
        while !self.wait_for(WAIT_STEP) {}
        if let Some(pid) = self.pid.filter(|_| self.has_own_group && !self.is_waited_for) {
            GROUPS.lock().retain(|one| *one != pid);
        }
        self.is_waited_for = true;
        self.child.wait()
    }
}

impl Drop for ProgramGroup {
    fn drop(&mut self) {
        if !self.is_waited_for {
            self.signal(Signal::KILL);
            // If the wait fails, nothing more can be done.
            let _ = self.wait();
        }
    }
}

#[expect(clippy::disallowed_methods, reason = "programs end in real time")]
fn pause(time: Duration) {
    std::thread::sleep(time);
}

/// Reports whether this program may read from its terminal.
fn is_in_foreground() -> bool {
    let terminal = fs::File::open("/dev/tty");
    terminal.is_ok_and(|terminal| tcgetpgrp(&terminal).is_ok_and(|group| group == getpgrp()))
}

/// Returns the names of the living processes of a group, without its leader. Without `/proc` there
/// are none.
fn group_members(group: Pid) -> Vec<String> {
    let mut names = Vec::new();
    for process in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let is_process = process.file_name().to_string_lossy().bytes().all(|byte| byte.is_ascii_digit());
        if !is_process {
            continue;
        }
        // It may have ended meanwhile.
        let Ok(stat) = fs::read(process.path().join("stat")) else { continue };
        names.extend(member(&String::from_utf8_lossy(&stat), group.as_raw_nonzero().get()));
    }
    names.sort();
    names.dedup();
    names
}

/// Returns the name of the process with this `/proc/PID/stat`, if it lives in the group and is not
/// its leader. The name may contain any character, so fields are counted behind its last bracket.
fn member(stat: &str, group: i32) -> Option<String> {
    let (head, fields) = stat.rsplit_once(')')?;
    let (pid, name) = head.split_once(" (")?;
    let mut fields = fields.split_ascii_whitespace();
    let (state, group_of) = (fields.next()?, fields.nth(1)?);
    let is_member = group_of.parse() == Ok(group) && pid.parse() != Ok(group);
    (is_member && !matches!(state, "Z" | "X")).then(|| name.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_of_a_group_are_living_processes_besides_its_leader() {
        assert_eq!(member("12 (a) b) S 1 7 7 0", 7).as_deref(), Some("a) b"));
        for stat in ["7 (sh) S 1 7 7 0", "12 (sh) Z 1 7 7 0", "12 (sh) S 1 8 7 0", "12 (sh", ""] {
            assert_eq!(member(stat, 7), None, "{stat}");
        }
    }

    #[test]
    fn the_programs_of_a_group_end_with_it() {
        let mut command = Command::new("sh");
        command.args(["-c", "sleep 300 & sleep 300 & exit 3"]);
        let mut group = ProgramGroup::spawn(&mut command).unwrap();
        // A shell that has not become the program yet has its own name.
        wait_until(|| group.has_ended() && group.left_programs() == ["sleep"]);
        group.end_left_programs();
        assert!(group.left_programs().is_empty());
        assert_eq!(group.wait().unwrap().code(), Some(3));
        let mut left = Command::new("sh");
        left.args(["-c", "sleep 300 & exec sleep 300"]);
        let pid = ProgramGroup::spawn(&mut left).unwrap().pid.unwrap();
        // The group was dropped. Its processes were sent the signal, and may still be about to end.
        wait_until(|| group_members(pid).is_empty());
    }

    #[test]
    fn a_program_ends_within_its_limits() {
        let start = |script: &str| ProgramGroup::spawn(Command::new("sh").args(["-c", script])).unwrap();
        let mut group = start("exit 7");
        assert_eq!(group.end_within(Some(Duration::from_secs(60)), &|| false), None);
        assert_eq!(group.wait().unwrap().code(), Some(7));
        let mut group = start("exec sleep 300");
        assert_eq!(group.end_within(Some(Duration::ZERO), &|| false), Some(EarlyEnd::TimeLimit));
        assert_eq!(group.wait().unwrap().code(), None);
        assert_eq!(start("exec sleep 300").end_within(None, &|| true), Some(EarlyEnd::Stopped));
    }

    #[test]
    #[expect(clippy::disallowed_methods, reason = "programs end in real time")]
    fn the_end_of_a_program_wakes_who_waits() {
        let begun = Instant::now();
        let group = ProgramGroup::spawn(Command::new("sh").args(["-c", "sleep 0.1"])).unwrap();
        while !group.wait_for(Duration::from_secs(60)) {}
        assert!(begun.elapsed() < Duration::from_secs(30));
    }

    #[track_caller]
    #[expect(clippy::disallowed_methods, reason = "programs end in real time")]
    fn wait_until(until: impl Fn() -> bool) {
        let begun = Instant::now();
        while !until() {
            assert!(begun.elapsed() < Duration::from_secs(20));
            pause(LOOK);
        }
    }
}
