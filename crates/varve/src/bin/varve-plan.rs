//! The program `varve-plan`.

use std::process::ExitCode;

fn main() -> ExitCode {
    varve::run_planning()
}
