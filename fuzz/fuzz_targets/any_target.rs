//! Runs the target of [`varve_fuzz::TARGETS`] that `VARVE_FUZZ` names.
#![cfg_attr(fuzzing, no_main)]

#[cfg(fuzzing)]
libfuzzer_sys::fuzz_target!(|bytes: &[u8]| (varve_fuzz::chosen_target().run)(bytes));

/// On stable Rust: runs the target on each file that the command line names. With `--seeds FOLDER`
/// it writes the target's seeds there, from which a search begins.
#[cfg(not(fuzzing))]
fn main() {
    let mut arguments = std::env::args_os().skip(1).peekable();
    if arguments.next_if(|first| first == "--seeds").is_some() {
        let folder = std::path::PathBuf::from(arguments.next().expect("--seeds needs a folder"));
        for (number, seed) in (varve_fuzz::chosen_target().seeds)().iter().enumerate() {
            std::fs::write(folder.join(format!("seed-{number}")), seed).expect("the folder takes files");
        }
    }
    for file in arguments {
        let bytes = std::fs::read(&file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        (varve_fuzz::chosen_target().run)(&bytes);
    }
}
