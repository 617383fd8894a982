//! See `varve_fuzz::import::restic_key_file`.
#![cfg_attr(fuzzing, no_main)]

#[cfg(fuzzing)]
libfuzzer_sys::fuzz_target!(|bytes: &[u8]| varve_fuzz::import::restic_key_file(bytes));

#[cfg(not(fuzzing))]
fn main() {
    varve_fuzz::replay(varve_fuzz::import::restic_key_file);
}
