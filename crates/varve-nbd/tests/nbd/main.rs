//! NBD: the bytes of its messages, and a client against a server.

mod codec;
mod pair;
