//! See `varve_fuzz::daily::daily_config`.
#![cfg_attr(fuzzing, no_main)]

#[cfg(fuzzing)]
libfuzzer_sys::fuzz_target!(|bytes: &[u8]| varve_fuzz::daily::daily_config(bytes));

#[cfg(not(fuzzing))]
fn main() {
    varve_fuzz::replay(varve_fuzz::daily::daily_config);
}
