//! Hooks: programs that run around a snapshot, without a shell and with a time limit.

use std::io::{self, Write};
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};
use serde_json::Value;
use varve_watch::{HookConfig, show_time_span};

use crate::signals;

/// The exit status with which a hook says: not now, but this is no failure.
const NOT_NOW: i32 = 75;
const LOOK: Duration = Duration::from_millis(10);
/// The time between the request to end and the end by force.
const GRACE: Duration = Duration::from_secs(5);

/// How a hook ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HookEnd {
    Done,
    /// It asked to leave the job for another time.
    NotNow,
    Failed(String),
}

/// The effect of a signal to this program on a hook.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnSignal {
    /// The hook is ended.
    End,
    /// The hook runs to its end, or to its time limit.
    GoOn,
}

/// Runs a hook. `outcome` is the value on its standard input.
pub fn run(hook: &HookConfig, environment: &[(&str, &str)], outcome: &Value, on_signal: OnSignal) -> HookEnd {
    let Some((program, arguments)) = hook.run.split_first() else { return HookEnd::Done };
    let mut command = Command::new(program);
    command.args(arguments).envs(environment.iter().copied()).stdin(Stdio::piped()).process_group(0);
    for secret in super::secret_variables::SECRETS {
        command.env_remove(secret);
    }
    // Standard output is for the results of this program.
    if let Ok(aside) = io::stderr().as_fd().try_clone_to_owned() {
        command.stdout(aside);
    }
    match command.spawn() {
        Ok(mut child) => {
            if let Some(mut input) = child.stdin.take() {
                // A hook that does not read its input has no use for it. The text is shorter than
                // the buffer of a pipe.
                drop(input.write_all(format!("{outcome}\n").as_bytes()));
            }
            wait(&mut child, program, hook.timeout, on_signal)
        }
        Err(error) => HookEnd::Failed(format!("{program} cannot be started: {error}")),
    }
}

/// Waits for a hook, and ends all processes of its group.
#[expect(clippy::disallowed_methods, reason = "a hook has a time limit in real time")]
fn wait(child: &mut Child, program: &str, timeout: Duration, on_signal: OnSignal) -> HookEnd {
    let begun = Instant::now();
    let mut asked = None;
    let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    let mut reason = None;
    // The process is not reaped before its group is ended: until then, no other group has its id.
    while !pid.is_none_or(has_ended) {
        let is_over = begun.elapsed() >= timeout;
        let is_signalled = on_signal == OnSignal::End && signals::was_signalled();
        if asked.is_none() && (is_over || is_signalled) {
            asked = Some(Instant::now());
            reason = Some(match is_over {
                true => format!("{program} did not end within {}", show_time_span(timeout)),
                false => format!("{program} was interrupted"),
            });
            end_group(pid, Signal::TERM);
        }
        if asked.is_some_and(|asked| asked.elapsed() >= GRACE) {
            end_group(pid, Signal::KILL);
        }
        std::thread::sleep(LOOK);
    }
    end_group(pid, Signal::KILL);
    match (child.wait(), reason) {
        (_, Some(reason)) => HookEnd::Failed(reason),
        (Ok(status), None) if status.success() => HookEnd::Done,
        (Ok(status), None) if status.code() == Some(NOT_NOW) => HookEnd::NotNow,
        (Ok(status), None) => HookEnd::Failed(format!("{program} ended with {status}")),
        (Err(error), None) => HookEnd::Failed(format!("{program}: {error}")),
    }
}

/// Reports whether a child has ended, and leaves it to be waited for.
fn has_ended(pid: Pid) -> bool {
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    !matches!(waitid(WaitId::Pid(pid), options), Ok(None))
}

fn end_group(pid: Option<Pid>, signal: Signal) {
    if let Some(pid) = pid {
        // The group may have ended by itself.
        let _ = kill_process_group(pid, signal);
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use serde_json::json;

    use super::*;

    fn hook(script: &str, timeout: Duration) -> HookConfig {
        HookConfig { run: ["sh", "-c", script].map(str::to_owned).to_vec(), timeout }
    }

    #[test]
    fn a_hook_gets_its_input_and_its_environment() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("seen");
        let script = format!("read line; echo \"$VARVE_SOURCE $line\" > {}", file.display());
        let end = run(
            &hook(&script, Duration::from_secs(60)),
            &[("VARVE_SOURCE", "home")],
            &json!({ "outcome": "done" }),
            OnSignal::End,
        );
        assert_eq!(end, HookEnd::Done);
        assert_eq!(fs::read_to_string(&file).unwrap(), "home {\"outcome\":\"done\"}\n");
    }

    #[test]
    fn the_end_of_a_hook_is_told() {
        let run = |script, timeout| run(&hook(script, timeout), &[], &json!({}), OnSignal::End);
        let minute = Duration::from_secs(60);
        assert_eq!(run("exit 75", minute), HookEnd::NotNow);
        assert_eq!(run("exit 3", minute), HookEnd::Failed("sh ended with exit status: 3".into()));
        assert_eq!(
            run("sleep 60", Duration::from_secs(1)),
            HookEnd::Failed("sh did not end within 1s".into())
        );
        let missing = HookConfig { run: vec!["/no/such/program".into()], timeout: minute };
        assert!(matches!(super::run(&missing, &[], &json!({}), OnSignal::End), HookEnd::Failed(_)));
    }

    #[test]
    #[expect(clippy::disallowed_methods, reason = "processes end in real time")]
    fn processes_that_a_hook_leaves_behind_are_ended() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("pid");
        let script = format!("sleep 300 & echo $! > {}", file.display());
        assert_eq!(
            run(&hook(&script, Duration::from_secs(60)), &[], &json!({}), OnSignal::End),
            HookEnd::Done
        );
        let pid = fs::read_to_string(&file).unwrap();
        // It was sent the signal, and may still be about to end.
        let stat = || fs::read_to_string(format!("/proc/{}/stat", pid.trim())).unwrap_or_default();
        let begun = Instant::now();
        while !(stat().is_empty() || stat().contains(") Z ")) {
            assert!(begun.elapsed() < Duration::from_secs(20), "{}", stat());
            std::thread::sleep(LOOK);
        }
    }
}
