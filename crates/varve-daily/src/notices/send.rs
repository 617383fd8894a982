//! The channels of a configuration, and the sending of a notice through all of them at once.

use std::sync::mpsc;
use std::time::Instant;

use super::limits::PATIENCE;
use super::notice::PromiseNotice;
use super::{mail, web};
use crate::config::{MailConfig, NotifyConfig, PushConfig};

/// A way out of the machine.
#[derive(Debug, Clone)]
pub enum Channel {
    Mail(MailConfig),
    Ntfy(PushConfig),
    Gotify(PushConfig),
    Webhook(PushConfig),
    /// A request without contents.
    Heartbeat(String),
}

/// The result of a channel.
#[derive(Debug)]
pub struct Sent {
    pub channel: &'static str,
    pub result: Result<(), String>,
}

impl Channel {
    /// Returns the name, as in the configuration.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Mail(_) => "mail",
            Self::Ntfy(_) => "ntfy",
            Self::Gotify(_) => "gotify",
            Self::Webhook(_) => "webhook",
            Self::Heartbeat(_) => "heartbeat",
        }
    }

    fn send(&self, notice: &PromiseNotice) -> Result<(), String> {
        match self {
            Self::Mail(config) => mail::send(config, notice),
            Self::Ntfy(config) => web::ntfy(config, notice),
            Self::Gotify(config) => web::gotify(config, notice),
            Self::Webhook(config) => web::webhook(config, notice),
            Self::Heartbeat(url) => web::heartbeat(url),
        }
    }
}

/// Returns the channels for notices. The heartbeat is none of them.
#[must_use]
pub fn channels(config: &NotifyConfig) -> Vec<Channel> {
    let mut all = Vec::new();
    all.extend(config.mail.clone().map(Channel::Mail));
    all.extend(config.ntfy.clone().map(Channel::Ntfy));
    all.extend(config.gotify.clone().map(Channel::Gotify));
    all.extend(config.webhook.clone().map(Channel::Webhook));
    all
}

/// Sends notices through their channels, all at the same time, and waits for at most ten seconds.
#[must_use]
pub fn send(notices: Vec<(Channel, PromiseNotice)>) -> Vec<Sent> {
    let (sender, receiver) = mpsc::channel();
    let mut waiting: Vec<&'static str> = Vec::new();
    for (channel, notice) in notices {
        let sender = sender.clone();
        waiting.push(channel.name());
        // A thread that hangs, as in a look-up of a name, is left to the end of the process.
        #[expect(clippy::disallowed_methods, reason = "this crate is an edge")]
        std::thread::spawn(move || {
            // The receiver is gone once the patience has ended.
            let _ = sender.send(Sent { channel: channel.name(), result: channel.send(&notice) });
        });
    }
    drop(sender);
    let mut all = Vec::new();
    #[expect(clippy::disallowed_methods, reason = "a server is awaited in real time")]
    let until = Instant::now() + PATIENCE;
    #[expect(clippy::disallowed_methods, reason = "a server is awaited in real time")]
    while let Ok(sent) = receiver.recv_timeout(until.saturating_duration_since(Instant::now())) {
        waiting.retain(|name| *name != sent.channel);
        all.push(sent);
    }
    let silent = format!("no answer within {} s", PATIENCE.as_secs());
    all.extend(waiting.into_iter().map(|channel| Sent { channel, result: Err(silent.clone()) }));
    all
}
