//! The program `varve`.

use std::process::ExitCode;

fn main() -> ExitCode {
    varve::run_archive()
}
