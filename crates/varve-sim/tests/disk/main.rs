//! The simulated disk: its faults and its rot, and a proof that it is strict enough to catch an
//! engine's mistakes.

mod faults;
mod rot;
mod strict;
