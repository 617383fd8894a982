//! The words of `varve serve`.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{ArgGroup, Args, ValueHint};
use varve_serve::nbd::Endpoint;

use super::value::parse_size;

pub const SERVE_HELP: &str = "\
Disk images are exports of a network block device server, named as snapshots are: NAME is the newest of that name, NAME@2026-05-01, \
latest, or an id. New snapshots appear while it runs. It ends at the first signal to end, once the requests that have come are answered.

Examples:
  varve -s /backup/store serve --nbd 127.0.0.1:10809         every image, to be read
  nbdinfo --list nbd://localhost                             what there is
  qemu-img compare vm.raw nbd://localhost/vm@2026-05-01      is it the same?
  nbd-client localhost /dev/nbd0 -N vm@2026-05-01            as a block device of this machine
  varve -s /backup/store serve --nbd unix:vm.sock --export vm@2026-05-01 --overlay changes
                                                             that night, to be written to
  varve -s /backup/store serve --nfs 127.0.0.1:11111         all days, as `varve mount` shows them
  mount -t nfs -o ro,nolock,vers=3,tcp,port=11111,mountport=11111 127.0.0.1:/ days
  varve -s /backup/store serve --webdav 127.0.0.1:8080       the same, for http://127.0.0.1:8080/";

#[derive(Debug, Clone, Args)]
#[command(group = ArgGroup::new("doors").required(true).multiple(true).args(["nbd", "nfs", "webdav"]))]
pub struct Serve {
    /// Serve disk images as network block devices: at HOST:PORT, :PORT (on all addresses) or unix:PATH
    #[arg(long, value_name = "ADDRESS")]
    pub nbd: Option<Endpoint>,

    /// Serve only this snapshot; it is then also what a client gets that names none
    #[arg(long, value_name = "SNAPSHOT", requires = "nbd")]
    pub export: Option<String>,

    /// Let clients write; what they write is kept in this file, which grows by what is written, and is there the next time
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, requires = "export")]
    pub overlay: Option<PathBuf>,

    /// Let clients write; what they write is thrown away at the end
    #[arg(long, requires = "export", conflicts_with = "overlay")]
    pub writable: bool,

    /// Serve nobody without TLS: a certificate, its key, and if clients must have certificates, their authority's (PEM files)
    #[arg(long, value_name = "CERT,KEY[,AUTHORITY]", requires = "nbd", value_parser = parse_tls)]
    pub nbd_tls: Option<TlsFiles>,

    /// How many clients of network block devices there may be at the same time
    #[arg(long, value_name = "COUNT", default_value_t = 64, value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub nbd_clients: u16,

    /// How much of what was read is kept in memory, unpacked [default: an eighth of the machine's memory, from 64M to 4G]
    #[arg(long, value_name = "BYTES", value_parser = parse_size)]
    pub memory: Option<u64>,

    /// Serve all snapshots as a file system of days by NFS (version 3): at IP:PORT
    #[arg(long, value_name = "ADDRESS")]
    pub nfs: Option<SocketAddr>,

    /// Serve the same by WebDAV: at IP:PORT
    #[arg(long, value_name = "ADDRESS")]
    pub webdav: Option<SocketAddr>,

    /// Let --nfs and --webdav be reached from other machines: whoever comes reads the whole archive, in plain
    #[arg(long)]
    pub expose: bool,
}

/// Where the parts of an identity are.
#[derive(Debug, Clone)]
pub struct TlsFiles {
    pub certificate: PathBuf,
    pub key: PathBuf,
    pub authority: Option<PathBuf>,
}

fn parse_tls(text: &str) -> Result<TlsFiles, String> {
    let parts: Vec<&str> = text.split(',').collect();
    let (certificate, key, authority) = match parts.as_slice() {
        [certificate, key] => (certificate, key, None),
        [certificate, key, authority] => (certificate, key, Some(authority)),
        _ => return Err("write CERT,KEY or CERT,KEY,AUTHORITY".into()),
    };
    Ok(TlsFiles {
        certificate: certificate.into(),
        key: key.into(),
        authority: authority.map(|path| path.into()),
    })
}
