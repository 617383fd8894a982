//! Parses the language in which LVM describes a group: sections of numbers, texts, lists and
//! sections.
#![deny(clippy::unwrap_used, clippy::indexing_slicing, clippy::arithmetic_side_effects)]

/// LVM nests four deep.
const DEPTH_MAX: usize = 16;

/// The value of a name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum LvmValue {
    Number(i64),
    Text(String),
    List(Vec<LvmValue>),
    Section(LvmSection),
}

impl LvmValue {
    pub(super) fn number(&self) -> Option<i64> {
        if let Self::Number(number) = self { Some(*number) } else { None }
    }

    pub(super) fn text(&self) -> Option<&str> {
        if let Self::Text(text) = self { Some(text) } else { None }
    }
}

/// Names and their values, in their order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct LvmSection(Vec<(String, LvmValue)>);

impl LvmSection {
    fn get(&self, name: &str) -> Option<&LvmValue> {
        self.0.iter().find(|(known, _)| known == name).map(|(_, value)| value)
    }

    pub(super) fn number(&self, name: &str) -> Option<i64> {
        self.get(name)?.number()
    }

    pub(super) fn text(&self, name: &str) -> Option<&str> {
        self.get(name)?.text()
    }

    pub(super) fn list(&self, name: &str) -> Option<&[LvmValue]> {
        if let LvmValue::List(list) = self.get(name)? { Some(list) } else { None }
    }

    pub(super) fn texts(&self, name: &str) -> impl Iterator<Item = &str> {
        self.list(name).unwrap_or_default().iter().filter_map(LvmValue::text)
    }

    pub(super) fn section(&self, name: &str) -> Option<&Self> {
        if let LvmValue::Section(section) = self.get(name)? { Some(section) } else { None }
    }

    pub(super) fn sections(&self) -> impl Iterator<Item = (&str, &Self)> {
        self.0.iter().filter_map(|(name, value)| match value {
            LvmValue::Section(section) => Some((name.as_str(), section)),
            _ => None,
        })
    }

    pub(super) fn into_sections(self) -> impl Iterator<Item = (String, Self)> {
        self.0.into_iter().filter_map(|(name, value)| match value {
            LvmValue::Section(section) => Some((name, section)),
            _ => None,
        })
    }
}

/// Parses a whole text; `None` if it is not in this language.
pub(super) fn parse(text: &[u8]) -> Option<LvmSection> {
    let mut parser = LvmParser { rest: text };
    let whole = parser.section(0)?;
    parser.skip_blank();
    // A text ends with a zero.
    parser.rest.iter().all(|byte| *byte == 0).then_some(whole)
}

struct LvmParser<'a> {
    rest: &'a [u8],
}

impl<'a> LvmParser<'a> {
    fn skip_blank(&mut self) {
        loop {
            self.rest = self.rest.trim_ascii_start();
            if self.rest.first() != Some(&b'#') {
                return;
            }
            self.take_while(|byte| byte != b'\n');
        }
    }

    fn take_while(&mut self, fits: impl Fn(u8) -> bool) -> &'a [u8] {
        let length = self.rest.iter().position(|byte| !fits(*byte)).unwrap_or(self.rest.len());
        let (taken, rest) = self.rest.split_at(length);
        self.rest = rest;
        taken
    }

    /// Consumes `expected` if it comes next.
    fn take(&mut self, expected: u8) -> bool {
        self.skip_blank();
        let rest = self.rest.strip_prefix(&[expected]);
        self.rest = rest.unwrap_or(self.rest);
        rest.is_some()
    }

    /// Parses up to a closing brace, which is not consumed, or to the end.
    fn section(&mut self, depth: usize) -> Option<LvmSection> {
        let mut section = LvmSection::default();
        loop {
            self.skip_blank();
            let name = self.take_while(|byte| byte.is_ascii_alphanumeric() || b"_.+-/".contains(&byte));
            if name.is_empty() {
                return Some(section);
            }
            let name = String::from_utf8(name.to_vec()).ok()?;
            let value = if self.take(b'{') {
                let inner = (depth < DEPTH_MAX).then(|| self.section(depth.saturating_add(1)))??;
                if !self.take(b'}') {
                    return None;
                }
                LvmValue::Section(inner)
            } else if self.take(b'=') {
                self.value()?
            } else {
                return None;
            };
            section.0.push((name, value));
        }
    }

    fn value(&mut self) -> Option<LvmValue> {
        if !self.take(b'[') {
            return self.plain();
        }
        let mut list = Vec::new();
        while !self.take(b']') {
            list.push(self.plain()?);
            self.take(b',');
        }
        Some(LvmValue::List(list))
    }

    fn plain(&mut self) -> Option<LvmValue> {
        if !self.take(b'"') {
            let word = self.take_while(|byte| byte.is_ascii_digit() || b"+-.".contains(&byte));
            // Fractions are dropped: no caller uses them.
            let whole = word.split(|byte| *byte == b'.').next()?;
            return Some(LvmValue::Number(std::str::from_utf8(whole).ok()?.parse().ok()?));
        }
        let mut text = Vec::new();
        loop {
            text.extend_from_slice(self.take_while(|byte| byte != b'"' && byte != b'\\'));
            match self.rest {
                [b'"', rest @ ..] => {
                    self.rest = rest;
                    return Some(LvmValue::Text(String::from_utf8(text).ok()?));
                }
                [b'\\', escaped, rest @ ..] => {
                    text.push(*escaped);
                    self.rest = rest;
                }
                _ => return None,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_description_is_read() {
        let text = br#"# Generated
vg0 {
  id = "abc-\"d" # said
  seqno = 12
  status = ["READ", "WRITE"]
  flags = []
  creation_time = 1700000000.5
  logical_volumes { lv-1 { segment_count = 1 segment1 { stripes = ["pv0", 7] } } }
}
contents = "Text Format Volume Group"
"#;
        let whole = parse(&[&text[..], b"\0"].concat()).unwrap();
        let group = whole.section("vg0").unwrap();
        assert_eq!((group.number("seqno"), group.text("id")), (Some(12), Some("abc-\"d")));
        assert_eq!(group.texts("status").collect::<Vec<_>>(), ["READ", "WRITE"]);
        assert_eq!(group.number("creation_time"), Some(1_700_000_000));
        let segment =
            group.section("logical_volumes").unwrap().section("lv-1").unwrap().section("segment1").unwrap();
        assert_eq!(segment.list("stripes").unwrap()[1].number(), Some(7));
    }

    #[test]
    fn nonsense_and_nests_without_end_are_refused() {
        for text in ["a", "a {", "a = ", "a = \"", "a = [1", "a = [1 \"x\\", "} a = 1", "a = -", "a { } }"] {
            assert_eq!(parse(text.as_bytes()), None, "{text}");
        }
        assert_eq!(parse("a { ".repeat(100_000).as_bytes()), None);
        assert!(parse(("a { ".repeat(10) + &"}".repeat(10)).as_bytes()).is_some());
    }
}
