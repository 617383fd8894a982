//! See `varve_fuzz::log::clump_body`.
#![cfg_attr(fuzzing, no_main)]

#[cfg(fuzzing)]
libfuzzer_sys::fuzz_target!(|bytes: &[u8]| varve_fuzz::log::clump_body(bytes));

#[cfg(not(fuzzing))]
fn main() {
    varve_fuzz::replay(varve_fuzz::log::clump_body);
}
