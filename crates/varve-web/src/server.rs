//! The server: its limits, and the threads behind it.

use std::sync::Arc;
use std::time::Duration;

use hyper_util::service::TowerToHyperService;
use varve_serve::{HttpLimits, ListenError, TcpServer, check_address, listen, serve_http, threads};

use crate::gate::Gate;
use crate::gate::host_names::HostNames;
use crate::gate::logins::LoginLinks;
use crate::gate::password::PasswordLogin;
use crate::routes;
use crate::settings::WebSettings;
use crate::site::Site;

const LIMITS: HttpLimits = HttpLimits {
    protocol: "HTTP",
    clients_max: 256,
    header_timeout: Duration::from_secs(20),
    send_timeout: Duration::from_secs(60),
    one_request_within: None,
};

/// The page, served until it is dropped.
pub struct WebServer {
    server: TcpServer,
    scheme: &'static str,
    links: Arc<LoginLinks>,
}

impl WebServer {
    /// The address for browsers.
    #[must_use]
    pub fn url(&self) -> String {
        format!("{}://{}/", self.scheme, self.server.address())
    }

    /// The links that log in a browser.
    #[must_use]
    pub fn links(&self) -> &Arc<LoginLinks> {
        &self.links
    }
}

/// Serves the page. Without `is_exposed`, the address must be a loopback address.
///
/// # Errors
/// [`ListenError`]
pub fn serve(settings: WebSettings) -> Result<WebServer, ListenError> {
    check_address(settings.address, settings.is_exposed)?;
    let threads = threads("web")?;
    let (listener, address) = listen(&threads, settings.address)?;
    let hosts = HostNames::new(address, settings.is_exposed, &settings.host_names);
    let links = Arc::new(LoginLinks::new(Arc::clone(&settings.random)));
    let password = settings.password.clone().map(PasswordLogin::new);
    let gate = Gate::new(
        hosts,
        Arc::clone(&links),
        password,
        address.port(),
        settings.tls.is_some(),
        Arc::clone(&settings.random),
    );
    let gate = gate.map_err(ListenError::Threads)?;
    let tls = settings.tls.clone();
    let scheme = if tls.is_some() { "https" } else { "http" };
    let router = TowerToHyperService::new(routes::router(Site::new(gate, settings)));
    threads.spawn(async move { serve_http(listener, LIMITS, tls.as_ref(), router).await });
    Ok(WebServer { server: TcpServer::new(address, threads), scheme, links })
}
