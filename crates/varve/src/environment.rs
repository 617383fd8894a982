//! The environment variables that this program reads. The man pages list them. A test compares the
//! list with the sources and with `docs/guide/environment.md`.

/// Each variable with its meaning.
pub const VARIABLES: [(&str, &str); 36] = [
    ("VARVE_STORE", "the store, if --store does not name it"),
    ("VARVE_KEY_FILE", "a file whose contents open the store, as with --key-file"),
    ("VARVE_KEY_FILE_COMMAND", "a program that prints these contents, as with --key-file-command"),
    ("VARVE_PASSPHRASE_FILE", "a file with the passphrase, as with --passphrase-file"),
    ("VARVE_PASSPHRASE_COMMAND", "a program that prints the passphrase, as with --passphrase-command"),
    ("VARVE_PASSPHRASE", "the passphrase itself; other programs of the same user can see it"),
    ("VARVE_NEW_PASSPHRASE", "the passphrase of a new key: `key add`, `key change` and `key import`"),
    ("VARVE_FROM_PASSPHRASE", "the passphrase of the store that `copy` copies from"),
    ("VARVE_REMOTE_PASSWORD", "the password for servers of replicas (SFTP, FTP, WebDAV)"),
    ("RESTIC_PASSWORD_FILE", "a file with the password of a restic repository, for `import restic`"),
    ("RESTIC_PASSWORD", "the password itself; other programs of the same user can see it"),
    ("BORG_PASSPHRASE", "with BORG_PASSCOMMAND and borg's other variables: read by borg, for `import borg`"),
    ("VARVE_CACHE", "a folder for data that was read from replicas, as with --cache"),
    ("VARVE_ROOTS", "a file for the roots of the catalog at a Venti server, as with --roots"),
    (
        "VARVE_REQUESTS_PER_SECOND",
        "the most requests a second to servers of HTTP, as with --requests-per-second",
    ),
    ("VARVE_HOST", "the name of this machine in snapshots [default: its host name]"),
    ("VARVE_JOB_OF", "set by run for the commands that it starts: they end if it is killed"),
    ("VARVE_COMPLETE", "set by the scripts of `completions`: the shell whose line is to be completed"),
    ("VARVE_LOG", "a filter for the printed log, such as varve_store=debug; -vv prints most of it"),
    (
        "VARVE_VENTI_CERTIFICATE",
        "CERTIFICATE,KEY: two files with the client certificate for a Venti server with TLS",
    ),
    ("venti", "the Venti server that '$venti' names as a store"),
    ("HOME", "the home folder, with ~/.cache/varve, ~/.local/state/varve and ~/.ssh"),
    ("XDG_CACHE_HOME", "the folder of caches [default: ~/.cache]"),
    ("XDG_STATE_HOME", "the folder of state [default: ~/.local/state]"),
    ("XDG_CONFIG_HOME", "the folder of configurations [default: ~/.config]"),
    ("CREDENTIALS_DIRECTORY", "set by systemd: the folder of the credentials of a configuration"),
    ("SSH_AUTH_SOCK", "the SSH agent for SFTP servers"),
    (
        "AWS_ACCESS_KEY_ID",
        "with AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN, AWS_REGION and the like: the credentials for S3 buckets",
    ),
    ("USER", "the user for an SFTP server whose URL names none [default: the user of the process]"),
    ("http_proxy", "with https_proxy, no_proxy and all_proxy: the HTTP proxies for S3 and WebDAV"),
    ("DISPLAY", "with WAYLAND_DISPLAY: the display for the window of `boot`"),
    ("TMPDIR", "the folder for temporary data, such as the writes of a machine in `boot`"),
    ("PATH", "the folders of QEMU's programs, fusermount3 and the passphrase command"),
    ("TZ", "the time zone of days and times"),
    ("NO_COLOR", "with TERM=dumb: no colours on a terminal"),
    (
        "NOTIFY_SOCKET",
        "with LISTEN_FDS, LISTEN_FDNAMES and LISTEN_PID: set by systemd, to learn that `serve` is ready and to pass its sockets",
    ),
];
