//! Notices by HTTP.

use reqwest::header::{AUTHORIZATION, HeaderName, HeaderValue};
use reqwest::{Client, Method, Request};
use serde_json::{Value, json};
use url::Url;
use varve_block::with_causes;
use varve_watch::PushConfig;

use crate::limits::EXCHANGE;
use crate::notice::PromiseNotice;
use crate::secret::secret;

const USER_AGENT: &str = concat!("varve/", env!("CARGO_PKG_VERSION"));
/// The highest and the usual priority of the services.
const URGENT: (u8, u8) = (4, 8);
const USUAL: (u8, u8) = (3, 5);

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
fn post(url: Url, header: Option<(HeaderName, String)>, body: Option<&Value>) -> Result<(), String> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| error.to_string())?;
    runtime.block_on(async {
        let tls = varve_remote::tls_config_when_used().map_err(|error| with_causes(&error))?;
        let client =
            Client::builder().tls_backend_preconfigured(tls).timeout(EXCHANGE).user_agent(USER_AGENT);
        let client = client.build().map_err(|error| with_causes(&error.without_url()))?;
        let method = if body.is_some() { Method::POST } else { Method::GET };
        let mut request = Request::new(method, url);
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
            status => Err(format!("the server answered {status}")),
        }
    })
}
