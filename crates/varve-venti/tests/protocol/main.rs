//! Venti: recorded transcripts, connections, and the arenas of plan9port.

mod arenas;
mod connections;
mod transcripts;
