//! Blocks, for every program that speaks Venti's protocol.
//!
//! ```text
//! socket ─▶ reader: requests ─▶ jobs of one kind, on many threads ─▶ replies ─▶ outbox ─▶ socket
//!              ▲                          │                                        │
//!              └── room: of this client, and of all ◀──────────────────────────────┘
//! ```
//!
//! What must always be true:
//! - A block is acknowledged once the store has it, and a sync once all is durable that was asked for before it on the same connection.
//! - A block that was acknowledged is durable some seconds later, or when its writer's connection has been closed, if no client has synced before.
//! - Memory is bounded: what clients have asked for and not taken yet has room in a budget, each client's and everybody's. Who is over it is not
//!   listened to until there is room again.
//! - Nobody waits for ever for somebody who says half a word, takes no answer, or has vanished.
//! - Once the store could not write, nothing more is written: every writer is told so, and reads go on.
//! - A block whose score is taken by other bytes is refused, with an error to its writer and in the log.
//!
//! It serves any block store whose scores are SHA-1. The protocol itself is `varve-venti`'s.

mod answer;
mod answers;
mod connection;
mod connection_error;
mod flush;
mod inherited;
mod listen;
mod notify;
mod outbox;
mod read_pace;
mod recent;
mod room;
mod server;
mod sessions;
mod settings;
mod start_error;
mod state;

pub use inherited::{InheritError, Inherited};
pub use listen::{Access, ListenAt, Listening, ParseListenAtError};
pub use notify::{Notice, notify};
pub use server::VentiServer;
pub use sessions::{Session, Sessions, blocks_of, list_sessions, mark_sessions};
pub use settings::VentiSettings;
pub use start_error::StartError;
pub use state::VentiCounts;
