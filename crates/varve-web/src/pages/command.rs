//! Commands that a page shows for a shell, and the script that copies them.

use varve_archive::Snapshot;

use crate::show;
use crate::site::PageRequest;

/// The only script of the page. The policy of a page with commands names it by its hash.
pub(crate) const COPY_SCRIPT: &str = include_str!("../copy.js");

/// The digits of an id that a command has.
const ID_DIGITS: usize = 12;

/// A whole command, with the store that this page shows.
pub(crate) fn varve_command(request: &PageRequest, words: &[&[u8]]) -> String {
    command_line(request.site.store_name.as_deref(), words)
}

fn command_line(store: Option<&[u8]>, words: &[&[u8]]) -> String {
    let mut line = "varve".to_owned();
    let named = store.map_or_else(Vec::new, |store| vec![&b"-s"[..], store]);
    for word in named.iter().chain(words) {
        line.push(' ');
        line.push_str(&show::shell_word(word));
    }
    line
}

/// The command that restores a path of a snapshot, or all of it.
pub(crate) fn restore_command(request: &PageRequest, snapshot: &Snapshot, path: &[u8]) -> String {
    let id = id_of(snapshot);
    let place = if path.is_empty() { id.into_bytes() } else { [id.as_bytes(), b":", path].concat() };
    varve_command(request, &[b"restore", &place, b"./restored"])
}

/// The beginning of an id, as commands name a snapshot.
pub(crate) fn id_of(snapshot: &Snapshot) -> String {
    snapshot.id.to_string().chars().take(ID_DIGITS).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_is_complete_and_quoted() {
        let words = [&b"restore"[..], b"0123:it's here", b"./restored"];
        assert_eq!(
            command_line(Some(b"/backup/my store"), &words),
            "varve -s '/backup/my store' restore '0123:it'\\''s here' ./restored"
        );
        assert_eq!(command_line(None, &[b"boot", b"0123"]), "varve boot 0123");
    }

    #[test]
    fn the_script_ends_no_element() {
        assert!(!COPY_SCRIPT.contains('<'));
    }
}
