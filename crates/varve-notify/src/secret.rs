//! Secrets in files.

use std::path::Path;

/// A longer file is no secret.
const SECRET_BYTES_MAX: u64 = 4_096;

/// Reads a secret, which is the first line of a file.
pub fn secret(file: &Path) -> Result<String, String> {
    let context = |error: std::io::Error| format!("{}: {error}", file.display());
    if std::fs::metadata(file).map_err(context)?.len() > SECRET_BYTES_MAX {
        return Err(format!("{} is too long for a secret", file.display()));
    }
    let text = std::fs::read_to_string(file).map_err(context)?;
    Ok(text.lines().next().unwrap_or_default().to_owned())
}
