//! The simulated disk: its faults, its rot, and that it is strict enough to catch an engine's mistakes.

mod faults;
mod rot;
mod strict;
