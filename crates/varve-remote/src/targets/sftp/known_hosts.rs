//! The keys of known servers, in the format of OpenSSH: names, wildcards, negations, hashed names,
//! and revoked keys. Keys signed by an authority (`@cert-authority`) are not supported and are
//! ignored.

use aws_lc_rs::hmac;
use base64::Engine;
use base64::alphabet::STANDARD;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use varve_block::to_usize;

/// Other programs than OpenSSH leave out the padding.
const ANY_PADDING: GeneralPurpose = GeneralPurpose::new(
    &STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// The entries of the file for one server.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct KnownKeys {
    /// The accepted keys, in wire format.
    pub keys: Vec<Vec<u8>>,
    /// The revoked keys.
    pub revoked: Vec<Vec<u8>>,
}

/// The result of a check of a server's key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum KeyStanding {
    /// The key is known.
    Known,
    /// The file has no key of the server.
    Unknown,
    /// The file has other keys of the server.
    Changed,
    /// The key was revoked.
    Revoked,
}

impl KnownKeys {
    /// Reads the entries for the server at `host` (without brackets) and `port`. Malformed lines
    /// are ignored.
    pub fn read(file: &str, host: &str, port: u16) -> Self {
        let host = host.to_ascii_lowercase();
        let name = if port == 22 { host } else { format!("[{host}]:{port}") };
        let mut known = Self::default();
        for line in file.lines().map(str::trim).filter(|line| !line.starts_with('#')) {
            let mut words = line.split_ascii_whitespace().peekable();
            let marker = words.next_if(|word| word.starts_with('@'));
            let (Some(patterns), Some(_), Some(key)) = (words.next(), words.next(), words.next()) else {
                continue;
            };
            let Ok(key) = ANY_PADDING.decode(key) else { continue };
            if !matches(patterns, &name) {
                continue;
            }
            match marker {
                None => known.keys.push(key),
                Some("@revoked") => known.revoked.push(key),
                Some(_) => {}
            }
        }
        known
    }

    /// Checks a key.
    pub fn standing(&self, key: &[u8]) -> KeyStanding {
        let has = |keys: &[Vec<u8>]| keys.iter().any(|known| known == key);
        match () {
            () if has(&self.revoked) => KeyStanding::Revoked,
            () if has(&self.keys) => KeyStanding::Known,
            () if self.keys.is_empty() => KeyStanding::Unknown,
            () => KeyStanding::Changed,
        }
    }

    /// Returns the kinds of the known keys, so that the server can be asked for one of them.
    pub fn kinds(&self) -> Vec<String> {
        self.keys.iter().filter_map(|key| kind(key)).collect()
    }
}

/// Returns the kind of a key, whose name is at its beginning.
fn kind(key: &[u8]) -> Option<String> {
    let (length, rest) = key.split_first_chunk::<4>()?;
    let name = rest.get(..to_usize(u32::from_be_bytes(*length)))?;
    String::from_utf8(name.to_vec()).ok()
}

fn matches(patterns: &str, name: &str) -> bool {
    if let Some(hashed) = patterns.strip_prefix("|1|") {
        return matches_hashed(hashed, name);
    }
    let mut is_meant = false;
    for pattern in patterns.split(',') {
        match pattern.strip_prefix('!') {
            // A matching negation overrides the rest of the line.
            Some(pattern) if matches_pattern(pattern, name) => return false,
            Some(_) => {}
            None => is_meant |= matches_pattern(pattern, name),
        }
    }
    is_meant
}

fn matches_hashed(hashed: &str, name: &str) -> bool {
    let Some((salt, hash)) = hashed.split_once('|') else { return false };
    let (Ok(salt), Ok(hash)) = (ANY_PADDING.decode(salt), ANY_PADDING.decode(hash)) else { return false };
    let key = hmac::Key::new(hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY, &salt);
    hmac::verify(&key, name.as_bytes(), &hash).is_ok()
}

/// Matches a pattern: `*` stands for any characters, `?` for one. The time is at worst proportional
/// to the product of both lengths.
fn matches_pattern(pattern: &str, name: &str) -> bool {
    let pattern = pattern.to_ascii_lowercase();
    let (pattern, name) = (pattern.as_bytes(), name.as_bytes());
    let (mut at, mut in_name, mut star) = (0, 0, None);
    while in_name < name.len() {
        match pattern.get(at) {
            Some(b'*') => {
                star = Some((at, in_name));
                at += 1;
            }
            Some(&wanted) if wanted == b'?' || Some(&wanted) == name.get(in_name) => {
                at += 1;
                in_name += 1;
            }
            _ => {
                let Some((star_at, taken)) = star else { return false };
                star = Some((star_at, taken + 1));
                at = star_at + 1;
                in_name = taken + 1;
            }
        }
    }
    pattern.iter().skip(at).all(|&rest| rest == b'*')
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = "\
# a comment
example.org,192.0.2.7 ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAAQ== ann
[example.org]:2222\tssh-ed25519\tAAAAC3NzaC1lZDI1NTE5AAAAAg==
*.lan,!bad.lan,h?st ecdsa-sha2-nistp256 AAAAE2VjZHNhLXNoYTItbmlzdHAyNTYAAAAB
@revoked * ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAAw==
@cert-authority * ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAABA==
|1|O33ESRMWPVkMYIwJ1Uw+n877jTo=|nuuC5vEqXlEZ/8BXQR7m619W6Ak= ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAABQ==
broken line
example.org ssh-ed25519 not*base64
";

    fn count(host: &str, port: u16) -> usize {
        KnownKeys::read(FILE, host, port).keys.len()
    }

    #[test]
    fn names_and_ports_are_told_apart() {
        for (host, port, expected) in [
            ("example.org", 22, 1),
            ("EXAMPLE.ORG", 22, 1),
            ("192.0.2.7", 22, 1),
            ("example.org", 2222, 1),
            ("example.org", 2223, 0),
            ("nas.lan", 22, 1),
            ("bad.lan", 22, 0),
            ("lan", 22, 0),
            ("host", 22, 1),
            ("hoost", 22, 0),
            ("192.0.2.70", 22, 0),
        ] {
            assert_eq!(count(host, port), expected, "{host}:{port}");
        }
    }

    #[test]
    fn hashed_names_are_found() {
        // The line was made by OpenSSH for this name.
        assert_eq!(count("example.com", 22), 1);
        assert_eq!(count("example.net", 22), 0);
    }

    #[test]
    fn keys_are_known_changed_revoked_or_not_known_at_all() {
        let key = |last: u8| [b"\0\0\0\x0bssh-ed25519\0\0\0".as_slice(), &[last]].concat();
        let known = KnownKeys::read(FILE, "example.org", 22);
        assert_eq!(known.standing(&key(1)), KeyStanding::Known);
        assert_eq!(known.standing(&key(9)), KeyStanding::Changed);
        assert_eq!(known.standing(&key(3)), KeyStanding::Revoked);
        assert_eq!(KnownKeys::read(FILE, "other", 22).standing(&key(1)), KeyStanding::Unknown);
        assert_eq!(KnownKeys::read(FILE, "other", 22).standing(&key(4)), KeyStanding::Unknown);
        assert_eq!(known.kinds(), ["ssh-ed25519"]);
    }

    #[test]
    fn patterns_do_not_run_away() {
        assert!(!matches_pattern(&"*a".repeat(200), &"a".repeat(150)));
        assert!(matches_pattern("*a*b*", "xxaxxbxx"));
    }
}
