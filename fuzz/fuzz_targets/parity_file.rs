//! See `varve_fuzz::parity::parity_file`.
#![cfg_attr(fuzzing, no_main)]

#[cfg(fuzzing)]
libfuzzer_sys::fuzz_target!(|bytes: &[u8]| varve_fuzz::parity::parity_file(bytes));

#[cfg(not(fuzzing))]
fn main() {
    varve_fuzz::replay(varve_fuzz::parity::parity_file);
}
