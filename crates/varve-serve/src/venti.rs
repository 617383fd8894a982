//! A Venti server: serves blocks to every program that speaks Venti's protocol.
//!
//! ```text
//! socket ─▶ reader: requests ─▶ jobs of one kind, on many threads ─▶ replies ─▶ outbox ─▶ socket
//!              ▲                          │                                        │
//!              └── room: of this client, and of all ◀──────────────────────────────┘
//! ```
//!
//! Invariants:
//! - A block is acknowledged once the store has it. A sync is answered once everything is durable
//!   that was requested before it on the same connection.
//! - An acknowledged block becomes durable some seconds later, or when its writer's connection is
//!   closed, even if no client syncs.
//! - Memory is bounded: requests and unsent answers take room in a budget of each client and in a
//!   common one. The server does not read from a client that is over its budget.
//! - No wait is unbounded: clients that stop in the middle of a message, do not take their answers
//!   or have vanished are dropped.
//! - After a failure to write to the store, nothing more is written: every writer gets an error,
//!   and reads continue.
//! - A block whose score belongs to other bytes is refused, with an error to its writer and in the
//!   log.
//!
//! It serves any block store whose scores are SHA-1. The crate `varve-venti` has the protocol
//! itself.

mod answer;
mod answers;
mod byte_budget;
mod client_access;
mod connection;
mod connection_error;
mod flush;
mod inherited;
mod listen;
mod notify;
mod outbox;
mod read_pace;
mod recent_reads;
mod server;
mod sessions;
mod start_error;
mod state;
mod unsynced;
mod venti_settings;

pub use inherited::{InheritError, InheritedSockets};
pub use listen::{ListenAccess, ListenAddress, ListenAt, ParseListenAtError};
pub use notify::{ServiceState, notify};
pub use server::VentiServer;
pub use sessions::{ClientSession, ClientSessions, blocks_of, list_sessions, mark_sessions};
pub use start_error::StartError;
pub use state::VentiCounts;
pub use venti_settings::VentiSettings;
