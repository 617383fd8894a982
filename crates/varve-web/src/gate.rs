//! Decides which requests are answered.
//!
//! ```text
//! request ─▶ host ─▶ path ─▶ method ─▶ origin (POST) ─▶ session ─▶ the site
//!             421     404      405        403            303 to the login
//! ```
//!
//! The host protects against DNS rebinding, the origin and the tokens against requests that other
//! sites make a browser send.

pub(crate) mod cookies;
pub(crate) mod headers;
pub(crate) mod host_names;
pub(crate) mod logins;
pub(crate) mod origin;
pub(crate) mod password;
pub(crate) mod secret;
pub(crate) mod sessions;

use std::sync::Arc;

use axum::body::Body;
use axum::http::{HeaderMap, Method, Request, StatusCode};
use tokio::time::Instant;
use varve_world::Random;

use crate::show;
use host_names::HostNames;
use logins::LoginLinks;
use password::PasswordLogin;
use secret::LoginSecret;
use sessions::{Session, Sessions};

/// The state that decides about requests.
pub(crate) struct Gate {
    pub(crate) hosts: HostNames,
    pub(crate) sessions: Sessions,
    pub(crate) links: Arc<LoginLinks>,
    pub(crate) password: Option<PasswordLogin>,
    /// The names of the cookies end with it, because the cookies of a host are not separated by
    /// port.
    pub(crate) port: u16,
    pub(crate) is_tls: bool,
    /// Makes the tokens of forms.
    form_key: [u8; 32],
    random: Arc<dyn Random>,
}

/// The longest path in a snapshot, in bytes. A page has many links with its whole path.
const PATH_BYTES_MAX: usize = 4096;

/// The reason for which a request is refused before anything is looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RequestRefusal {
    /// It names another server.
    Host,
    /// It names a path that is too long.
    Path,
    Method,
    /// Another site sent it.
    Origin,
}

impl RequestRefusal {
    pub(crate) fn status(self) -> StatusCode {
        match self {
            Self::Host => StatusCode::MISDIRECTED_REQUEST,
            Self::Path => StatusCode::NOT_FOUND,
            Self::Method => StatusCode::METHOD_NOT_ALLOWED,
            Self::Origin => StatusCode::FORBIDDEN,
        }
    }

    pub(crate) fn text(self) -> &'static str {
        match self {
            Self::Host => {
                "This server does not have the name in the address. Allow it with --http-name, or use the address that the server printed."
            }
            Self::Path => "There is no such page: a path has at most 4096 bytes.",
            Self::Method => "The page can only be read.",
            Self::Origin => "The form was sent by another site.",
        }
    }
}

impl Gate {
    pub(crate) fn new(
        hosts: HostNames,
        links: Arc<LoginLinks>,
        password: Option<PasswordLogin>,
        port: u16,
        is_tls: bool,
        random: Arc<dyn Random>,
    ) -> std::io::Result<Self> {
        let mut form_key = [0; 32];
        random.fill(&mut form_key)?;
        Ok(Self { hosts, sessions: Sessions::default(), links, password, port, is_tls, form_key, random })
    }

    /// Checks the parts of a request that decide if it is looked at.
    pub(crate) fn refuses(&self, request: &Request<Body>) -> Option<RequestRefusal> {
        if !self.hosts.is_meant(request) {
            return Some(RequestRefusal::Host);
        }
        // `/look/ID/PATH`
        let path = request.uri().path().splitn(4, '/').nth(3).unwrap_or_default();
        if show::path_of_link(path).len() > PATH_BYTES_MAX {
            return Some(RequestRefusal::Path);
        }
        match *request.method() {
            Method::GET | Method::HEAD => None,
            Method::POST => {
                let is_own = origin::is_own_site(request.headers(), self.is_tls);
                (!is_own).then_some(RequestRefusal::Origin)
            }
            _ => Some(RequestRefusal::Method),
        }
    }

    /// The session of a request.
    pub(crate) fn session(&self, headers: &HeaderMap) -> Option<Session> {
        let value = cookies::value(headers, &self.cookie_name("session"))?;
        self.sessions.find(&LoginSecret::parse(value)?, Instant::now())
    }

    /// The name of one of the page's cookies.
    pub(crate) fn cookie_name(&self, what: &str) -> String {
        let prefix = if self.is_tls { "__Host-" } else { "" };
        format!("{prefix}varve_{what}_{}", self.port)
    }

    /// Draws a secret.
    pub(crate) fn draw(&self) -> std::io::Result<LoginSecret> {
        LoginSecret::draw(&*self.random)
    }

    /// The token in the forms of a browser, which a cookie with this secret marks.
    pub(crate) fn form_token(&self, of: &LoginSecret) -> String {
        blake3::keyed_hash(&self.form_key, of.hash().as_bytes()).to_hex().to_string()
    }

    /// Reports whether a form has the token of this browser.
    pub(crate) fn is_form_token(&self, of: &LoginSecret, token: &str) -> bool {
        let expected = blake3::keyed_hash(&self.form_key, of.hash().as_bytes());
        // The comparison of hashes takes the same time for all values.
        blake3::Hash::from_hex(token).is_ok_and(|token| token == expected)
    }
}
