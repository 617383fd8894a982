//! Hooks: programs that run around a snapshot, without a shell and with a time limit.

use std::io::Write;
use std::process::Stdio;
use std::time::{Duration, Instant};

use rustix::stdio::stderr;
use serde_json::Value;
use varve_world::{
    EarlyEnd, PROGRAM_GRACE, ProgramGroup, StopSignal, other_program, require_trusted_program,
};

use super::observer::RunObserver;
use crate::config::HookConfig;
use crate::timing::show_time_span;

/// The exit status with which a hook says: not now, but this is no failure.
const NOT_NOW: i32 = 75;
/// The time between two looks at the programs that a hook has left: each reads all of `/proc`.
const LEFT_LOOK: Duration = Duration::from_millis(100);

/// How a hook ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum HookEnd {
    Done,
    /// It asked to leave the job for another time.
    NotNow,
    Failed(String),
}

/// The effect of a signal to this program on a hook.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum OnSignal {
    /// The hook is ended.
    End,
    /// The hook runs to its end, or to its time limit.
    GoOn,
}

/// Runs hooks.
#[derive(Clone, Copy)]
pub(super) struct HookRunner<'a> {
    /// Is told of programs that a hook has left at work.
    pub observer: &'a dyn RunObserver,
    /// The signal to end this program.
    pub stop: &'a StopSignal,
}

impl HookRunner<'_> {
    /// Runs a hook. `outcome` is the value on its standard input.
    pub fn run(
        self,
        hook: &HookConfig,
        environment: &[(&str, &str)],
        outcome: &Value,
        on_signal: OnSignal,
    ) -> HookEnd {
        let Some((program, arguments)) = hook.run.split_first() else { return HookEnd::Done };
        if let Err(error) = require_trusted_program(program) {
            return HookEnd::Failed(error.to_string());
        }
        let mut command = other_program(program);
        command.args(arguments).envs(environment.iter().copied()).stdin(Stdio::piped());
        // Standard output is for the results of this program.
        if let Ok(aside) = stderr().try_clone_to_owned() {
            command.stdout(aside);
        }
        match ProgramGroup::spawn(&mut command) {
            Ok(mut started) => {
                if let Some(mut input) = started.child().stdin.take() {
                    // A hook that does not read its input has no use for it. The text is shorter
                    // than the buffer of a pipe.
                    drop(input.write_all(format!("{outcome}\n").as_bytes()));
                }
                self.wait(&mut started, program, hook.timeout, on_signal)
            }
            Err(error) => HookEnd::Failed(format!("{program} cannot be started: {error}")),
        }
    }

    /// Waits for a hook, and ends all programs that it has started.
    #[expect(clippy::disallowed_methods, reason = "programs in the background end in real time")]
    fn wait(self, hook: &mut ProgramGroup, program: &str, timeout: Duration, on_signal: OnSignal) -> HookEnd {
        let must_end = || on_signal == OnSignal::End && self.stop.is_set();
        let early = hook.end_within(Some(timeout), &must_end);
        // Programs in the background may be about to end by themselves.
        let since = Instant::now();
        while early.is_none()
            && since.elapsed() < PROGRAM_GRACE
            && !must_end()
            && !hook.left_programs().is_empty()
        {
            std::thread::sleep(LEFT_LOOK);
        }
        let left = hook.left_programs();
        if !left.is_empty() {
            if early.is_none() {
                let left = left.join(", ");
                self.observer.warning(&format!(
                    "{program} has left {left} at work in the background, which was ended"
                ));
            }
            hook.end_left_programs();
        }
        match (hook.wait(), early) {
            (_, Some(EarlyEnd::TimeLimit)) => {
                HookEnd::Failed(format!("{program} did not end within {}", show_time_span(timeout)))
            }
            (_, Some(EarlyEnd::Stopped)) => HookEnd::Failed(format!("{program} was interrupted")),
            (Ok(status), None) if status.success() => HookEnd::Done,
            (Ok(status), None) if status.code() == Some(NOT_NOW) => HookEnd::NotNow,
            (Ok(status), None) => HookEnd::Failed(format!("{program} ended with {status}")),
            (Err(error), None) => HookEnd::Failed(format!("{program}: {error}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use serde_json::json;

    use super::*;
    use crate::jobs::DailyJob;
    use crate::running::JobRecord;
    use crate::state::LoggedJob;

    struct Unwatched;

    impl RunObserver for Unwatched {
        fn warning(&self, _: &str) {}

        fn notice(&self, _: &str) {}

        fn postponed(&self, _: &DailyJob<'_>, _: &str) {}

        fn record(&self, _: &JobRecord, _: &Value) {}

        fn ended(&self, _: &DailyJob<'_>, _: &LoggedJob) {}
    }

    fn run(hook: &HookConfig, environment: &[(&str, &str)], outcome: &Value) -> HookEnd {
        let runner = HookRunner { observer: &Unwatched, stop: &StopSignal::default() };
        runner.run(hook, environment, outcome, OnSignal::End)
    }

    fn hook(script: &str, timeout: Duration) -> HookConfig {
        HookConfig { run: ["sh", "-c", script].map(str::to_owned).to_vec(), timeout }
    }

    #[test]
    fn a_hook_gets_its_input_and_its_environment() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("seen");
        let script = format!("read line; echo \"$VARVE_SOURCE $line\" > {}", file.display());
        let hook = hook(&script, Duration::from_secs(60));
        let end = run(&hook, &[("VARVE_SOURCE", "home")], &json!({ "outcome": "done" }));
        assert_eq!(end, HookEnd::Done);
        assert_eq!(fs::read_to_string(&file).unwrap(), "home {\"outcome\":\"done\"}\n");
    }

    #[test]
    fn the_end_of_a_hook_is_told() {
        let end = |script, timeout| run(&hook(script, timeout), &[], &json!({}));
        let minute = Duration::from_secs(60);
        assert_eq!(end("exit 75", minute), HookEnd::NotNow);
        assert_eq!(end("exit 3", minute), HookEnd::Failed("sh ended with exit status: 3".into()));
        assert_eq!(
            end("sleep 60", Duration::from_secs(1)),
            HookEnd::Failed("sh did not end within 1s".into())
        );
        let missing = HookConfig { run: vec!["/no/such/program".into()], timeout: minute };
        assert!(matches!(run(&missing, &[], &json!({})), HookEnd::Failed(_)));
    }

    #[test]
    #[expect(clippy::disallowed_methods, reason = "processes end in real time")]
    fn processes_that_a_hook_leaves_behind_are_ended() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("pid");
        let script = format!("sleep 300 & echo $! > {}", file.display());
        let begun = Instant::now();
        assert_eq!(run(&hook(&script, Duration::from_secs(60)), &[], &json!({})), HookEnd::Done);
        assert!(begun.elapsed() >= PROGRAM_GRACE, "it might have ended by itself");
        let pid = fs::read_to_string(&file).unwrap();
        // It was sent the signal, and may still be about to end.
        let stat = || fs::read_to_string(format!("/proc/{}/stat", pid.trim())).unwrap_or_default();
        let begun = Instant::now();
        while !(stat().is_empty() || stat().contains(") Z ")) {
            assert!(begun.elapsed() < Duration::from_secs(20), "{}", stat());
            std::thread::sleep(LEFT_LOOK);
        }
    }
}
