//! Reparse points. Links are decoded. For some of the other kinds, the keeper of the file's content
//! is known.
//!
//! | offset | bytes | of a symbolic link | of a junction |
//! |-------:|------:|--------------------|---------------|
//! |      0 |     4 | kind               | kind          |
//! |      4 |     2 | bytes after offset 8 | the same    |
//! |      8 |     4 | place and length of the target among the names | the same |
//! |     12 |     4 | place and length of the target for people | the same |
//! |     16 |     4 | flags: 1, if the target is relative | names, in UTF-16 |
//! |     20 |       | names, in UTF-16   |               |

use crate::bytes::fields::{u16_at, u32_at};

const SYMBOLIC_LINK: u32 = 0xa000_000c;
const JUNCTION: u32 = 0xa000_0003;
/// A link of the Windows Subsystem for Linux. Its target is in UTF-8 from offset 12 on.
const LINUX_LINK: u32 = 0xa000_001d;

/// Returns the target of a link; `None` if it is not a link. Backslashes become slashes.
pub(super) fn target(bytes: &[u8]) -> Option<Vec<u8>> {
    let names = match u32_at(bytes, 0) {
        SYMBOLIC_LINK => 20,
        JUNCTION => 16,
        LINUX_LINK => return bytes.get(12..).filter(|target| is_target(target)).map(<[u8]>::to_vec),
        _ => return None,
    };
    let of_names = |at: usize| {
        let start = usize::from(u16_at(bytes, at)).checked_add(names)?;
        let end = usize::from(u16_at(bytes, at.checked_add(2)?)).checked_add(start)?;
        bytes.get(start..end).filter(|name| !name.is_empty())
    };
    // The name for display is preferred: the other may begin with a prefix that only the Windows
    // kernel knows.
    let name = of_names(12).or_else(|| of_names(8))?;
    let units = name.as_chunks::<2>().0.iter().map(|unit| u16::from_le_bytes(*unit));
    let text: String = char::decode_utf16(units).map(|read| read.unwrap_or('\u{fffd}')).collect();
    let text = text.strip_prefix(r"\??\").unwrap_or(&text).replace('\\', "/");
    Some(text.into_bytes()).filter(|target| is_target(target))
}

/// Returns the feature that is needed to read a file whose content a reparse point stores
/// elsewhere.
pub(super) fn keeper(bytes: &[u8]) -> String {
    const ANY_CLOUD: u32 = 0xffff_0fff;
    match u32_at(bytes, 0) {
        0x8000_0017 => "compression of Windows system files (WOF)".into(),
        0x8000_0013 => "Windows deduplication".into(),
        kind if kind & ANY_CLOUD == 0x9000_001a => "content that is kept in a cloud".into(),
        kind => format!("the reparse point type {kind:#010x}"),
    }
}

fn is_target(target: &[u8]) -> bool {
    !target.is_empty() && !target.contains(&0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn link(kind: u32, flags: &[u8], substitute: &str, print: &str) -> Vec<u8> {
        let wide = |text: &str| text.encode_utf16().flat_map(u16::to_le_bytes).collect::<Vec<u8>>();
        let (substitute, print) = (wide(substitute), wide(print));
        let number = |length: usize| u16::try_from(length).unwrap().to_le_bytes();
        let mut bytes = kind.to_le_bytes().to_vec();
        bytes.extend([0; 4]);
        for length in [0, substitute.len(), substitute.len(), print.len()] {
            bytes.extend(number(length));
        }
        [bytes, flags.to_vec(), substitute, print].concat()
    }

    #[test]
    fn links_lead_where_windows_says() {
        let relative = link(SYMBOLIC_LINK, &[1, 0, 0, 0], r"..\a\b", r"..\a\b");
        assert_eq!(target(&relative).unwrap(), b"../a/b");
        let junction = link(JUNCTION, &[], r"\??\C:\Users", "");
        assert_eq!(target(&junction).unwrap(), b"C:/Users");
        let linux = [&LINUX_LINK.to_le_bytes()[..], &[0; 8], b"../c"].concat();
        assert_eq!(target(&linux).unwrap(), b"../c");
    }

    #[test]
    fn what_is_no_link_leads_nowhere() {
        let whole = link(SYMBOLIC_LINK, &[0; 4], "a", "b");
        for length in 0..whole.len() {
            let cut = target(&whole[..length]);
            assert!(cut.is_none_or(|target| target == b"a"), "{length}");
        }
        assert_eq!(target(&link(0x8000_0017, &[], "a", "b")), None);
        assert_eq!(target(&link(JUNCTION, &[], "", "")), None);
        assert_eq!(keeper(&link(0x9000_601a, &[], "a", "b")), "content that is kept in a cloud");
    }
}
