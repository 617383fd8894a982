//! The arguments of `varve serve`.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{ArgGroup, Args, ValueHint};
use varve_block::to_usize;
use varve_serve::nbd::Endpoint;
use varve_serve::venti::ListenAt;

use super::snapshot_filter::SnapshotFilterArgs;
use super::value::parse_size;

pub const SERVE_HELP: &str = "\
Disk images are exports of an NBD server, named like snapshots: NAME (the newest of that name), NAME@2026-05-01, latest, or an id. \
New snapshots appear while it runs. It ends at the first signal to end, after it has answered the requests that have arrived.

Examples:
  varve -s /backup/store serve --nbd 127.0.0.1:10809         all images, read-only
  nbdinfo --list nbd://localhost                             list the exports
  qemu-img compare vm.raw nbd://localhost/vm@2026-05-01      compare an image with an export
  nbd-client localhost /dev/nbd0 -N vm@2026-05-01            attach it as a block device of this machine
  varve -s /backup/store serve --nbd unix:vm.sock --export vm@2026-05-01 --overlay changes
                                                             a writable disk over that day
  varve -s /backup/store serve --nfs 127.0.0.1:11111         all days, as `varve mount` shows them
  mount -t nfs -o ro,nolock,vers=3,tcp,port=11111,mountport=11111 127.0.0.1:/ days
  varve -s /backup/store serve --webdav 127.0.0.1:8080       the same, for http://127.0.0.1:8080/
  varve -s /backup/store serve --http 127.0.0.1:8200         the web page, for a browser: docs/guide/web-page.md
  varve -s /backup/sha1 serve --venti localhost              blocks, for vac and other Venti clients
  varve -s /backup/sha1 serve --venti-read-only 'tcp!*!17035' --expose
                                                             the same for the network, read-only
  varve -s /backup/sha1 serve --venti localhost --metrics 127.0.0.1:9103
                                                             with metrics at http://127.0.0.1:9103/metrics

A proxy is served instead of a store: one or several Venti servers behind a cache, a write buffer and the like.
  varve -s venti://far serve --venti localhost --look-aside /var/cache/varve --look-aside-size 10G
                                                             blocks that were read are cached here
  varve -s venti://far serve --venti localhost --write-buffer /var/spool/varve
                                                             writes are acknowledged at once, and sent on when possible
  varve serve --venti localhost --shard venti://one --shard venti://two
                                                             two servers as one
  varve serve --venti localhost --proxies proxies.toml       the proxies in the file (docs/guide/venti.md)
  varve -s venti://far serve --nfs 127.0.0.1:11111 --look-aside /var/cache/varve
                                                             the snapshots at that server";

const PROXIES: &str = "Proxies";

#[derive(Debug, Clone, Args)]
#[command(group = ArgGroup::new("doors").required(true).multiple(true).args(["nbd", "nfs", "webdav", "http", "venti", "venti_read_only"]))]
pub struct ServeArgs {
    /// Serve disk images as network block devices: at HOST:PORT, :PORT (on all addresses) or
    /// unix:PATH
    #[arg(long, value_name = "ADDRESS")]
    pub nbd: Option<Endpoint>,

    /// Serve only this snapshot; a client that names none gets it, too
    #[arg(long, value_name = "SNAPSHOT", requires = "nbd")]
    pub export: Option<String>,

    /// Let clients write, and keep their writes in this file for the next time
    ///
    /// The file grows with each write.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, requires = "export")]
    pub overlay: Option<PathBuf>,

    /// Let clients write, and discard their writes at the end
    #[arg(long, requires = "export", conflicts_with = "overlay")]
    pub writable: bool,

    /// Record the reads of the disk in this new file, for `publish --profile`
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, requires = "export")]
    pub profile: Option<PathBuf>,

    /// Require TLS: a certificate, its key, and if clients need certificates, those of their
    /// authority (PEM files)
    #[arg(long, value_name = "CERT,KEY[,AUTHORITY]", requires = "nbd", value_parser = parse_tls)]
    pub nbd_tls: Option<TlsFiles>,

    /// The maximum number of NBD clients
    #[arg(long, value_name = "COUNT", default_value_t = 64, value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub nbd_clients: u16,

    /// The memory for decompressed blocks that were read [default: an eighth of the machine's
    /// memory, from 64M to 4G]
    #[arg(long, value_name = "BYTES", value_parser = parse_size)]
    pub memory: Option<u64>,

    /// Serve all snapshots as a file system of days by NFS (version 3): at IP:PORT
    #[arg(long, value_name = "ADDRESS")]
    pub nfs: Option<SocketAddr>,

    /// Serve the same file system by WebDAV: at IP:PORT
    #[arg(long, value_name = "ADDRESS")]
    pub webdav: Option<SocketAddr>,

    /// Serve the web page: look into all snapshots with a browser, read-only: at IP:PORT
    ///
    /// Prints a link that logs in one browser within five minutes. The signal USR1 prints another
    /// one. A session ends after twelve hours, or with the server.
    #[arg(long, value_name = "ADDRESS")]
    pub http: Option<SocketAddr>,

    /// Let browsers use this name for the server of --http; may be given several times
    ///
    /// Without it they can use localhost and addresses only. A request for any other name is
    /// refused, because a foreign site could have made it.
    #[arg(long, value_name = "NAME", requires = "http")]
    pub http_name: Vec<String>,

    /// Let users log in with the password whose hash is in this file, which `varve web-password`
    /// makes
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, requires = "http")]
    pub http_password: Option<PathBuf>,

    /// The configuration whose promises the web page shows [default: /etc/varve/varve.toml, or
    /// ~/.config/varve/varve.toml]
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, requires = "http")]
    pub config: Option<PathBuf>,

    /// Serve the web page by HTTPS: a certificate, its key, and if browsers need certificates,
    /// those of their authority (PEM files)
    #[arg(long, value_name = "CERT,KEY[,AUTHORITY]", requires = "http", value_parser = parse_tls)]
    pub http_tls: Option<TlsFiles>,

    /// Serve blocks by Venti's protocol, to be read and written: at HOST, HOST:PORT, tcp!HOST!PORT,
    /// tls!HOST!PORT (with --venti-tls), unix!PATH or systemd[:NAME]
    ///
    /// The store must have SHA-1 scores. While it is served, no other program can write to it: use
    /// `varve -s venti://HOST snapshot`, which goes through the server. May be given several times.
    #[arg(long, value_name = "ADDRESS")]
    pub venti: Vec<ListenAt>,

    /// Serve blocks by Venti's protocol, read-only; may be given several times
    #[arg(long, value_name = "ADDRESS")]
    pub venti_read_only: Vec<ListenAt>,

    /// The certificate and key for Venti clients with TLS (tls!HOST!PORT), and if clients need
    /// certificates, those of their authority (PEM files)
    #[arg(long, value_name = "CERT,KEY[,AUTHORITY]", value_parser = parse_tls)]
    pub venti_tls: Option<TlsFiles>,

    /// The maximum number of Venti clients
    #[arg(long, value_name = "COUNT", default_value_t = 4096, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub venti_clients: u32,

    /// The largest block that Venti clients may write, up to 1M; other servers accept 56K
    #[arg(long, value_name = "BYTES", default_value = "56K", value_parser = parse_venti_block)]
    pub venti_block_size: usize,

    /// The memory for the requests of one Venti client, and of all Venti clients
    #[arg(long, value_name = "BYTES,BYTES", default_value = "4M,256M", value_parser = parse_venti_room)]
    pub venti_room: (usize, usize),

    /// The time limits for Venti clients, in seconds
    ///
    /// The limits are: for the handshake, for a message, for silence (0: no limit), for reading an
    /// answer, and for the end of the server.
    #[arg(long, value_name = "LIST", default_value = "hello=30,message=60,idle=0,answer=60,end=30", value_parser = parse_venti_patience)]
    pub venti_patience: VentiPatience,

    /// The time in seconds after which acknowledged blocks are made durable, even without a sync
    ///
    /// Blocks are also made durable when the client that wrote them closes its connection.
    #[arg(long, value_name = "SECONDS", default_value_t = 10, requires = "venti", value_parser = clap::value_parser!(u32).range(1..=3600))]
    pub sync_after: u32,

    /// Record the blocks that each Venti client writes, for `varve venti sessions` and `varve venti
    /// set-aside`
    ///
    /// This takes about 22 bytes a block. Once it was used, the same store is always served with
    /// it.
    #[arg(long, requires = "venti")]
    pub sessions: bool,

    /// Serve the proxies in this file by Venti's protocol: servers and stores behind caches, write
    /// buffers and the like
    #[arg(long, help_heading = PROXIES, value_name = "FILE", value_hint = ValueHint::FilePath, conflicts_with_all = ["shard", "look_aside", "write_buffer", "read_ahead"])]
    pub proxies: Option<PathBuf>,

    /// Spread blocks over these stores by their scores, instead of using --store
    ///
    /// The stores are Venti servers (venti://HOST, tcp!HOST!PORT) or folders. Their order matters,
    /// and must not change.
    #[arg(long, help_heading = PROXIES, value_name = "STORE", value_hint = ValueHint::DirPath)]
    pub shard: Vec<PathBuf>,

    /// Keep a copy of read blocks in this folder, or at this Venti server
    ///
    /// The folder evicts the blocks that were not used for longest.
    #[arg(long, help_heading = PROXIES, value_name = "FOLDER|ADDRESS", value_hint = ValueHint::DirPath)]
    pub look_aside: Option<PathBuf>,

    /// The maximum size of the folder of --look-aside, at least 8M
    #[arg(long, help_heading = PROXIES, value_name = "BYTES", default_value = "1G", requires = "look_aside", value_parser = parse_size)]
    pub look_aside_size: u64,

    /// Keep a copy of written blocks there, too
    #[arg(long, help_heading = PROXIES, requires = "look_aside")]
    pub look_aside_writes: bool,

    /// Acknowledge writes and syncs once they are in this folder, and send them on in the
    /// background
    #[arg(long, help_heading = PROXIES, value_name = "FOLDER", value_hint = ValueHint::DirPath)]
    pub write_buffer: Option<PathBuf>,

    /// The maximum size of the write buffer, at least 8M
    ///
    /// When it is full, writes wait, and are refused after 20 seconds.
    #[arg(long, help_heading = PROXIES, value_name = "BYTES", default_value = "1G", requires = "write_buffer", value_parser = parse_size)]
    pub write_buffer_size: u64,

    /// The maximum rate of sending on, in bytes a second
    #[arg(long, help_heading = PROXIES, value_name = "BYTES", requires = "write_buffer", value_parser = parse_size)]
    pub write_buffer_rate: Option<u64>,

    /// Fetch the blocks to which a block leads as soon as it is read, and keep this much data in
    /// memory
    #[arg(long, help_heading = PROXIES, value_name = "BYTES", num_args = 0..=1, default_missing_value = "64M", value_parser = parse_size)]
    pub read_ahead: Option<u64>,

    /// Serve metrics for Prometheus by HTTP: at IP:PORT, under /metrics
    ///
    /// The metrics show the requests of Venti clients, read-only mode after a fault, the fill of
    /// the index, and for proxies the waiting bytes, cache hits and failing shards.
    #[arg(long, value_name = "ADDRESS")]
    pub metrics: Option<SocketAddr>,

    /// Allow access to --nfs, --webdav, --http, --venti and --metrics from other machines
    ///
    /// Every client can then read the whole archive without encryption; by Venti's protocol, every
    /// block whose score it knows. The web page still asks for a login, but without --http-tls
    /// others on the network can read it, too.
    #[arg(long)]
    pub expose: bool,

    #[command(flatten)]
    pub which: SnapshotFilterArgs,
}

impl ServeArgs {
    /// Reports whether one of the front ends shows snapshots, rather than only blocks.
    pub fn shows_snapshots(&self) -> bool {
        self.nbd.is_some() || self.nfs.is_some() || self.webdav.is_some() || self.http.is_some()
    }

    /// Reports whether the server has proxies.
    pub fn has_proxies(&self) -> bool {
        self.proxies.is_some()
            || !self.shard.is_empty()
            || self.look_aside.is_some()
            || self.write_buffer.is_some()
            || self.read_ahead.is_some()
    }
}

/// The time limits for clients of Venti, in seconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct VentiPatience {
    pub hello: u64,
    pub message: u64,
    pub idle: u64,
    pub answer: u64,
    pub end: u64,
}

fn parse_venti_patience(text: &str) -> Result<VentiPatience, String> {
    let mut patience = VentiPatience { hello: 30, message: 60, idle: 0, answer: 60, end: 30 };
    for part in text.split(',') {
        let seconds = part.split_once('=').and_then(|(name, value)| Some((name, value.parse::<u32>().ok()?)));
        let place = match seconds {
            Some(("hello", 1..)) => &mut patience.hello,
            Some(("message", 1..)) => &mut patience.message,
            Some(("idle", _)) => &mut patience.idle,
            Some(("answer", 1..)) => &mut patience.answer,
            Some(("end", _)) => &mut patience.end,
            _ => {
                return Err(format!(
                    "{part}: write hello=30,message=60,idle=0,answer=60,end=30, or some of these"
                ));
            }
        };
        *place = seconds.map_or(0, |(_, value)| value.into());
    }
    Ok(patience)
}

fn parse_venti_block(text: &str) -> Result<usize, String> {
    let bytes = parse_size(text)?;
    let good = Some(to_usize(bytes)).filter(|bytes| (512..=1 << 20).contains(bytes));
    good.ok_or_else(|| "write a size from 512 to 1M".into())
}

fn parse_venti_room(text: &str) -> Result<(usize, usize), String> {
    let wrong = || "write the bytes for one client and for all, such as 4M,256M: at least 1M".to_owned();
    let size =
        |text: &str| Some(to_usize(parse_size(text)?)).filter(|bytes| *bytes >= 1 << 20).ok_or_else(wrong);
    let (one, all) = text.split_once(',').ok_or_else(wrong)?;
    Ok((size(one)?, size(all)?))
}

/// The files of a TLS identity.
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

/// The arguments of `varve web-password`.
#[derive(Debug, Clone, Args)]
pub struct WebPasswordArgs {
    /// The new file
    #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub file: PathBuf,
}
