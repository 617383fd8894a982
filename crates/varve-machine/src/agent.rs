//! The QEMU guest agent: a program inside the guest that can freeze its file systems for a moment.

use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};
use varve_block::visible;

use crate::edge::Deadline;
use crate::json_lines::{JsonLines, LineError};

/// The reason why the guest's file systems were not frozen.
#[derive(Debug, thiserror::Error)]
pub enum AgentError {
    /// There was no valid answer.
    #[error("the guest agent does not answer {command}")]
    Line { command: String, source: LineError },
    /// The agent refused the command.
    #[error("the guest agent refused {command}: {said}")]
    Refused {
        command: String,
        /// The reason that it gives.
        said: String,
    },
}

/// A connection to the guest agent of a machine.
pub struct Agent {
    lines: JsonLines,
    patience: Duration,
}

/// A guest with frozen file systems. They are thawed when this is dropped.
pub struct FrozenGuest<'a> {
    agent: &'a mut Agent,
    is_thawed: bool,
}

impl Agent {
    /// Connects, and checks that the agent answers. Thaws a guest that a killed run has left
    /// frozen.
    ///
    /// # Errors
    /// [`AgentError`].
    pub fn connect(path: &Path, patience: Duration) -> Result<Self, AgentError> {
        let command = "guest-sync-delimited";
        let lines = JsonLines::connect(path)
            .map_err(|source| AgentError::Line { command: command.into(), source })?;
        let mut agent = Self { lines, patience };
        // The answer with this number follows everything that an earlier client has left unread.
        let number = u64::from(std::process::id());
        agent.send(command, &json!({ "id": number }), b"\xff")?;
        let deadline = Deadline::after(patience);
        loop {
            let answer = agent.receive(command, deadline);
            match answer {
                Ok(answer) if answer["return"].as_u64() == Some(number) => break,
                Ok(_) => {}
                // The rest of a line that was addressed to an earlier client.
                Err(AgentError::Line { source: LineError::Nonsense { .. }, .. }) => {}
                Err(error) => return Err(error),
            }
        }
        if agent.ask("guest-fsfreeze-status")?.as_str() == Some("frozen") {
            tracing::warn!("the guest was still frozen from an earlier run: it is thawed now");
            agent.ask("guest-fsfreeze-thaw")?;
        }
        Ok(agent)
    }

    /// Freezes the guest's file systems.
    ///
    /// # Errors
    /// [`AgentError`]; the guest is thawed.
    pub(crate) fn freeze(&mut self) -> Result<FrozenGuest<'_>, AgentError> {
        // Made before the command: an agent that gives no answer may have frozen the guest all the
        // same.
        let mut frozen = FrozenGuest { agent: self, is_thawed: false };
        frozen.agent.ask("guest-fsfreeze-freeze")?;
        let _ = &mut frozen;
        Ok(frozen)
    }

    fn ask(&mut self, command: &str) -> Result<Value, AgentError> {
        self.send(command, &json!({}), &[])?;
        let mut answer = self.receive(command, Deadline::after(self.patience))?;
        if let Some(error) = answer.get("error") {
            let said = visible(error["desc"].as_str().unwrap_or("it gives no reason"));
            return Err(AgentError::Refused { command: command.into(), said });
        }
        Ok(answer["return"].take())
    }

    fn send(&mut self, command: &str, arguments: &Value, before: &[u8]) -> Result<(), AgentError> {
        let line = json!({ "execute": command, "arguments": arguments });
        let sent = self.lines.send(before, &[line], None, self.patience);
        sent.map_err(|source| AgentError::Line { command: command.into(), source })
    }

    fn receive(&mut self, command: &str, deadline: Deadline) -> Result<Value, AgentError> {
        let received = self.lines.receive(deadline, self.patience);
        received.map_err(|source| AgentError::Line { command: command.into(), source })
    }
}

impl FrozenGuest<'_> {
    /// Thaws the guest.
    ///
    /// # Errors
    /// [`AgentError`]: it may still be frozen.
    pub(crate) fn thaw(mut self) -> Result<(), AgentError> {
        self.is_thawed = true;
        // The command is repeated once if it fails: a frozen guest is the worst state to leave
        // behind.
        self.agent.ask("guest-fsfreeze-thaw").or_else(|_| self.agent.ask("guest-fsfreeze-thaw")).map(drop)
    }
}

impl Drop for FrozenGuest<'_> {
    fn drop(&mut self) {
        if self.is_thawed {
            return;
        }
        if let Err(error) = self.agent.ask("guest-fsfreeze-thaw") {
            tracing::warn!(%error, "the guest may still be frozen: run guest-fsfreeze-thaw through its agent");
        }
    }
}
