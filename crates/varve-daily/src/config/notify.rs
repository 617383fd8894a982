//! `[notify]`: who is told about changes of promises.

use std::net::IpAddr;
use std::path::{Path, PathBuf};

use super::reader::TableReader;
use super::tree::{ItemTable, Located};

/// The server for mail, unless the configuration names one.
const SERVER: &str = "smtp://localhost:25";
const EVENTS: [&str; 3] = ["broken", "mended", "weekly"];

/// `[notify]`
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NotifyConfig {
    pub mail: Option<MailConfig>,
    pub ntfy: Option<PushConfig>,
    pub gotify: Option<PushConfig>,
    pub webhook: Option<PushConfig>,
    /// An address that is called only while every promise is kept.
    pub heartbeat: Option<String>,
    /// A file for Prometheus' node exporter.
    pub metrics_file: Option<PathBuf>,
    /// True if names of archived files and messages of programs may leave the machine.
    pub has_details: bool,
    pub events: NotifyEvents,
}

/// The events that cause a notice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NotifyEvents {
    pub broken: bool,
    pub mended: bool,
    /// A report once a week, whatever happened.
    pub weekly: bool,
}

impl Default for NotifyEvents {
    fn default() -> Self {
        Self { broken: true, mended: true, weekly: false }
    }
}

/// A mail account.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MailConfig {
    pub to: Vec<String>,
    pub from: String,
    /// `smtps://HOST` or `smtp://HOST:PORT`, with `?tls=required` for STARTTLS.
    pub server: String,
    pub user: Option<String>,
    /// The file with the password.
    pub password: Option<PathBuf>,
}

/// An address that is posted to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PushConfig {
    pub url: String,
    /// The file with the token.
    pub token: Option<PathBuf>,
}

impl NotifyConfig {
    /// Reports whether anything waits for the state of promises.
    #[must_use]
    pub fn is_set(&self) -> bool {
        let Self { mail, ntfy, gotify, webhook, heartbeat, metrics_file, .. } = self;
        let pushes = [ntfy, gotify, webhook];
        mail.is_some()
            || pushes.iter().any(|push| push.is_some())
            || heartbeat.is_some()
            || metrics_file.is_some()
    }
}

pub(super) fn read_notify(table: &ItemTable, folder: &Path, above: &mut TableReader<'_>) -> NotifyConfig {
    let mut reader = TableReader::new("notify", table, above.faults());
    let mail = reader.table("mail").and_then(|found| read_mail(&found, folder, &mut reader));
    let push = |key, reader: &mut TableReader<'_>| {
        reader.table(key).and_then(|found| read_push(key, &found, folder, reader))
    };
    let ntfy = push("ntfy", &mut reader);
    let gotify = push("gotify", &mut reader);
    let webhook = push("webhook", &mut reader);
    let heartbeat = reader.parsed("heartbeat", web_address).map(|found| found.value);
    let metrics_file = reader.path("metrics-file", folder).map(|found| found.value);
    let has_details = reader.flag("details").unwrap_or(false);
    let events = read_events(&mut reader);
    reader.finish();
    NotifyConfig { mail, ntfy, gotify, webhook, heartbeat, metrics_file, has_details, events }
}

fn read_events(reader: &mut TableReader<'_>) -> NotifyEvents {
    let Some(Located { place, value: names }) = reader.texts("on") else { return NotifyEvents::default() };
    for name in names.iter().filter(|name| !EVENTS.contains(&name.as_str())) {
        reader.faults().add(&place, format!("on: {name:?} is none of {}", EVENTS.join(", ")));
    }
    let has = |event: &str| names.iter().any(|name| name == event);
    NotifyEvents { broken: has("broken"), mended: has("mended"), weekly: has("weekly") }
}

fn read_mail(found: &Located<&ItemTable>, folder: &Path, above: &mut TableReader<'_>) -> Option<MailConfig> {
    let mut reader = TableReader::new("notify.mail", found.value, above.faults());
    let to = reader.texts("to");
    let from = reader.text("from").map(|from| from.value.to_owned());
    let server = reader.parsed("server", |text| match text.split_once("://") {
        Some(("smtp" | "smtps", _)) => Ok(text.to_owned()),
        _ => Err("write smtps://HOST, or smtp://HOST:PORT?tls=required"),
    });
    let user = reader.text("user").map(|user| user.value.to_owned());
    let password = reader.path("password-file", folder).map(|file| file.value);
    match &to {
        None if !found.value.contains_key("to") => {
            reader.faults().add(&found.place, "notify.mail needs to = [\"NAME@EXAMPLE.ORG\"]");
        }
        Some(to) if to.value.is_empty() || to.value.iter().any(|to| !to.contains('@')) => {
            reader.faults().add(&to.place, "to is a list of mail addresses");
        }
        _ => {}
    }
    let login = server.as_ref().filter(|_| user.is_some() || password.is_some());
    let login = login.or(server.as_ref().filter(|server| has_login(&server.value)));
    if let Some(open) = login.filter(|server| !is_private(&server.value)) {
        let message = "a password would travel unencrypted to another machine: write smtps://HOST, or \
                       smtp://HOST:PORT?tls=required";
        reader.faults().add(&open.place, message);
    }
    reader.finish();
    let to = to?.value;
    let from = from.or_else(|| to.first().cloned())?;
    let server = server.map_or_else(|| SERVER.to_owned(), |server| server.value);
    Some(MailConfig { to, from, server, user, password })
}

/// Splits the address of a server into its login, host and query.
fn server_parts(server: &str) -> (Option<&str>, &str, &str) {
    let rest = server.split_once("://").map_or(server, |(_, rest)| rest);
    let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
    let authority = rest.split('/').next().unwrap_or_default();
    let (login, place) = match authority.rsplit_once('@') {
        Some((login, place)) => (Some(login), place),
        None => (None, authority),
    };
    let host = match place.strip_prefix('[') {
        Some(host) => host.split(']').next().unwrap_or_default(),
        None => place.split(':').next().unwrap_or_default(),
    };
    (login, host, query)
}

fn has_login(server: &str) -> bool {
    server_parts(server).0.is_some()
}

/// Reports whether nobody else can read the conversation with a mail server: it is encrypted in any
/// case, or does not leave the machine. With `tls=opportunistic`, an attacker can prevent
/// encryption.
fn is_private(server: &str) -> bool {
    let (_, host, query) = server_parts(server);
    let is_encrypted = server.starts_with("smtps://") || query.split('&').any(|part| part == "tls=required");
    let is_loopback = host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback());
    is_encrypted || is_loopback || host.eq_ignore_ascii_case("localhost")
}

fn read_push(
    key: &'static str,
    found: &Located<&ItemTable>,
    folder: &Path,
    above: &mut TableReader<'_>,
) -> Option<PushConfig> {
    let mut reader = TableReader::new(format!("notify.{key}"), found.value, above.faults());
    let url = reader.parsed("url", web_address);
    if url.is_none() && !found.value.contains_key("url") {
        reader.faults().add(&found.place, format!("notify.{key} needs url = \"https://HOST/…\""));
    }
    let token = reader.path("token-file", folder).map(|file| file.value);
    reader.finish();
    Some(PushConfig { url: url?.value, token })
}

fn web_address(text: &str) -> Result<String, &'static str> {
    let has_host = |rest: &str| !rest.is_empty() && !rest.starts_with('/');
    match text.split_once("://") {
        Some(("http" | "https", rest)) if has_host(rest) => Ok(text.to_owned()),
        _ => Err("write an address that begins with https:// or http://"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_stays_on_the_machine_or_is_encrypted() {
        for server in [
            "smtps://mail.example.org",
            "smtp://mail.example.org:587?tls=required",
            "smtp://mail.example.org/helo?x=y&tls=required",
            "smtp://localhost:25",
            "smtp://LOCALHOST",
            "smtp://127.0.0.53:25",
            "smtp://[::1]:25",
        ] {
            assert!(is_private(server), "{server}");
        }
        for server in [
            "smtp://mail.example.org",
            "smtp://mail.example.org:587?tls=opportunistic",
            "smtp://localhost.example.org",
            "smtp://localhost@mail.example.org",
            "smtp://[2001:db8::1]:25",
            "smtp://mail.example.org/tls=required",
        ] {
            assert!(!is_private(server), "{server}");
        }
        assert!(has_login("smtp://ann:secret@mail.example.org"));
        assert!(!has_login("smtp://mail.example.org/ann@home"));
    }
}
