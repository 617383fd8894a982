//! See `varve_fuzz::vac::vac_meta_block`.
#![cfg_attr(fuzzing, no_main)]

#[cfg(fuzzing)]
libfuzzer_sys::fuzz_target!(|bytes: &[u8]| varve_fuzz::vac::vac_meta_block(bytes));

#[cfg(not(fuzzing))]
fn main() {
    varve_fuzz::replay(varve_fuzz::vac::vac_meta_block);
}
