//! The environment variables that this program reads. The man pages list them. A test compares the
//! list with the sources and with `docs/guide/environment.md`.

/// Each variable with its meaning.
pub const VARIABLES: [(&str, &str); 25] = [
    ("VARVE_STORE", "the store, if --store does not name it"),
    ("VARVE_KEY_FILE", "a file whose contents open the store, as with --key-file"),
    ("VARVE_PASSPHRASE_FILE", "a file with the passphrase, as with --passphrase-file"),
    ("VARVE_PASSPHRASE_COMMAND", "a program that prints the passphrase, as with --passphrase-command"),
    ("VARVE_PASSPHRASE", "the passphrase itself; other programs of the same user can see it"),
    (
        "VARVE_NEW_PASSPHRASE",
        "the passphrase of a key that is made: `key add`, `key change` and `key import`",
    ),
    ("VARVE_FROM_PASSPHRASE", "the passphrase of the store that `copy` copies from"),
    ("VARVE_REMOTE_PASSWORD", "the password for servers of replicas (SFTP, FTP, WebDAV)"),
    ("VARVE_CACHE", "a folder for what was read from replicas, as with --cache"),
    ("VARVE_ROOTS", "a file for the roots of the catalog at a Venti server, as with --roots"),
    ("VARVE_LOG", "what of the log is printed, as a filter such as varve_store=debug; -vv prints most of it"),
    ("VARVE_VENTI_CERTIFICATE", "CERTIFICATE,KEY: two files that are shown to a Venti server reached by TLS"),
    ("venti", "the Venti server that '$venti' names as a store"),
    ("HOME", "where ~/.cache/varve, ~/.local/state/varve and ~/.ssh are"),
    ("XDG_CACHE_HOME", "the folder of caches, if it is not ~/.cache"),
    ("XDG_STATE_HOME", "the folder of notes, if it is not ~/.local/state"),
    ("SSH_AUTH_SOCK", "the agent that logs in at an SFTP server"),
    (
        "AWS_ACCESS_KEY_ID",
        "with AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN, AWS_REGION and the rest of their kind: who uses a bucket",
    ),
    (
        "USER",
        "who logs in at an SFTP server whose URL names nobody; else whom the system knows by the process' user",
    ),
    ("http_proxy", "with https_proxy, no_proxy and all_proxy: the proxies between here and S3 or WebDAV"),
    ("DISPLAY", "with WAYLAND_DISPLAY: whether `boot` can open a window"),
    ("TMPDIR", "the folder for what is thrown away at the end, such as what a machine writes in `boot`"),
    ("PATH", "where QEMU's programs, fusermount3 and the passphrase command are looked for"),
    ("TZ", "the time zone of days and moments"),
    (
        "NOTIFY_SOCKET",
        "with LISTEN_FDS, LISTEN_FDNAMES and LISTEN_PID: how systemd is told that `serve` is ready, and hands it its sockets",
    ),
];
