//! The number of blocks in a bench.

/// Returns N from `--blocks N`. Without the option, returns `short` under Cargo's test runner, else
/// `full`.
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
