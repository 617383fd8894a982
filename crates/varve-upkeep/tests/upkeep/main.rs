//! Checks and repairs of stores with damaged, missing and unreadable files.

mod parity;
mod reclaim;
mod withheld;
