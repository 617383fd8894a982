//! A stored block from a server or a cache: first compared with its name, then decrypted and
//! decompressed.

use crate::block_form::BlockForm;
use crate::object_name::ObjectName;
use crate::stored_block::{UnpackError, unpack_block};

/// Bytes that do not have the name under which they were requested.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("these bytes are {actual}, but {expected} was published")]
pub struct WrongBytesError {
    pub expected: ObjectName,
    pub actual: ObjectName,
}

/// A stored block whose bytes have the expected name.
#[derive(Debug, Clone, Copy)]
pub struct CheckedBlock<'a>(&'a [u8]);

impl<'a> CheckedBlock<'a> {
    /// Compares bytes from a server with the name of the block.
    ///
    /// # Errors
    /// [`WrongBytesError`] if they are not the published ones.
    pub fn check(stored: &'a [u8], expected: &ObjectName) -> Result<Self, WrongBytesError> {
        let actual = ObjectName::of(stored);
        if actual == *expected {
            Ok(Self(stored))
        } else {
            Err(WrongBytesError { expected: *expected, actual })
        }
    }

    /// Returns the stored bytes.
    #[must_use]
    pub fn bytes(self) -> &'a [u8] {
        self.0
    }

    /// Decrypts and decompresses the content, of at most `bytes_max` bytes. Allocates no more than
    /// that and the stored bytes.
    ///
    /// # Errors
    /// [`UnpackError`].
    pub fn unpack(self, form: &BlockForm, bytes_max: usize) -> Result<Vec<u8>, UnpackError> {
        match form.decrypt(self.0)? {
            None => unpack_block(self.0, bytes_max),
            Some(plain) => unpack_block(&plain, bytes_max),
        }
    }
}
