//! Kinds of files as numbers, and names of any bytes, as all file systems of Unix have them.

use crate::file_systems::file_system::FileKind;

/// Returns the kind in the upper bits of a mode; `None` for an unknown one.
pub(crate) fn kind_of_mode(mode: u32) -> Option<FileKind> {
    Some(match mode >> 12 {
        0o01 => FileKind::Fifo,
        0o02 => FileKind::CharacterDevice,
        0o04 => FileKind::Folder,
        0o06 => FileKind::BlockDevice,
        0o10 => FileKind::File,
        0o12 => FileKind::SymbolicLink,
        0o14 => FileKind::Socket,
        _ => return None,
    })
}

/// Returns the kind that an entry of a folder states; `None` if it states none, or an unknown one.
pub(crate) fn kind_of_entry(number: u8) -> Option<FileKind> {
    Some(match number {
        1 => FileKind::File,
        2 => FileKind::Folder,
        3 => FileKind::CharacterDevice,
        4 => FileKind::BlockDevice,
        5 => FileKind::Fifo,
        6 => FileKind::Socket,
        7 => FileKind::SymbolicLink,
        _ => return None,
    })
}

/// Returns the number by which an entry of a folder states this kind.
pub(crate) fn entry_of_kind(kind: FileKind) -> u8 {
    match kind {
        FileKind::File => 1,
        FileKind::Folder => 2,
        FileKind::CharacterDevice => 3,
        FileKind::BlockDevice => 4,
        FileKind::Fifo => 5,
        FileKind::Socket => 6,
        FileKind::SymbolicLink => 7,
    }
}

/// Escapes a name for use in a path. Valid names stay as they are.
pub(crate) fn shown_name(name: &[u8]) -> Vec<u8> {
    let is_dots = [&b"."[..], b".."].contains(&name);
    if !is_dots && !name.iter().any(|byte| [b'/', 0].contains(byte)) {
        return name.to_vec();
    }
    let mut shown = Vec::new();
    for byte in name {
        match byte {
            b'/' => shown.extend_from_slice(b"%2F"),
            0 => shown.extend_from_slice(b"%00"),
            b'.' if is_dots => shown.extend_from_slice(b"%2E"),
            other => shown.push(*other),
        }
    }
    shown
}
