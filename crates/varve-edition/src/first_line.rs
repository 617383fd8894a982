//! The first line of each text: what it is, and the version of its format.

/// Returns the version in the first line of a text if it is later than that of `known`, the first
/// line that this program writes.
pub(crate) fn later_version(text: &str, known: &str) -> Option<u32> {
    let (kind, known) = known.rsplit_once(' ')?;
    let version = text.lines().next()?.strip_prefix(kind)?.strip_prefix(' ')?;
    // One number has one spelling.
    let number: u32 = version.parse().ok().filter(|number: &u32| number.to_string() == version)?;
    (number > known.parse().ok()?).then_some(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_later_version_is_one() {
        let later = |text| later_version(text, "varve thing 2");
        assert_eq!(later("varve thing 3\nmore"), Some(3));
        assert_eq!(later("varve thing 4294967295"), Some(u32::MAX));
        for text in [
            "varve thing 2",
            "varve thing 1",
            "varve thing 03",
            "varve thing",
            "varve thing 3 ",
            "varve things 3",
            "varve thing 4294967296",
            "",
            "\nvarve thing 3",
        ] {
            assert_eq!(later(text), None, "{text:?}");
        }
    }
}
