//! Answers that lead a browser to another address of this page.

use axum::http::header::{HeaderValue, LOCATION};
use axum::http::{StatusCode, Uri};
use axum::response::{IntoResponse, Response};

/// Leads to an address.
pub(crate) fn redirect(to: &str) -> Response {
    let location = HeaderValue::from_str(to).unwrap_or(HeaderValue::from_static("/"));
    (StatusCode::SEE_OTHER, [(LOCATION, location)]).into_response()
}

/// Leads to the login, and from there back to this address.
pub(crate) fn to_login(uri: &Uri) -> Response {
    let back = uri.path_and_query().map_or("/", |path| path.as_str());
    redirect(&format!("/login?to={}", crate::show::query_value(back)))
}
