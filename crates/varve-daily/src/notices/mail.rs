//! Notices by mail.

use lettre::message::Mailbox;
use lettre::message::header::ContentType;
use lettre::transport::smtp::authentication::Credentials;
use lettre::{Message, SmtpTransport, Transport};
use varve_block::with_causes;

use super::limits::EXCHANGE;
use super::notice::PromiseNotice;
use super::secret::secret;
use crate::config::MailConfig;

/// Sends a mail.
pub fn send(config: &MailConfig, notice: &PromiseNotice) -> Result<(), String> {
    let mailbox = |text: &str| text.parse::<Mailbox>().map_err(|error| format!("{text}: {error}"));
    let mut message = Message::builder().from(mailbox(&config.from)?).subject(notice.title.clone());
    for to in &config.to {
        message = message.to(mailbox(to)?);
    }
    let message = message.header(ContentType::TEXT_PLAIN).body(format!("{}\n", notice.text));
    let message = message.map_err(|error| with_causes(&error))?;
    let mut transport = SmtpTransport::from_url(&config.server).map_err(|error| failure(&error))?;
    if let Some(user) = &config.user {
        let password = config.password.as_deref().map(secret).transpose()?.unwrap_or_default();
        transport = transport.credentials(Credentials::new(user.clone(), password));
    }
    let sent = transport.timeout(Some(EXCHANGE)).build().send(&message);
    sent.map(|_| ()).map_err(|error| failure(&error))
}

/// Describes an error of the transport.
fn failure(error: &lettre::transport::smtp::Error) -> String {
    let text = with_causes(error);
    // The library's words for a machine without certificate authorities name no remedy.
    match text.contains("No CA certificates") {
        true => format!("{text}: install ca-certificates"),
        false => text,
    }
}
