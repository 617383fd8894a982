//! The targets on real servers. Each server is started on a free port of this machine, keeps its
//! state in a folder of its own, and is ended by its process id. A server that is not installed is
//! skipped, and its name is printed. `script/test servers` installs it.
#![expect(
    clippy::disallowed_methods,
    reason = "servers, proxies and creators at the same time need threads and clocks"
)]
#![expect(clippy::print_stdout, reason = "what is skipped is named, and what was measured is shown")]

mod faults;
mod hostile;
mod hostile_ftp;
mod kinds;
mod lonely_server;
mod mounts;
mod promises;
mod proxy;
mod web;
mod web_http2;
