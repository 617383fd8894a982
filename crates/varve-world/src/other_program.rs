//! Other programs that this one starts: without its secrets, with limits, and with an end.

pub(crate) mod bounded_run;
pub(crate) mod hidden_secrets;
pub(crate) mod program_group;
