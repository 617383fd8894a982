//! The address of a publication, with the key that makes its server unimportant:
//! `https://HOST/PATH/#varve1-KEY`.

use std::fmt;
use std::str::FromStr;

use crate::edition_key::{ADDRESS_KEY_HEAD, EditionKey, EditionKeyError};

/// The place of a publication, and the key of its publisher if the address has one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PublicationAddress {
    /// A URL, or the path of a folder, without a slash at its end.
    pub place: String,
    pub key: Option<EditionKey>,
}

/// The reason why a text is not the address of a publication.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AddressError {
    #[error("the address of a publication is empty")]
    Empty,
    #[error("{0}")]
    Key(#[from] EditionKeyError),
}

impl FromStr for PublicationAddress {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        // A folder may have a `#` in its name, so only the beginning of a key ends the place.
        let mark = format!("#{ADDRESS_KEY_HEAD}");
        let (place, key) = match text.rfind(&mark) {
            Some(at) => text.split_at(at),
            None => (text, ""),
        };
        let key = key.strip_prefix('#').map(str::parse).transpose()?;
        let short = place.trim_end_matches('/');
        match (short, place) {
            ("", "") => Err(AddressError::Empty),
            ("", root) => Ok(Self { place: root.chars().take(1).collect(), key }),
            _ => Ok(Self { place: short.to_owned(), key }),
        }
    }
}

impl fmt::Display for PublicationAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let slash = if self.place.ends_with('/') { "" } else { "/" };
        write!(f, "{}{slash}", self.place)?;
        self.key.map_or(Ok(()), |key| write!(f, "#{key}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::EditionSigner;

    #[test]
    fn addresses_are_read_as_they_are_written() {
        let key = EditionSigner::from_seed([1; 32]).key();
        for (text, place, has_key, shown) in [
            (
                format!("https://a.example/b/#{key}"),
                "https://a.example/b",
                true,
                format!("https://a.example/b/#{key}"),
            ),
            (format!("/srv/www#{key}"), "/srv/www", true, format!("/srv/www/#{key}")),
            ("/srv/#1/x".to_owned(), "/srv/#1/x", false, "/srv/#1/x/".to_owned()),
            (format!("/#{key}"), "/", true, format!("/#{key}")),
        ] {
            let address: PublicationAddress = text.parse().unwrap();
            assert_eq!((address.place.as_str(), address.key.is_some()), (place, has_key));
            assert_eq!(address.to_string(), shown);
            assert_eq!(shown.parse(), Ok(address));
        }
        assert!("".parse::<PublicationAddress>().is_err());
        assert!("https://a.example/#varve1-short".parse::<PublicationAddress>().is_err());
    }
}
