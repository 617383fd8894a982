//! The headers that restrict what a browser does with an answer.

use axum::http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, HeaderName, HeaderValue, REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS,
    X_FRAME_OPTIONS,
};
use axum::response::Response;

/// A page has its style sheet, its icon and forms that go to this server, and nothing else.
const PAGE_POLICY: &str = "default-src 'none'; style-src 'self'; img-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'";
/// A page with commands has one script, which copies them. The browser compares its hash, so no
/// other script runs.
const COMMANDS_POLICY: &str = "default-src 'none'; style-src 'self'; img-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'; script-src 'sha256-hbqjy0Mjppv7Y3jjviQ/LtynbjEoPgU6tjjhCvsTSA0='";
/// An archived file that a browser shows in spite of everything has no origin and no scripts.
const FILE_POLICY: &str = "sandbox; default-src 'none'; frame-ancestors 'none'";

/// The headers of every answer. An answer that has a policy of its own keeps it.
pub(crate) fn restrict(answer: &mut Response) {
    let headers = answer.headers_mut();
    headers.entry(CONTENT_SECURITY_POLICY).or_insert(HeaderValue::from_static(PAGE_POLICY));
    headers.entry(CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
    for (name, value) in [
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (X_FRAME_OPTIONS, "DENY"),
        // A form must show its origin, so the policy is not "no-referrer".
        (REFERRER_POLICY, "same-origin"),
        (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
        (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
        (HeaderName::from_static("permissions-policy"), "camera=(), geolocation=(), microphone=()"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
}

/// The policy of a page with commands.
pub(crate) fn allow_copying(answer: &mut Response) {
    answer.headers_mut().insert(CONTENT_SECURITY_POLICY, HeaderValue::from_static(COMMANDS_POLICY));
}

/// The policy of an archived file.
pub(crate) fn sandbox(answer: &mut Response) {
    answer.headers_mut().insert(CONTENT_SECURITY_POLICY, HeaderValue::from_static(FILE_POLICY));
}

#[cfg(test)]
mod tests {
    use base64::Engine;
    use base64::prelude::BASE64_STANDARD;
    use sha2::{Digest, Sha256};

    use super::*;

    #[test]
    fn the_policy_names_the_script_that_copies() {
        let hash = BASE64_STANDARD.encode(Sha256::digest(include_bytes!("../copy.js")));
        assert_eq!(COMMANDS_POLICY, format!("{PAGE_POLICY}; script-src 'sha256-{hash}'"));
    }
}
