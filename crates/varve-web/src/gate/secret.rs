//! Secrets that a browser or a link presents.

use std::io;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use varve_world::Random;
use zeroize::Zeroizing;

/// 256 random bits.
#[derive(Clone)]
pub(crate) struct LoginSecret(Zeroizing<[u8; 32]>);

impl LoginSecret {
    /// Draws a secret.
    pub(crate) fn draw(random: &dyn Random) -> io::Result<Self> {
        let mut bytes = Zeroizing::new([0; 32]);
        random.fill(&mut *bytes)?;
        Ok(Self(bytes))
    }

    /// Parses the text of a secret.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let bytes = URL_SAFE_NO_PAD.decode(text).ok()?;
        Some(Self(Zeroizing::new(bytes.try_into().ok()?)))
    }

    /// The text, of letters, digits, `-` and `_`.
    pub(crate) fn text(&self) -> String {
        URL_SAFE_NO_PAD.encode(*self.0)
    }

    /// The hash by which the server remembers it. Tables keep only hashes, so the time that a
    /// look-up takes says nothing about a secret.
    pub(crate) fn hash(&self) -> blake3::Hash {
        blake3::hash(&*self.0)
    }
}

#[cfg(test)]
mod tests {
    use varve_world::RealRandom;

    use super::*;

    #[test]
    fn only_whole_secrets_are_parsed() {
        let secret = LoginSecret::draw(&RealRandom).unwrap();
        let text = secret.text();
        assert_eq!(LoginSecret::parse(&text).unwrap().hash(), secret.hash());
        for wrong in ["", &text[1..], &format!("{text}A"), &text.replace(&text[..1], "/")] {
            assert!(LoginSecret::parse(wrong).is_none(), "{wrong}");
        }
    }
}
