//! The network block device protocol, in both roles: bytes in, messages out, no sockets.
