//! The login.

use askama::Template;

use super::page::{Frame, PageError, PageHtml};

#[derive(Template)]
#[template(path = "login.html")]
struct LoginTemplate {
    frame: Frame,
    token: String,
    /// The key of a link that logs in once.
    key: Option<String>,
    to: String,
    has_password: bool,
    problem: Option<&'static str>,
}

/// The form that logs in a browser: with one button if it came by a link, else with a password.
pub(crate) fn login_page(
    token: String,
    key: Option<String>,
    to: String,
    has_password: bool,
    problem: Option<&'static str>,
) -> Result<PageHtml, PageError> {
    PageHtml::of(&LoginTemplate { frame: Frame::outside("Log in"), token, key, to, has_password, problem })
}
