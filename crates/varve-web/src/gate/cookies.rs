//! Reads and writes cookies.

use axum::http::HeaderMap;
use axum::http::header::COOKIE;

/// The value of a cookie. `None` if the browser sent none, or several with this name: then another
/// server of this host has set one of them.
pub(crate) fn value<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    let all = headers.get_all(COOKIE).iter().filter_map(|line| line.to_str().ok());
    let mut found = all.flat_map(|line| line.split(';')).filter_map(|cookie| {
        let (key, value) = cookie.trim().split_once('=')?;
        (key == name).then_some(value)
    });
    let value = found.next()?;
    found.next().is_none().then_some(value)
}

/// The header that sets a cookie for `seconds`; 0 removes it.
pub(crate) fn set(name: &str, value: &str, seconds: u64, is_tls: bool) -> String {
    let secure = if is_tls { "; Secure" } else { "" };
    format!("{name}={value}; Path=/; Max-Age={seconds}; HttpOnly; SameSite=Strict{secure}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cookie_is_found_by_its_whole_name_and_only_once() {
        let headers = |lines: &[&'static str]| {
            let mut headers = HeaderMap::new();
            for line in lines {
                headers.append(COOKIE, line.parse().unwrap());
            }
            headers
        };
        assert_eq!(value(&headers(&["a=1; varve=x; b=2"]), "varve"), Some("x"));
        assert_eq!(value(&headers(&["a=1", "varve=x=y"]), "varve"), Some("x=y"));
        for lines in [&["xvarve=1; varvex=2"][..], &["varve=1; varve=2"], &["varve=1", "varve=1"], &[]] {
            assert_eq!(value(&headers(lines), "varve"), None, "{lines:?}");
        }
        assert_eq!(set("n", "v", 5, true), "n=v; Path=/; Max-Age=5; HttpOnly; SameSite=Strict; Secure");
    }
}
