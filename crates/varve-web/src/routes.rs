//! The addresses of the page, and their answers.

use std::sync::Arc;

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::State;
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderValue, SET_COOKIE};
use axum::http::{HeaderMap, Method, Request, StatusCode, Uri};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodRouter, get, post};
use tokio::time::{Instant, timeout};

use crate::download;
use crate::gate::cookies;
use crate::gate::headers::restrict;
use crate::gate::password::Attempt;
use crate::gate::secret::LoginSecret;
use crate::gate::sessions::{SESSION_TIME, Session};
use crate::pages::page::{PageError, PageHtml};
use crate::pages::{self, login};
use crate::redirect::{redirect, to_login};
use crate::site::{PageRequest, Site};

/// The maximum size of a form.
const FORM_BYTES_MAX: usize = 8 << 10;
const FORM_TIMEOUT: std::time::Duration = std::time::Duration::from_secs(10);
/// The time for which the cookie of the login form is kept.
const LOGIN_FORM_SECONDS: u64 = 3600;

const STYLE: &str = include_str!("style.css");
const ICON: &str = include_str!("icon.svg");

/// Makes a page.
type BuildPage = fn(&PageRequest) -> Result<PageHtml, PageError>;

/// Makes a request's page on a thread that may wait for the disk.
async fn made_page(site: Arc<Site>, session: Session, uri: Uri, build: BuildPage) -> Response {
    let Ok(_slot) = site.page_slots.acquire().await else {
        return StatusCode::SERVICE_UNAVAILABLE.into_response();
    };
    let own = Arc::clone(&site);
    let built = tokio::task::spawn_blocking(move || {
        let request = own.request(session, uri);
        build(&request).or_else(|error| pages::page::error_page(&request, &error))
    });
    match built.await {
        Ok(Ok(page)) => page.into_response(),
        // A page is text: it fails only if the program is wrong.
        Ok(Err(_)) | Err(_) => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
    }
}

/// The addresses of the page.
pub(crate) fn router(site: Arc<Site>) -> Router {
    let page = |build: BuildPage| {
        get(move |State(site): State<Arc<Site>>, request: Request<Body>| async move {
            match site.gate.session(request.headers()) {
                Some(session) => made_page(site, session, request.uri().clone(), build).await,
                None => to_login(request.uri()),
            }
        })
    };
    Router::new()
        .route("/", page(pages::today::today))
        .route("/calendar", page(pages::calendar::calendar))
        .route("/source/{key}", page(pages::source::source))
        .route("/runs", page(pages::runs::runs))
        .route("/look", page(pages::look::sources))
        .route("/look/{*place}", page(pages::look::place))
        .route("/file/{*place}", page(pages::file::versions))
        .route("/difference/{*place}", page(pages::file::difference))
        .route("/search", page(pages::search::search))
        .route("/machines", page(pages::machines::machines))
        .route("/space", page(pages::space::space))
        .route("/health", page(pages::health::health))
        .route("/download/{*place}", download_as(download::Form::File))
        .route("/tar/{*place}", download_as(download::Form::Tar))
        .route("/zip/{*place}", download_as(download::Form::Zip))
        .route("/picture/{*place}", download_as(download::Form::Picture))
        .route("/login", get(login_form).post(log_in))
        .route("/logout", post(log_out))
        .route("/style.css", get(|| async { fixed("text/css; charset=utf-8", STYLE) }))
        .route("/icon.svg", get(|| async { fixed("image/svg+xml", ICON) }))
        .fallback(page(|_| Err(PageError::absent("There is no such page."))))
        .with_state(Arc::clone(&site))
        .layer(from_fn_with_state(site, guard))
}

/// Refuses requests that are not for this page, and restricts every answer.
async fn guard(State(site): State<Arc<Site>>, request: Request<Body>, next: Next) -> Response {
    let mut answer = match site.gate.refuses(&request) {
        Some(refusal) => (refusal.status(), format!("{}\n", refusal.text())).into_response(),
        None => next.run(request).await,
    };
    restrict(&mut answer);
    answer
}

fn fixed(content_type: &'static str, text: &'static str) -> Response {
    let headers = [(CONTENT_TYPE, content_type), (CACHE_CONTROL, "private, max-age=3600")]
        .map(|(name, value)| (name, HeaderValue::from_static(value)));
    (headers, text).into_response()
}

fn download_as(form: download::Form) -> MethodRouter<Arc<Site>> {
    get(move |State(site): State<Arc<Site>>, request: Request<Body>| download::answer(site, request, form))
}

/// The login form. A cookie marks the browser, so that only a form that this browser got is
/// accepted from it.
async fn login_form(State(site): State<Arc<Site>>, request: Request<Body>) -> Response {
    let query = request.uri().query().unwrap_or_default();
    let value = |name: &str| {
        let mut pairs = url::form_urlencoded::parse(query.as_bytes());
        pairs.find(|(key, _)| key == name).map(|(_, value)| value.into_owned())
    };
    let key = value("key").filter(|key| LoginSecret::parse(key).is_some());
    show_login(&site, request.headers(), key, value("to"), None, StatusCode::OK)
}

fn show_login(
    site: &Site,
    headers: &HeaderMap,
    key: Option<String>,
    to: Option<String>,
    problem: Option<&'static str>,
    status: StatusCode,
) -> Response {
    let name = site.gate.cookie_name("login");
    let known = cookies::value(headers, &name).and_then(LoginSecret::parse);
    let Some(marker) = known.or_else(|| site.gate.draw().ok()) else {
        return StatusCode::INTERNAL_SERVER_ERROR.into_response();
    };
    let token = site.gate.form_token(&marker);
    let page = login::login_page(token, key, local_address(to), site.gate.password.is_some(), problem);
    let Ok(page) = page else { return StatusCode::INTERNAL_SERVER_ERROR.into_response() };
    let mut answer = page.into_response();
    *answer.status_mut() = status;
    let cookie = cookies::set(&name, &marker.text(), LOGIN_FORM_SECONDS, site.gate.is_tls);
    add_cookie(&mut answer, &cookie);
    answer
}

/// An address of this page to return to. Anything else becomes the first page.
fn local_address(to: Option<String>) -> String {
    let is_local = |to: &String| {
        let mut bytes = to.bytes();
        bytes.next() == Some(b'/')
            && !matches!(bytes.next(), Some(b'/' | b'\\'))
            && to.bytes().all(|byte| byte.is_ascii_graphic())
            && to.len() <= 16 << 10
    };
    to.filter(is_local).unwrap_or_else(|| "/".into())
}

fn add_cookie(answer: &mut Response, cookie: &str) {
    if let Ok(value) = HeaderValue::from_str(cookie) {
        answer.headers_mut().append(SET_COOKIE, value);
    }
}

/// The fields of a form; `None` if it is too large, too slow or no form.
async fn form_of(request: Request<Body>) -> Option<(HeaderMap, Vec<(String, String)>)> {
    let (parts, body) = request.into_parts();
    let is_form =
        parts.headers.get(CONTENT_TYPE).is_some_and(|kind| kind == "application/x-www-form-urlencoded");
    if parts.method != Method::POST || !is_form {
        return None;
    }
    let body = timeout(FORM_TIMEOUT, to_bytes(body, FORM_BYTES_MAX)).await.ok()?.ok()?;
    let fields = url::form_urlencoded::parse(&body);
    Some((parts.headers, fields.map(|(key, value)| (key.into_owned(), value.into_owned())).collect()))
}

fn field<'a>(form: &'a [(String, String)], name: &str) -> Option<&'a str> {
    form.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
}

async fn log_in(State(site): State<Arc<Site>>, request: Request<Body>) -> Response {
    let Some((headers, form)) = form_of(request).await else {
        return (StatusCode::BAD_REQUEST, "This is not the login form.\n").into_response();
    };
    let to = field(&form, "to").map(str::to_owned);
    let refuse = |problem, status| show_login(&site, &headers, None, to.clone(), Some(problem), status);
    let marker = cookies::value(&headers, &site.gate.cookie_name("login")).and_then(LoginSecret::parse);
    let is_own = |marker: &LoginSecret| {
        field(&form, "token").is_some_and(|token| site.gate.is_form_token(marker, token))
    };
    if !marker.is_some_and(|marker| is_own(&marker)) {
        return refuse("The form was too old. Please try again.", StatusCode::FORBIDDEN);
    }
    let attempt = match (field(&form, "key"), field(&form, "password")) {
        (Some(key), _) if site.gate.links.take(key, Instant::now()) => Attempt::Right,
        (Some(_), _) => {
            let problem = "The link was used already, or is too old.";
            return refuse(problem, StatusCode::FORBIDDEN);
        }
        (None, Some(password)) if site.gate.password.is_some() => {
            let (site, password) = (Arc::clone(&site), password.to_owned());
            let attempt = tokio::task::spawn_blocking(move || {
                site.gate.password.as_ref().map(|login| login.attempt(&password, Instant::now()))
            });
            attempt.await.ok().flatten().unwrap_or(Attempt::Wrong)
        }
        _ => Attempt::Wrong,
    };
    match attempt {
        Attempt::Right => {}
        Attempt::Wrong => {
            tracing::warn!("a login to the page was refused");
            return refuse("This is not the password.", StatusCode::FORBIDDEN);
        }
        Attempt::Later => {
            let problem = "There were too many attempts. Please try again in half a minute.";
            return refuse(problem, StatusCode::TOO_MANY_REQUESTS);
        }
    }
    let Ok(secret) = site.gate.draw() else { return StatusCode::INTERNAL_SERVER_ERROR.into_response() };
    site.gate.sessions.begin(&secret, Instant::now());
    let mut answer = redirect(&local_address(to));
    let name = site.gate.cookie_name("session");
    add_cookie(&mut answer, &cookies::set(&name, &secret.text(), SESSION_TIME.as_secs(), site.gate.is_tls));
    add_cookie(&mut answer, &cookies::set(&site.gate.cookie_name("login"), "", 0, site.gate.is_tls));
    answer
}

async fn log_out(State(site): State<Arc<Site>>, request: Request<Body>) -> Response {
    let Some((headers, form)) = form_of(request).await else {
        return (StatusCode::BAD_REQUEST, "This is not a form of the page.\n").into_response();
    };
    let Some(session) = site.gate.session(&headers) else { return redirect("/login") };
    if !field(&form, "token").is_some_and(|token| site.gate.is_form_token(&session.secret, token)) {
        return (StatusCode::FORBIDDEN, "The form was not made by this page.\n").into_response();
    }
    site.gate.sessions.end(&session.secret);
    let mut answer = redirect("/login");
    add_cookie(&mut answer, &cookies::set(&site.gate.cookie_name("session"), "", 0, site.gate.is_tls));
    answer
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_login_leads_to_this_page_only() {
        let address = |to: &str| local_address(Some(to.into()));
        assert_eq!(address("/look/ab/c%20d?x=1"), "/look/ab/c%20d?x=1");
        for to in [
            "",
            "//evil.example/",
            "/\\evil.example",
            "https://evil.example/",
            "look",
            "/a\r\nb",
            "/\t/x",
            "/\u{e9}",
        ] {
            assert_eq!(address(to), "/", "{to:?}");
        }
        assert_eq!(local_address(None), "/");
    }
}
