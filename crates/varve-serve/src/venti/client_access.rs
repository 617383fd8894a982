//! The permissions of a client, and the record of its writes.

use std::sync::Arc;

use super::sessions::OpenSession;

/// The client's permission, and the session in which its writes are recorded.
#[derive(Clone)]
pub(super) enum ClientAccess {
    ReadOnly,
    ReadWrite(Option<Arc<OpenSession>>),
}
