//! The arguments of `varve serve`.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{ArgGroup, Args, ValueHint};
use varve_serve::nbd::Endpoint;
use varve_serve::venti::ListenAt;

use super::value::parse_size;
use super::which::Which;

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
  varve -s /backup/store serve --webdav 127.0.0.1:8080       the same, for http://127.0.0.1:8080/
  varve -s /backup/sha1 serve --venti localhost              blocks, for vac and whatever else speaks Venti's protocol
  varve -s /backup/sha1 serve --venti-read-only 'tcp!*!17035' --expose
                                                             the same for the network, to be read
  varve -s /backup/sha1 serve --venti localhost --metrics 127.0.0.1:9103
                                                             with numbers at http://127.0.0.1:9103/metrics

A proxy is served in the place of a store: a Venti server, or several, behind a cache, a write buffer and the like.
  varve -s venti://far serve --venti localhost --look-aside /var/cache/varve --look-aside-size 10G
                                                             what was read once is near
  varve -s venti://far serve --venti localhost --write-buffer /var/spool/varve
                                                             writes are done at once, and go on while the server is there
  varve serve --venti localhost --shard venti://one --shard venti://two
                                                             two servers as one
  varve serve --venti localhost --proxies proxies.toml       whatever the file describes (docs/guide/venti.md)
  varve -s venti://far serve --nfs 127.0.0.1:11111 --look-aside /var/cache/varve
                                                             the snapshots whose blocks are there";

const PROXIES: &str = "Proxies";

#[derive(Debug, Clone, Args)]
#[command(group = ArgGroup::new("doors").required(true).multiple(true).args(["nbd", "nfs", "webdav", "venti", "venti_read_only"]))]
pub struct Serve {
    /// Serve disk images as network block devices: at HOST:PORT, :PORT (on all addresses) or
    /// unix:PATH
    #[arg(long, value_name = "ADDRESS")]
    pub nbd: Option<Endpoint>,

    /// Serve only this snapshot; it is then also what a client gets that names none
    #[arg(long, value_name = "SNAPSHOT", requires = "nbd")]
    pub export: Option<String>,

    /// Let clients write; what they write is kept in this file, which grows by what is written, and
    /// is there the next time
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, requires = "export")]
    pub overlay: Option<PathBuf>,

    /// Let clients write; what they write is thrown away at the end
    #[arg(long, requires = "export", conflicts_with = "overlay")]
    pub writable: bool,

    /// Serve nobody without TLS: a certificate, its key, and if clients must have certificates,
    /// their authority's (PEM files)
    #[arg(long, value_name = "CERT,KEY[,AUTHORITY]", requires = "nbd", value_parser = parse_tls)]
    pub nbd_tls: Option<TlsFiles>,

    /// How many clients of network block devices there may be at the same time
    #[arg(long, value_name = "COUNT", default_value_t = 64, value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub nbd_clients: u16,

    /// How much of what was read is kept in memory, unpacked [default: an eighth of the machine's
    /// memory, from 64M to 4G]
    #[arg(long, value_name = "BYTES", value_parser = parse_size)]
    pub memory: Option<u64>,

    /// Serve all snapshots as a file system of days by NFS (version 3): at IP:PORT
    #[arg(long, value_name = "ADDRESS")]
    pub nfs: Option<SocketAddr>,

    /// Serve the same by WebDAV: at IP:PORT
    #[arg(long, value_name = "ADDRESS")]
    pub webdav: Option<SocketAddr>,

    /// Serve blocks by Venti's protocol, to be read and written: at HOST, HOST:PORT, tcp!HOST!PORT,
    /// tls!HOST!PORT (with --venti-tls), unix!PATH or systemd[:NAME]
    ///
    /// The store is one of SHA-1 scores. While it is served so, no other program can write to it:
    /// `varve -s venti://HOST snapshot` goes through the server. May be given several times.
    #[arg(long, value_name = "ADDRESS")]
    pub venti: Vec<ListenAt>,

    /// Serve blocks by Venti's protocol, only to be read; may be given several times
    #[arg(long, value_name = "ADDRESS")]
    pub venti_read_only: Vec<ListenAt>,

    /// The certificate and key of Venti's door at addresses of TLS (tls!HOST!PORT), and if clients
    /// must have certificates, their authority's (PEM files)
    #[arg(long, value_name = "CERT,KEY[,AUTHORITY]", value_parser = parse_tls)]
    pub venti_tls: Option<TlsFiles>,

    /// How many clients of Venti there may be at the same time
    #[arg(long, value_name = "COUNT", default_value_t = 4096, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub venti_clients: u32,

    /// The largest block that clients of Venti may write, up to 1M; 56K is what others take
    #[arg(long, value_name = "BYTES", default_value = "56K", value_parser = parse_venti_block)]
    pub venti_block_size: usize,

    /// How much of what one client of Venti, and of what all of them ask for is held in memory
    #[arg(long, value_name = "BYTES,BYTES", default_value = "4M,256M", value_parser = parse_venti_room)]
    pub venti_room: (usize, usize),

    /// How many seconds clients of Venti may take: to say hello, to end a message, to say nothing
    /// (0: no bound), to take an answer; and how long a server that ends waits for them
    #[arg(long, value_name = "LIST", default_value = "hello=30,message=60,idle=0,answer=60,end=30", value_parser = parse_venti_patience)]
    pub venti_patience: VentiPatience,

    /// Make blocks durable at most this many seconds after they were acknowledged, even if no
    /// client of Venti asks for a sync; they are also made durable when the client that wrote them
    /// closes its connection
    #[arg(long, value_name = "SECONDS", default_value_t = 10, requires = "venti", value_parser = clap::value_parser!(u32).range(1..=3600))]
    pub sync_after: u32,

    /// Record which client of Venti writes which blocks, for `varve venti sessions` and `varve
    /// venti set-aside`; some 22 bytes a block. Once that was asked for, the same store is always
    /// served so
    #[arg(long, requires = "venti")]
    pub sessions: bool,

    /// Serve by Venti's protocol what this file describes: servers and stores behind caches, write
    /// buffers and the like
    #[arg(long, help_heading = PROXIES, value_name = "FILE", value_hint = ValueHint::FilePath, conflicts_with_all = ["shard", "look_aside", "write_buffer", "read_ahead"])]
    pub proxies: Option<PathBuf>,

    /// Spread blocks over these stores by their scores, instead of keeping them in --store: Venti
    /// servers (venti://HOST, tcp!HOST!PORT) or folders. Their order counts, and must stay
    #[arg(long, help_heading = PROXIES, value_name = "STORE", value_hint = ValueHint::DirPath)]
    pub shard: Vec<PathBuf>,

    /// Keep what was read a second time, near: in a folder that lets go what was not used for
    /// longest, or at a Venti server
    #[arg(long, help_heading = PROXIES, value_name = "FOLDER|ADDRESS", value_hint = ValueHint::DirPath)]
    pub look_aside: Option<PathBuf>,

    /// How much a folder of --look-aside may take, 8M at least
    #[arg(long, help_heading = PROXIES, value_name = "BYTES", default_value = "1G", requires = "look_aside", value_parser = parse_size)]
    pub look_aside_size: u64,

    /// Keep what is written there, too
    #[arg(long, help_heading = PROXIES, requires = "look_aside")]
    pub look_aside_writes: bool,

    /// Acknowledge writes and syncs once they are in this folder, and send them on in the
    /// background, whenever the server behind is there
    #[arg(long, help_heading = PROXIES, value_name = "FOLDER", value_hint = ValueHint::DirPath)]
    pub write_buffer: Option<PathBuf>,

    /// How much may wait there, 8M at least; who writes more waits, and is refused after 20 seconds
    #[arg(long, help_heading = PROXIES, value_name = "BYTES", default_value = "1G", requires = "write_buffer", value_parser = parse_size)]
    pub write_buffer_size: u64,

    /// Send on no more than this in a second
    #[arg(long, help_heading = PROXIES, value_name = "BYTES", requires = "write_buffer", value_parser = parse_size)]
    pub write_buffer_rate: Option<u64>,

    /// Fetch what a block leads to as soon as it is read, and keep so much of what was read in
    /// memory
    #[arg(long, help_heading = PROXIES, value_name = "BYTES", num_args = 0..=1, default_missing_value = "64M", value_parser = parse_size)]
    pub read_ahead: Option<u64>,

    /// Serve numbers by HTTP, as Prometheus reads them: what clients of Venti have asked for,
    /// whether a fault has made the server read-only, how the index is filled; and of proxies, what
    /// waits, what was near, and which shards fail. At IP:PORT, under /metrics
    #[arg(long, value_name = "ADDRESS")]
    pub metrics: Option<SocketAddr>,

    /// Let --nfs, --webdav, --venti and --metrics be reached from other machines: whoever comes
    /// reads the whole archive, in plain (by Venti's protocol, whatever they know the score of)
    #[arg(long)]
    pub expose: bool,

    #[command(flatten)]
    pub which: Which,
}

impl Serve {
    /// Reports whether one of the front ends shows snapshots, rather than only blocks.
    pub fn shows_snapshots(&self) -> bool {
        self.nbd.is_some() || self.nfs.is_some() || self.webdav.is_some()
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
    let good = usize::try_from(bytes).ok().filter(|bytes| (512..=1 << 20).contains(bytes));
    good.ok_or_else(|| "write a size from 512 to 1M".into())
}

fn parse_venti_room(text: &str) -> Result<(usize, usize), String> {
    let wrong = || "write the bytes for one client and for all, such as 4M,256M: at least 1M".to_owned();
    let size = |text: &str| {
        usize::try_from(parse_size(text)?).ok().filter(|bytes| *bytes >= 1 << 20).ok_or_else(wrong)
    };
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
