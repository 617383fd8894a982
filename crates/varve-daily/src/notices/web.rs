//! Notices by HTTP.

use reqwest::header::{AUTHORIZATION, HeaderName, HeaderValue, LOCATION};
use reqwest::redirect::{Attempt, Policy};
use reqwest::{Client, Method, Request, Response};
use serde_json::{Value, json};
use url::Url;
use varve_block::{visible, with_causes};

use super::limits::EXCHANGE;
use super::notice::PromiseNotice;
use super::secret::secret;
use crate::config::PushConfig;

const USER_AGENT: &str = concat!("varve/", env!("CARGO_PKG_VERSION"));
/// The highest and the usual priority of the services.
const URGENT: (u8, u8) = (4, 8);
const USUAL: (u8, u8) = (3, 5);
/// A heartbeat follows so many redirects within its server.
const REDIRECTS_MAX: usize = 4;

/// Publishes at an ntfy server. The address of the topic is its folder and the name of the topic.
pub fn ntfy(config: &PushConfig, notice: &PromiseNotice) -> Result<(), String> {
    let mut server = parse(&config.url)?;
    let topic = server.path_segments().and_then(|mut parts| parts.next_back()).unwrap_or_default().to_owned();
    if topic.is_empty() {
        return Err("the address names no topic".to_owned());
    }
    if let Ok(mut parts) = server.path_segments_mut() {
        parts.pop().push("");
    }
    let (priority, _) = if notice.is_bad { URGENT } else { USUAL };
    let body = json!({ "topic": topic, "title": notice.title, "message": notice.text, "priority": priority });
    let token = token(config)?.map(|token| (AUTHORIZATION, format!("Bearer {token}")));
    post(server, token, Some(&body))
}

/// Sends a message to a Gotify server.
pub fn gotify(config: &PushConfig, notice: &PromiseNotice) -> Result<(), String> {
    let mut server = parse(&config.url)?;
    if let Ok(mut parts) = server.path_segments_mut() {
        parts.pop_if_empty().push("message");
    }
    let (_, priority) = if notice.is_bad { URGENT } else { USUAL };
    let body = json!({ "title": notice.title, "message": notice.text, "priority": priority });
    let token = token(config)?.map(|token| (HeaderName::from_static("x-gotify-key"), token));
    post(server, token, Some(&body))
}

/// Posts the notice as JSON.
pub fn webhook(config: &PushConfig, notice: &PromiseNotice) -> Result<(), String> {
    let token = token(config)?.map(|token| (AUTHORIZATION, format!("Bearer {token}")));
    post(parse(&config.url)?, token, Some(&notice.value))
}

/// Calls an address, so that its server knows that all is well.
pub fn heartbeat(url: &str) -> Result<(), String> {
    post(parse(url)?, None, None)
}

fn parse(url: &str) -> Result<Url, String> {
    url.parse().map_err(|error| format!("it is no address: {error}"))
}

fn token(config: &PushConfig) -> Result<Option<String>, String> {
    let Some(file) = &config.token else { return Ok(None) };
    secret(file).map(Some)
}

/// Posts a value, or gets the address if there is none. The address is a secret of its own, so no
/// error has it.
///
/// A notice counts as sent if its own address has taken it. A redirect makes a GET without contents
/// of a POST, such as that of a login page, and would carry tokens to another server.
fn post(url: Url, header: Option<(HeaderName, String)>, body: Option<&Value>) -> Result<(), String> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| error.to_string())?;
    runtime.block_on(async {
        let tls = varve_remote::tls_config_when_used().map_err(|error| with_causes(&error))?;
        let redirects = if body.is_some() { Policy::none() } else { Policy::custom(stay_at_server) };
        let client =
            Client::builder().tls_backend_preconfigured(tls).timeout(EXCHANGE).user_agent(USER_AGENT);
        let client = client.redirect(redirects).build().map_err(|error| with_causes(&error.without_url()))?;
        let method = if body.is_some() { Method::POST } else { Method::GET };
        let mut request = Request::new(method, url.clone());
        if let Some(body) = body {
            let kind = HeaderValue::from_static("application/json");
            request.headers_mut().insert(reqwest::header::CONTENT_TYPE, kind);
            *request.body_mut() = Some(body.to_string().into());
        }
        if let Some((name, value)) = header {
            let mut value =
                HeaderValue::from_str(&value).map_err(|_| "the token has forbidden characters".to_owned())?;
            value.set_sensitive(true);
            request.headers_mut().insert(name, value);
        }
        let answer = client.execute(request).await.map_err(|error| with_causes(&error.without_url()))?;
        match answer.status() {
            status if status.is_success() => Ok(()),
            status if status.is_redirection() => Err(redirected(&url, &answer)),
            status => Err(format!("the server answered {status}")),
        }
    })
}

/// Follows a redirect of a heartbeat if it stays at its server, and does not give up encryption.
fn stay_at_server(attempt: Attempt<'_>) -> reqwest::redirect::Action {
    let (next, first) = (attempt.url(), attempt.previous().first());
    let is_same = first.is_some_and(|first| {
        let is_weaker = first.scheme() == "https" && next.scheme() != "https";
        first.host() == next.host() && !is_weaker
    });
    match is_same && attempt.previous().len() <= REDIRECTS_MAX {
        true => attempt.follow(),
        false => attempt.stop(),
    }
}

/// Describes a redirect, with the address to which it leads.
fn redirected(from: &Url, answer: &Response) -> String {
    let status = answer.status();
    let place = answer.headers().get(LOCATION).and_then(|place| place.to_str().ok());
    // A heartbeat may have followed some redirects before.
    match place.and_then(|place| answer.url().join(place).ok()) {
        Some(to) => format!(
            "the server answered {status} and redirects to {}: write that address, if it is the right one",
            shown_place(from, &to)
        ),
        None => format!("the server answered {status} without an address"),
    }
}

/// Returns an address without its secrets: a login, a query, and each part of the path that the
/// configured address has as well.
fn shown_place(from: &Url, to: &Url) -> String {
    let server = &to[url::Position::BeforeScheme..url::Position::AfterScheme];
    let server = format!("{server}://{}", &to[url::Position::BeforeHost..url::Position::AfterPort]);
    if from.path() == to.path() && to.query().is_none_or(|query| from.query() == Some(query)) {
        return format!("{server} with the same path");
    }
    let known: Vec<_> = from.path_segments().into_iter().flatten().filter(|part| !part.is_empty()).collect();
    let shown = |part: &str| if known.contains(&part) { "…".to_owned() } else { visible(part) };
    let parts: Vec<_> = to.path_segments().into_iter().flatten().map(shown).collect();
    format!("{server}/{}", parts.join("/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_place_of_a_redirect_shows_no_secret() {
        let from = Url::parse("http://hooks.example/T0/SECRET").unwrap();
        for (to, shown) in [
            ("https://hooks.example/T0/SECRET", "https://hooks.example with the same path"),
            ("https://hooks.example/v2/T0/SECRET", "https://hooks.example/v2/…/…"),
            ("http://ann:pw@other.example:8080/login?next=/T0/SECRET", "http://other.example:8080/login"),
            ("https://[2001:db8::1]/", "https://[2001:db8::1]/"),
        ] {
            assert_eq!(shown_place(&from, &Url::parse(to).unwrap()), shown);
        }
    }
}
