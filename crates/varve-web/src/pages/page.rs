//! The frame that all pages share, and the page of an error.

use askama::Template;
use axum::http::StatusCode;
use axum::response::{Html, IntoResponse, Response};
use varve_archive::CollectedError;

use crate::gate::headers::allow_copying;
use crate::site::PageRequest;

/// A finished page.
#[derive(Debug)]
pub(crate) struct PageHtml {
    pub(crate) status: StatusCode,
    html: String,
    /// The page has commands, and so the script that copies them.
    has_commands: bool,
}

impl PageHtml {
    /// Fills a template.
    pub(crate) fn of(template: &impl Template) -> Result<Self, PageError> {
        let html = template.render().map_err(|error| PageError {
            status: StatusCode::INTERNAL_SERVER_ERROR,
            title: "This page cannot be made",
            text: error.to_string(),
        })?;
        Ok(Self { status: StatusCode::OK, html, has_commands: false })
    }

    /// Fills the template of a page with commands.
    pub(crate) fn with_commands(template: &impl Template) -> Result<Self, PageError> {
        Ok(Self { has_commands: true, ..Self::of(template)? })
    }
}

impl IntoResponse for PageHtml {
    fn into_response(self) -> Response {
        let mut answer = (self.status, Html(self.html)).into_response();
        if self.has_commands {
            allow_copying(&mut answer);
        }
        answer
    }
}

/// Why a page cannot be shown.
#[derive(Debug)]
pub(crate) struct PageError {
    pub(crate) status: StatusCode,
    pub(crate) title: &'static str,
    pub(crate) text: String,
}

impl PageError {
    /// There is nothing at this address.
    pub(crate) fn absent(text: impl Into<String>) -> Self {
        Self { status: StatusCode::NOT_FOUND, title: "Not found", text: text.into() }
    }

    /// The archive does not return it.
    pub(crate) fn unreadable(text: impl Into<String>) -> Self {
        let title = "This cannot be read";
        Self { status: StatusCode::INTERNAL_SERVER_ERROR, title, text: text.into() }
    }

    /// The snapshot was forgotten, and its data is gone.
    pub(crate) fn gone(error: &CollectedError) -> Self {
        Self { status: StatusCode::GONE, title: "This snapshot is gone", text: error.to_string() }
    }
}

/// A link of the navigation.
pub(crate) struct NavigationLink {
    pub(crate) address: &'static str,
    pub(crate) text: &'static str,
    pub(crate) is_current: bool,
}

/// The parts of a page around its content.
pub(crate) struct Frame {
    pub(crate) title: String,
    pub(crate) links: Vec<NavigationLink>,
    /// The token of the log-out form; empty on the login page.
    pub(crate) token: String,
}

const LINKS: [(&str, &str); 8] = [
    ("/", "Today"),
    ("/runs", "Runs"),
    ("/calendar", "Calendar"),
    ("/look", "Look"),
    ("/search", "Search"),
    ("/machines", "Machines"),
    ("/space", "Space"),
    ("/health", "Health"),
];

impl Frame {
    /// The frame of a page that belongs to the navigation's link `current`.
    pub(crate) fn new(request: &PageRequest, current: &str, title: impl Into<String>) -> Self {
        let link = |(address, text)| NavigationLink { address, text, is_current: address == current };
        Self {
            title: title.into(),
            links: LINKS.map(link).into(),
            token: request.site.gate.form_token(&request.session.secret),
        }
    }

    /// The frame of the login page.
    pub(crate) fn outside(title: &str) -> Self {
        Self { title: title.into(), links: Vec::new(), token: String::new() }
    }
}

#[derive(Template)]
#[template(path = "error.html")]
struct ErrorTemplate<'a> {
    frame: Frame,
    error: &'a PageError,
}

/// The page of an error.
pub(crate) fn error_page(request: &PageRequest, error: &PageError) -> Result<PageHtml, PageError> {
    let frame = Frame::new(request, "", error.title);
    Ok(PageHtml { status: error.status, ..PageHtml::of(&ErrorTemplate { frame, error })? })
}
