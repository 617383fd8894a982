//! The file of a trace that a recorder writes. It is good at any moment: without its end, it is a
//! trace that was cut.

use std::fs::OpenOptions;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// Makes the new file of a trace, which only its owner can read.
pub fn create(path: &Path) -> io::Result<Box<dyn Write + Send>> {
    let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    Ok(Box::new(file))
}

/// The name of this program in the header of a trace.
pub fn maker() -> String {
    format!("varve {}", env!("CARGO_PKG_VERSION"))
}
