//! The memory that idle clients take. The memory of a process is that of all its tests, so this
//! test has a process of its own.

#[path = "front_ends/venti_clients.rs"]
mod venti_clients;

use std::fs;
use std::sync::Arc;

use varve_serve::venti::{ListenAccess, VentiSettings};

use venti_clients::{Blocks, Client, read, serve};

#[test]
fn a_thousand_idle_clients_cost_under_100_mb() {
    fn memory_bytes() -> u64 {
        let status = fs::read_to_string("/proc/self/status").unwrap();
        let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
        let kib: u64 = line.split_ascii_whitespace().nth(1).unwrap().parse().unwrap();
        kib << 10
    }
    let limits = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    let wanted = rustix::process::Rlimit { current: limits.maximum, ..limits };
    rustix::process::setrlimit(rustix::process::Resource::Nofile, wanted).unwrap();
    let blocks = Arc::new(Blocks::default());
    let server = serve(&blocks, ListenAccess::ReadWrite, VentiSettings::default());
    let before = memory_bytes();
    let mut clients: Vec<Client> = (0..1000).map(|_| Client::new(&server)).collect();
    for client in &mut clients {
        client.write(&[9; 8192]).unwrap();
    }
    let grown = memory_bytes().saturating_sub(before);
    assert!(grown < 100 << 20, "{grown} bytes, the clients' own ends included");
    assert_eq!(server.counts().clients, 1000);
    // The last client is served like the first.
    clients.last_mut().unwrap().ask(&read(&[9; 8192])).unwrap();
}
