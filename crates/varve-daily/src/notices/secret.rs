//! Secrets in files.

use std::io::{self, Read};
use std::path::Path;

use varve_world::{FileUse, open_trusted};

/// A longer file is no secret.
const SECRET_BYTES_MAX: u64 = 4_096;

/// Reads a secret, which is the first line of a file. The file is refused if others may read or
/// write it, as the key files of stores are.
pub fn secret(file: &Path) -> Result<String, String> {
    let mut text = String::new();
    let opened = open_trusted(file, FileUse::Secret);
    let read = opened.and_then(|file| file.take(SECRET_BYTES_MAX + 1).read_to_string(&mut text));
    match read.map_err(|error| named(file, &error))? as u64 {
        ..=SECRET_BYTES_MAX => Ok(text.lines().next().unwrap_or_default().to_owned()),
        _ => Err(format!("{} is too long for a secret", file.display())),
    }
}

/// Describes an error, with the name of the file.
fn named(file: &Path, error: &io::Error) -> String {
    let (text, name) = (error.to_string(), file.display().to_string());
    if text.starts_with(&name) { text } else { format!("{name}: {text}") }
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_secret_is_for_its_owner() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("token");
        fs::write(&file, "tk_secret\nmore\n").unwrap();
        fs::set_permissions(&file, Permissions::from_mode(0o600)).unwrap();
        assert_eq!(secret(&file).unwrap(), "tk_secret");
        fs::set_permissions(&file, Permissions::from_mode(0o644)).unwrap();
        let error = secret(&file).unwrap_err();
        assert!(error.contains(&format!("`chmod 600 {}`", file.display())), "{error}");
        fs::set_permissions(&file, Permissions::from_mode(0o600)).unwrap();
        fs::write(&file, "x".repeat(5_000)).unwrap();
        assert!(secret(&file).unwrap_err().ends_with("is too long for a secret"));
        assert!(secret(&folder.path().join("none")).unwrap_err().contains("none: No such file"));
    }
}
