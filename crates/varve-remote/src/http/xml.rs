//! Parses the XML of servers: elements with texts, as a stream of steps.

use quick_xml::errors::{IllFormedError, SyntaxError};
use quick_xml::events::Event;
use quick_xml::{Error, Reader};

use crate::attempt_error::AttemptError;

/// The greatest depth of elements. Servers send five levels.
const DEPTH_MAX: usize = 32;

/// A step through a document. Names have no prefix.
pub(crate) enum XmlEvent<'a> {
    Open(&'a str),
    /// An element ends. The second field is the text since the last tag.
    Close(&'a str, &'a str),
}

/// Calls `each` for every step of a document.
pub(crate) fn walk(
    document: &[u8],
    each: &mut dyn FnMut(XmlEvent<'_>) -> Result<(), AttemptError>,
) -> Result<(), AttemptError> {
    let mut reader = Reader::from_reader(document);
    let mut text = String::new();
    let mut depth = 0_usize;
    loop {
        let event = reader.read_event().map_err(|error| match is_cut(&error, document) {
            true => cut_short(error),
            false => malformed(error),
        })?;
        match event {
            Event::Start(tag) => {
                text.clear();
                depth += 1;
                if depth > DEPTH_MAX {
                    return Err(malformed("it is nested too deep"));
                }
                each(XmlEvent::Open(local(tag.name().as_ref())))?;
            }
            Event::Empty(tag) => {
                text.clear();
                each(XmlEvent::Open(local(tag.name().as_ref())))?;
                each(XmlEvent::Close(local(tag.name().as_ref()), ""))?;
            }
            Event::End(tag) => {
                depth = depth.saturating_sub(1);
                each(XmlEvent::Close(local(tag.name().as_ref()), &text))?;
                text.clear();
            }
            Event::Text(piece) => text.push_str(&piece.decode().map_err(malformed)?),
            Event::CData(piece) => text.push_str(&piece.decode().map_err(malformed)?),
            Event::GeneralRef(entity) => {
                let named = entity.decode().map_err(malformed)?;
                match (entity.resolve_char_ref().map_err(malformed)?, named.as_ref()) {
                    (Some(character), _) => text.push(character),
                    (None, "amp") => text.push('&'),
                    (None, "lt") => text.push('<'),
                    (None, "gt") => text.push('>'),
                    (None, "quot") => text.push('"'),
                    (None, "apos") => text.push('\''),
                    (None, _) => return Err(malformed("it has an undefined entity")),
                }
            }
            Event::Eof if depth > 0 => return Err(cut_short("an element is open")),
            Event::Eof => return Ok(()),
            _ => {}
        }
    }
}

/// Returns the text of the first element with this name. It is empty if there is none, or if the
/// document is not XML.
pub(crate) fn first_text(document: &[u8], name: &str) -> String {
    let mut found = String::new();
    // For an error's text, the part before malformed XML is enough.
    drop(walk(document, &mut |step| {
        if let XmlEvent::Close(closed, text) = step
            && closed == name
            && found.is_empty()
        {
            found = text.trim().chars().take(500).collect();
        }
        Ok(())
    }));
    found
}

fn local(name: &[u8]) -> &str {
    let name = std::str::from_utf8(name).unwrap_or_default();
    name.rsplit_once(':').map_or(name, |(_, local)| local)
}

/// Reports whether an error comes from the end of the document, and not from something in it.
fn is_cut(error: &Error, document: &[u8]) -> bool {
    let last = |wanted: u8| document.iter().rposition(|byte| *byte == wanted);
    match error {
        Error::Syntax(SyntaxError::InvalidBangMarkup) => last(b'<') > last(b'>'),
        Error::Syntax(_) => true,
        Error::IllFormed(IllFormedError::UnclosedReference) => last(b'&') > last(b'<'),
        _ => false,
    }
}

/// A connection without a length that breaks looks like a complete answer, so a retry may help.
fn cut_short(what: impl std::fmt::Display) -> AttemptError {
    AttemptError::passing(format!("the server's XML is cut short: {what}"))
}

/// The same request would get the same answer.
fn malformed(what: impl std::fmt::Display) -> AttemptError {
    AttemptError::refused(format!("the server's XML cannot be read: {what}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_whole() {
        let document =
            b"<?xml version='1.0'?><D:a xmlns:D='DAV:'><D:b>x &amp; &#121;<![CDATA[<z>]]></D:b><c/></D:a>";
        let mut seen = Vec::new();
        walk(document, &mut |step| {
            seen.push(match step {
                XmlEvent::Open(name) => format!("<{name}"),
                XmlEvent::Close(name, text) => format!("{name}>{text}"),
            });
            Ok(())
        })
        .unwrap();
        assert_eq!(seen, ["<a", "<b", "b>x & y<z>", "<c", "c>", "a>"]);
        assert_eq!(first_text(document, "b"), "x & y<z>");
        assert_eq!(first_text(b"no xml at all", "b"), "");
    }

    #[test]
    fn damage_is_an_error() {
        let walked = |document: &str| walk(document.as_bytes(), &mut |_| Ok(()));
        for document in
            ["<a><b></a></b>", "<a>&bomb;</a>", "<a></b>", "<a><!x></a>", "<a>x & y</a>", &"<a>".repeat(100)]
        {
            assert!(matches!(walked(document), Err(AttemptError::Refused(_))), "{document}");
        }
        let whole = "<a><b>text &amp; <![CDATA[more]]></b><!-- note --><c x='y'/></a>";
        walked(whole).unwrap();
        for length in 1..whole.len() {
            let cut = walked(&whole[..length]);
            assert!(matches!(cut, Err(AttemptError::Passing(..))), "{}: {cut:?}", &whole[..length]);
        }
    }
}
