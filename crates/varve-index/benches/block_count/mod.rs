//! How many blocks a bench is about.

/// What `--blocks N` says; else `full`, or `short` when Cargo's test runner runs it.
pub fn block_count(full: u64, short: u64) -> u64 {
    let arguments: Vec<String> = std::env::args().collect();
    let given =
        arguments.iter().position(|argument| argument == "--blocks").and_then(|at| arguments.get(at + 1));
    match given {
        Some(number) => number.parse().expect("--blocks takes a number"),
        None if arguments.iter().any(|argument| argument == "--bench") => full,
        None => short,
    }
}
