//! Reports whether the page itself has made a browser send a request.

use axum::http::HeaderMap;
use axum::http::header::{HOST, HeaderName, ORIGIN};

const FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// Every sign of the sender must show this site, and there must be one. Browsers send
/// `Sec-Fetch-Site` to servers with TLS and on this machine, and `Origin` with each POST.
pub(crate) fn is_own_site(headers: &HeaderMap, is_tls: bool) -> bool {
    let single = |name: &HeaderName| {
        let mut values = headers.get_all(name).iter();
        match (values.next(), values.next()) {
            (None, _) => Ok(None),
            (Some(value), None) => value.to_str().map(Some).map_err(drop),
            (Some(_), Some(_)) => Err(()),
        }
    };
    let (Ok(site), Ok(origin), Ok(Some(host))) = (single(&FETCH_SITE), single(&ORIGIN), single(&HOST)) else {
        return false;
    };
    // A proxy may add the encryption that this server does not have.
    let schemes: &[&str] = if is_tls { &["https"] } else { &["http", "https"] };
    let is_own_origin = |origin: &str| {
        schemes.iter().any(|scheme| origin.eq_ignore_ascii_case(&format!("{scheme}://{host}")))
    };
    match (site, origin) {
        (None, None) => false,
        (site, origin) => site.is_none_or(|site| site == "same-origin") && origin.is_none_or(is_own_origin),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_sign_must_show_this_site() {
        let is_own_with = |is_tls, site: Option<&str>, origin: Option<&str>| {
            let mut headers = HeaderMap::new();
            headers.insert(HOST, "localhost:8080".parse().unwrap());
            site.map(|site| headers.insert(FETCH_SITE, site.parse().unwrap()));
            origin.map(|origin| headers.insert(ORIGIN, origin.parse().unwrap()));
            is_own_site(&headers, is_tls)
        };
        let is_own = |site, origin| is_own_with(false, site, origin);
        let proxied = Some("https://localhost:8080");
        assert!(is_own(None, proxied) && is_own_with(true, None, proxied));
        assert!(!is_own_with(true, None, Some("http://localhost:8080")));
        let own = Some("http://localhost:8080");
        assert!(is_own(Some("same-origin"), own));
        assert!(is_own(Some("same-origin"), None) && is_own(None, own));
        for site in [None, Some("cross-site"), Some("same-site"), Some("none"), Some("")] {
            assert!(!is_own(site, None), "{site:?}");
            if site.is_some() {
                assert!(!is_own(site, own), "{site:?}");
            }
        }
        for origin in [
            "null",
            "http://localhost",
            "http://localhost:8081",
            "ftp://localhost:8080",
            "http://evil.example",
            "http://localhost:8080.evil.example",
            "",
        ] {
            assert!(!is_own(Some("same-origin"), Some(origin)), "{origin}");
            assert!(!is_own(None, Some(origin)), "{origin}");
        }
    }
}
