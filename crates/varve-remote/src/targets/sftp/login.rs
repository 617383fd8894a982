//! Login at an SSH server, and the check of its key.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;
use russh::client::{self, AuthResult, Handle, KeyboardInteractiveAuthResponse};
use russh::keys::agent::AgentIdentity;
use russh::keys::agent::client::AgentClient;
use russh::keys::{Algorithm, PrivateKeyWithHashAlg, PublicKeyBase64, PublicKeyOrCertificate};

use tokio::sync::watch;

use super::known_hosts::{KeyStanding, KnownKeys};
use crate::attempt_error::{AttemptError, chain};
use crate::naming::location::HostLocation;
use crate::naming::password::Password;
use crate::open_options::{OpenOptions, UnknownHosts};
use crate::retry::retrying_target::RetryPolicy;

/// The default files of a private key, as `ssh` has them.
const IDENTITY_FILES: [&str; 2] = ["id_ed25519", "id_ecdsa"];

/// The most rounds of questions from a server. It asks once for a password.
const QUESTION_COUNT_MAX: usize = 4;

/// Returns the system's name of the current user, as ssh does. A service has no `USER` variable.
fn current_user() -> Option<String> {
    name_of(rustix::process::geteuid().as_raw(), &std::fs::read_to_string("/etc/passwd").ok()?)
}

/// Finds the name of a user in the text of `/etc/passwd`.
fn name_of(uid: u32, users: &str) -> Option<String> {
    users.lines().find_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next().filter(|name| !name.is_empty())?;
        (fields.nth(1)?.parse() == Ok(uid)).then(|| name.to_owned())
    })
}

/// The server, the user and the credentials.
pub(crate) struct Login {
    host: String,
    port: u16,
    user: String,
    password: Option<Password>,
    identity_file: Option<PathBuf>,
    agent: Option<PathBuf>,
    home: Option<PathBuf>,
    known_hosts: Option<PathBuf>,
    unknown_hosts: UnknownHosts,
    patience: RetryPolicy,
}

impl Login {
    pub fn new(place: &HostLocation, options: &OpenOptions) -> io::Result<Self> {
        let named = || std::env::var("USER").ok().filter(|user| !user.is_empty());
        let user = place.user.clone().or_else(named).or_else(current_user);
        let user = user.ok_or_else(|| {
            io::Error::other("the user to log in as is unknown: write sftp://USER@HOST/PATH")
        })?;
        let ssh = options.home.as_ref().map(|home| home.join(".ssh"));
        Ok(Self {
            host: place.host.trim_matches(['[', ']']).to_owned(),
            port: place.port.unwrap_or(22),
            user,
            password: place.password.clone().or_else(|| options.password.clone()),
            identity_file: options.identity_file.clone(),
            agent: options.agent.clone(),
            home: ssh.clone(),
            known_hosts: options.known_hosts.clone().or_else(|| ssh.map(|ssh| ssh.join("known_hosts"))),
            unknown_hosts: options.unknown_hosts,
            patience: options.patience,
        })
    }

    /// Connects to the server, checks its key and logs in.
    ///
    /// `alive` is dropped when the connection has ended, for any reason.
    pub async fn connect(&self, alive: watch::Sender<()>) -> Result<Handle<HostKeyCheck>, AttemptError> {
        let known = self.known()?;
        let mut config = client::Config { nodelay: true, ..client::Config::default() };
        config.keepalive_interval = Some(self.patience.silence_max / 3);
        config.inactivity_timeout = None;
        prefer(&mut config, &known.kinds());
        let objection = Arc::new(Mutex::new(None));
        let doorkeeper = HostKeyCheck {
            known,
            unknown_hosts: self.unknown_hosts,
            objection: Arc::clone(&objection),
            _alive: alive,
        };
        let connected = client::connect(Arc::new(config), (self.host.as_str(), self.port), doorkeeper).await;
        let mut handle = connected.map_err(|error| match objection.lock().take() {
            Some(objection) => AttemptError::refused(format!("{}: {objection}", self.host)),
            None => of_ssh(&error),
        })?;
        self.be_let_in(&mut handle).await?;
        Ok(handle)
    }

    fn known(&self) -> Result<KnownKeys, AttemptError> {
        let Some(path) = &self.known_hosts else { return Ok(KnownKeys::default()) };
        match std::fs::read(path) {
            Ok(file) => Ok(KnownKeys::read(&String::from_utf8_lossy(&file), &self.host, self.port)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(KnownKeys::default()),
            Err(error) => Err(AttemptError::refused(format!("{}: {error}", path.display()))),
        }
    }

    /// Offers credentials in this order: the named key, the agent's keys, the default keys, the
    /// password.
    async fn be_let_in(&self, handle: &mut Handle<HostKeyCheck>) -> Result<(), AttemptError> {
        let mut offered = Vec::new();
        if let Some(path) = &self.identity_file
            && self.offer_file(handle, path, &mut offered).await?
        {
            return Ok(());
        }
        if let Some(agent) = &self.agent
            && self.identity_file.is_none()
            && self.offer_agent(handle, agent, &mut offered).await?
        {
            return Ok(());
        }
        if let (Some(ssh), None) = (&self.home, &self.identity_file) {
            for path in IDENTITY_FILES.map(|name| ssh.join(name)) {
                if path.is_file() && self.offer_file(handle, &path, &mut offered).await? {
                    return Ok(());
                }
            }
        }
        if let Some(password) = &self.password
            && self.offer_password(handle, password, &mut offered).await?
        {
            return Ok(());
        }
        let offered = if offered.is_empty() { "nothing".into() } else { offered.join(", ") };
        let text = format!("{} refused the login of {}; offered: {offered}", self.host, self.user);
        Err(if handle.is_closed() { AttemptError::passing(text) } else { AttemptError::refused(text) })
    }

    async fn offer_file(
        &self,
        handle: &mut Handle<HostKeyCheck>,
        path: &Path,
        offered: &mut Vec<String>,
    ) -> Result<bool, AttemptError> {
        let passphrase = self.password.as_ref().map(Password::reveal);
        let key = match russh::keys::load_secret_key(path, passphrase) {
            Ok(key) => key,
            // Without a named key, another key may be the right one.
            Err(error) if self.identity_file.is_none() => {
                offered.push(format!("{} (cannot be used: {error})", path.display()));
                return Ok(false);
            }
            Err(error) => return Err(AttemptError::refused(format!("{}: {error}", path.display()))),
        };
        offered.push(path.display().to_string());
        let key = PrivateKeyWithHashAlg::new(Arc::new(key), None);
        let outcome = handle.authenticate_publickey(&self.user, key).await;
        Ok(outcome.map_err(|error| of_ssh(&error))?.success())
    }

    async fn offer_agent(
        &self,
        handle: &mut Handle<HostKeyCheck>,
        socket: &Path,
        offered: &mut Vec<String>,
    ) -> Result<bool, AttemptError> {
        let asked = async {
            let mut agent = AgentClient::connect_uds(socket).await?;
            let identities = agent.request_identities().await?;
            Ok::<_, russh::keys::Error>((agent, identities))
        };
        let (mut agent, identities) = match asked.await {
            Ok(answered) => answered,
            Err(error) => {
                offered.push(format!("the agent (not available: {error})"));
                return Ok(false);
            }
        };
        for identity in identities {
            let AgentIdentity::PublicKey { key, comment } = identity else { continue };
            if matches!(key.algorithm(), Algorithm::Rsa { .. }) {
                continue;
            }
            offered.push(format!("the agent's {comment:?}"));
            match handle.authenticate_publickey_with(&self.user, key, None, &mut agent).await {
                Ok(AuthResult::Success) => return Ok(true),
                Ok(AuthResult::Failure { .. }) => {}
                Err(error) => offered.push(format!("(the agent did not sign: {error})")),
            }
        }
        Ok(false)
    }

    async fn offer_password(
        &self,
        handle: &mut Handle<HostKeyCheck>,
        password: &Password,
        offered: &mut Vec<String>,
    ) -> Result<bool, AttemptError> {
        offered.push("the password".into());
        let outcome = handle.authenticate_password(&self.user, password.reveal()).await;
        if outcome.map_err(|error| of_ssh(&error))?.success() {
            return Ok(true);
        }
        // Some servers ask for the password as a keyboard-interactive question.
        let started = handle.authenticate_keyboard_interactive_start(&self.user, None).await;
        let mut state = started.map_err(|error| of_ssh(&error))?;
        for _ in 0..QUESTION_COUNT_MAX {
            let questions = match state {
                KeyboardInteractiveAuthResponse::Success => return Ok(true),
                KeyboardInteractiveAuthResponse::Failure { .. } => return Ok(false),
                KeyboardInteractiveAuthResponse::InfoRequest { prompts, .. } => prompts.len(),
            };
            if questions > 1 {
                return Ok(false);
            }
            let answers = vec![password.reveal().to_owned(); questions];
            let answered = handle.authenticate_keyboard_interactive_respond(answers).await;
            state = answered.map_err(|error| of_ssh(&error))?;
        }
        Ok(false)
    }
}

/// Puts the kinds of the server's known keys first.
fn prefer(config: &mut client::Config, kinds: &[String]) {
    let mut algorithms = config.preferred.key.to_vec();
    algorithms.sort_by_key(|algorithm| !kinds.iter().any(|kind| kind == algorithm.as_str()));
    config.preferred.key = algorithms.into();
}

/// Checks the server's key.
pub(crate) struct HostKeyCheck {
    known: KnownKeys,
    unknown_hosts: UnknownHosts,
    objection: Arc<Mutex<Option<String>>>,
    _alive: watch::Sender<()>,
}

impl client::Handler for HostKeyCheck {
    type Error = russh::Error;

    async fn check_server_key(&mut self, shown: &PublicKeyOrCertificate) -> Result<bool, russh::Error> {
        let PublicKeyOrCertificate::PublicKey { key, .. } = shown else { return Ok(false) };
        let fingerprint = key.fingerprint(russh::keys::HashAlg::Sha256);
        let objection = match (self.known.standing(&key.public_key_bytes()), self.unknown_hosts) {
            (KeyStanding::Known, _) | (KeyStanding::Unknown, UnknownHosts::Accept) => return Ok(true),
            (KeyStanding::Unknown, UnknownHosts::Refuse) => format!(
                "its key {fingerprint} is not among the known hosts: make sure that it is the server's key, and add it (ssh-keyscan)"
            ),
            (KeyStanding::Changed, _) => {
                format!(
                    "its key {fingerprint} differs from the known one: it may be another server than you mean"
                )
            }
            (KeyStanding::Revoked, _) => format!("its key {fingerprint} was revoked"),
        };
        *self.objection.lock() = Some(objection);
        Ok(false)
    }
}

/// Converts an error of the library. Errors that no retry can change are refusals.
pub(crate) fn of_ssh(error: &russh::Error) -> AttemptError {
    match error {
        russh::Error::NoCommonAlgo { .. } => AttemptError::Refused(chain(error)),
        _ => AttemptError::Passing(chain(error), None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_is_found_by_number() {
        let users =
            "root:x:0:0:root:/root:/bin/sh\n\n:x:5:\nbroken\nann:x:1000:1000::/home/ann:\nbob:x:1000:1:::\n";
        for (uid, name) in [(0, Some("root")), (1000, Some("ann")), (5, None), (7, None)] {
            assert_eq!(name_of(uid, users).as_deref(), name, "{uid}");
        }
    }
}
