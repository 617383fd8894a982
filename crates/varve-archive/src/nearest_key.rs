//! The key of a file that was probably meant by one that nobody knows.

/// Returns the end of a message about an unknown key: the known key that is nearest to it, or
/// nothing if none is so near that at most `distance_max` letters differ.
pub(crate) fn nearest_key_hint<K: AsRef<str> + Ord>(
    key: &str,
    known: impl Iterator<Item = K>,
    distance_max: usize,
) -> String {
    let nearest = known.map(|known| (strsim::damerau_levenshtein(known.as_ref(), key), known)).min();
    let nearest = nearest.filter(|(distance, _)| *distance <= distance_max);
    nearest.map_or_else(String::new, |(_, known)| format!(": did you mean {}?", known.as_ref()))
}
