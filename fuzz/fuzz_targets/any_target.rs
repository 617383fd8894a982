//! Runs the target of [`varve_fuzz::TARGETS`] that `VARVE_FUZZ` names.
#![cfg_attr(fuzzing, no_main)]

#[cfg(fuzzing)]
libfuzzer_sys::fuzz_target!(|bytes: &[u8]| (varve_fuzz::chosen_target().run)(bytes));

/// On stable Rust: runs the target on each file that the command line names.
#[cfg(not(fuzzing))]
fn main() {
    for file in std::env::args_os().skip(1) {
        let bytes = std::fs::read(&file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        (varve_fuzz::chosen_target().run)(&bytes);
    }
}
