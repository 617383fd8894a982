//! Every kind of target, each on a server of its own. The tests of the program use them as well.
#![allow(dead_code, reason = "each test uses its own part of this")]

use std::cell::Cell;
use std::fs::{self, DirBuilder};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use varve_remote::{OpenOptions, Password, RetryPolicy, S3Keys, Target, open};

use crate::lonely_server::{Server, program};

const S3_SECRET: &str = "testsecret";
const PASSWORD: &str = "hunter2";

/// A server, and the options to open targets on it.
pub struct Kind {
    pub name: &'static str,
    pub server: Server,
    pub options: OpenOptions,
    /// The URL, with the placeholders `PORT` and `PLACE`.
    url: String,
    /// The folder, below the server's own, that holds the places.
    files: &'static str,
    place_count: Cell<u32>,
}

impl Kind {
    fn new(name: &'static str, server: Server, files: &'static str, url: &str, options: OpenOptions) -> Self {
        let patience = RetryPolicy {
            try_count_max: 5,
            first_pause: Duration::from_millis(10),
            pause_max: Duration::from_millis(100),
            silence_max: Duration::from_secs(20),
            ..RetryPolicy::default()
        };
        let options = OpenOptions { patience, ..options };
        Self { name, server, options, url: url.into(), files, place_count: Cell::new(0) }
    }

    /// A target on the server, in a new place.
    pub fn fresh(&self) -> Box<dyn Target> {
        self.at(&self.fresh_place())
    }

    pub fn fresh_place(&self) -> String {
        self.place_count.set(self.place_count.get() + 1);
        format!("place%20{}", self.place_count.get())
    }

    pub fn at(&self, place: &str) -> Box<dyn Target> {
        self.through(self.server.port, place, &self.options)
    }

    /// A target on the server, reached through another port.
    pub fn through(&self, port: u16, place: &str, options: &OpenOptions) -> Box<dyn Target> {
        open(&self.url_through(port, place), options).unwrap()
    }

    /// The URL of a place on the server, reached through `port`.
    pub fn url_through(&self, port: u16, place: &str) -> String {
        self.url.replace("PORT", &port.to_string()).replace("PLACE", place)
    }

    /// The folder in which the server keeps the objects of a place.
    pub fn folder(&self, place: &str) -> PathBuf {
        self.server.folder.path().join(self.files).join(place.replace("%20", " "))
    }

    /// The environment variables that give another program access through `port`.
    pub fn environment(&self, port: u16) -> Vec<(String, String)> {
        let text = |path: &Path| path.to_str().unwrap().to_owned();
        let mut pairs = vec![("AWS_REGION".to_owned(), "us-east-1".to_owned())];
        let mut add = |name: &str, value: &str| pairs.push((name.to_owned(), value.to_owned()));
        if self.options.s3_keys.is_some() {
            add("AWS_ACCESS_KEY_ID", "test");
            add("AWS_SECRET_ACCESS_KEY", S3_SECRET);
        }
        if self.options.password.is_some() {
            add("VARVE_REMOTE_PASSWORD", PASSWORD);
        }
        if let Some(authorities) = &self.options.authorities {
            add("SSL_CERT_FILE", &text(authorities));
        }
        if let (Some(identity), Some(known)) = (&self.options.identity_file, &self.options.known_hosts) {
            let home = self.server.folder.path().join(format!("home-{port}"));
            fs::create_dir_all(home.join(".ssh")).unwrap();
            fs::copy(identity, home.join(".ssh/id_ed25519")).unwrap();
            let known = fs::read_to_string(known).unwrap();
            let known = known.replace(&format!(":{} ", self.server.port), &format!(":{port} "));
            fs::write(home.join(".ssh/known_hosts"), known).unwrap();
            add("HOME", &text(&home));
        }
        pairs
    }
}

/// All kinds whose server program is installed.
pub fn all() -> Vec<Kind> {
    [s3(), sftp(), ftp(), ftps(), webdav(), webdavs()].into_iter().flatten().collect()
}

pub fn s3() -> Option<Kind> {
    let program = program("versitygw")?;
    let server = Server::start(|folder, port| {
        fs::create_dir_all(folder.join("s3/backup")).unwrap();
        let mut command = Command::new(program);
        command.args(["--access", "test", "--secret", S3_SECRET, "--port", &format!("127.0.0.1:{port}")]);
        command.arg("posix").arg("--sidecar").arg(folder.join("meta"));
        // Object lock requires versioning.
        command.arg("--versioning-dir").arg(folder.join("versions")).arg(folder.join("s3"));
        fs::create_dir_all(folder.join("meta")).unwrap();
        fs::create_dir_all(folder.join("versions")).unwrap();
        command
    });
    let secret_key = Password::new(S3_SECRET.into());
    let keys = S3Keys { key_id: "test".into(), secret_key, session_token: None };
    let options = OpenOptions { s3_keys: Some(keys), ..OpenOptions::default() };
    Some(Kind::new(
        "s3",
        server,
        "s3/backup",
        "s3://backup/PLACE?endpoint=http://127.0.0.1:PORT&region=us-east-1",
        options,
    ))
}

/// OpenSSH, with one key for the server and one for the user, both made by the test.
pub fn sftp() -> Option<Kind> {
    let (program, keygen) = (program("sshd")?, program("ssh-keygen")?);
    // sshd's folder for privilege separation, needed when it runs as root. Debian's service creates
    // it.
    drop(DirBuilder::new().mode(0o755).create("/run/sshd"));
    let server = Server::start(|folder, port| {
        for key in ["host", "user"] {
            make_key(&keygen, &folder.join(key));
        }
        fs::copy(folder.join("user.pub"), folder.join("authorized")).unwrap();
        fs::write(folder.join("config"), "").unwrap();
        let host = fs::read_to_string(folder.join("host.pub")).unwrap();
        fs::write(folder.join("known_hosts"), format!("[127.0.0.1]:{port} {host}")).unwrap();
        fs::create_dir(folder.join("files")).unwrap();
        let mut command = Command::new(program);
        command.args(["-D", "-e", "-f"]).arg(folder.join("config")).args(["-p", &port.to_string()]);
        command.arg("-h").arg(folder.join("host"));
        for setting in [
            "ListenAddress=127.0.0.1",
            "StrictModes=no",
            "PidFile=none",
            "Subsystem=sftp internal-sftp",
            "MaxStartups=100",
            &format!("AuthorizedKeysFile={}", folder.join("authorized").display()),
        ] {
            command.arg("-o").arg(setting);
        }
        command
    });
    let folder = server.folder.path();
    let options = OpenOptions {
        identity_file: Some(folder.join("user")),
        known_hosts: Some(folder.join("known_hosts")),
        ..OpenOptions::default()
    };
    let user = who_i_am();
    let url = format!("sftp://{user}@127.0.0.1:PORT{}/files/PLACE", folder.display());
    Some(Kind::new("sftp", server, "files", &url, options))
}

/// rclone as an SFTP server. It says that it makes hard links, and makes none.
pub fn rclone_sftp() -> Option<Kind> {
    let (program, keygen) = (program("rclone")?, program("ssh-keygen")?);
    let server = Server::start(|folder, port| {
        make_key(&keygen, &folder.join("host"));
        let host = fs::read_to_string(folder.join("host.pub")).unwrap();
        fs::write(folder.join("known_hosts"), format!("[127.0.0.1]:{port} {host}")).unwrap();
        fs::create_dir(folder.join("files")).unwrap();
        let mut command = Command::new(program);
        command.args(["--config", "/dev/null", "serve", "sftp", "--user", "ann", "--pass", PASSWORD]);
        command.args(["--vfs-cache-mode", "writes", "--cache-dir"]).arg(folder.join("cache"));
        command.arg("--key").arg(folder.join("host")).args(["--addr", &format!("127.0.0.1:{port}")]);
        command.arg(folder.join("files"));
        command
    });
    let known_hosts = Some(server.folder.path().join("known_hosts"));
    let password = Some(Password::new(PASSWORD.into()));
    let options = OpenOptions { password, known_hosts, ..OpenOptions::default() };
    Some(Kind::new("rclone", server, "files", "sftp://ann@127.0.0.1:PORT/PLACE", options))
}

pub fn make_key(keygen: &Path, path: &Path) {
    let made = Command::new(keygen).args(["-q", "-t", "ed25519", "-N", "", "-f"]).arg(path).status().unwrap();
    assert!(made.success());
}

pub fn who_i_am() -> String {
    let name = Command::new("id").arg("-un").output().unwrap().stdout;
    String::from_utf8(name).unwrap().trim().to_owned()
}

pub fn ftp() -> Option<Kind> {
    let server = vsftpd("")?;
    Some(Kind::new("ftp", server, "root/up", "ftp://127.0.0.1:PORT/up/PLACE", OpenOptions::default()))
}

/// The same with encryption, and a certificate made by the test.
pub fn ftps() -> Option<Kind> {
    let certificate = Certificate::make()?;
    let server = vsftpd(&format!(
        "ssl_enable=YES\nallow_anon_ssl=YES\nforce_anon_data_ssl=YES\nforce_anon_logins_ssl=YES\n\
         require_ssl_reuse=NO\nrsa_cert_file={0}\nrsa_private_key_file={0}\n",
        certificate.both.display()
    ))?;
    let options = certificate.options(&server);
    Some(Kind::new("ftps", server, "root/up", "ftps://127.0.0.1:PORT/up/PLACE", options))
}

fn vsftpd(more: &str) -> Option<Server> {
    let program = program("vsftpd")?;
    if who_i_am() != "root" {
        println!("skipped: vsftpd serves strangers only when root starts it");
        return None;
    }
    Some(Server::start(|folder, port| {
        let up = folder.join("root/up");
        fs::create_dir_all(&up).unwrap();
        fs::create_dir(folder.join("empty")).unwrap();
        DirBuilder::new().recursive(true).create(&up).unwrap();
        let open = std::os::unix::fs::PermissionsExt::from_mode(0o777);
        fs::set_permissions(&up, open).unwrap();
        let settings = format!(
            "listen=YES\nlisten_address=127.0.0.1\nlisten_port={port}\nbackground=NO\nanonymous_enable=YES\n\
             max_per_ip=0\n\
             local_enable=NO\nanon_root={}\nanon_upload_enable=YES\nanon_mkdir_write_enable=YES\n\
             anon_other_write_enable=YES\nanon_umask=022\nwrite_enable=YES\nno_anon_password=YES\n\
             seccomp_sandbox=NO\nxferlog_enable=NO\nsecure_chroot_dir={}\n{more}",
            folder.join("root").display(),
            folder.join("empty").display(),
        );
        fs::write(folder.join("vsftpd.conf"), settings).unwrap();
        let mut command = Command::new(program);
        command.arg(folder.join("vsftpd.conf"));
        command
    }))
}

/// nginx, with a user and a password.
pub fn webdav() -> Option<Kind> {
    let server = nginx("", "")?;
    let options = OpenOptions { password: Some(Password::new(PASSWORD.into())), ..OpenOptions::default() };
    Some(Kind::new("webdav", server, "dav", "webdav+http://ann@127.0.0.1:PORT/PLACE", options))
}

/// The same with encryption.
pub fn webdavs() -> Option<Kind> {
    let certificate = Certificate::make()?;
    let both = certificate.both.display();
    let server = nginx(" ssl", &format!("ssl_certificate {both}; ssl_certificate_key {both};"))?;
    let options = certificate.options(&server);
    Some(Kind::new("webdavs", server, "dav", "webdav+https://ann:hunter2@127.0.0.1:PORT/PLACE", options))
}

fn nginx(listen: &str, more: &str) -> Option<Server> {
    let program = program("nginx")?;
    let module = Path::new("/usr/lib/nginx/modules/ngx_http_dav_ext_module.so");
    if !module.is_file() {
        println!("skipped: nginx has no module {}", module.display());
        return None;
    }
    let user = if who_i_am() == "root" { "user root;" } else { "" };
    Some(Server::start(|folder, port| {
        fs::create_dir(folder.join("dav")).unwrap();
        fs::write(folder.join("users"), "ann:{PLAIN}hunter2\n").unwrap();
        let at = folder.display();
        let settings = format!(
            "{user} daemon off; master_process off; pid {at}/pid; error_log stderr;\n\
             load_module {};\nevents {{ worker_connections 256; }}\nhttp {{ access_log off;\n\
             client_body_temp_path {at}/body; proxy_temp_path {at}/proxy; fastcgi_temp_path {at}/fastcgi;\n\
             uwsgi_temp_path {at}/uwsgi; scgi_temp_path {at}/scgi;\n\
             server {{ listen 127.0.0.1:{port}{listen}; {more} root {at}/dav; client_max_body_size 0;\n\
             auth_basic archive; auth_basic_user_file {at}/users;\n\
             location / {{ dav_methods PUT DELETE MKCOL COPY MOVE; dav_ext_methods PROPFIND OPTIONS; }} }} }}\n",
            module.display(),
        );
        fs::write(folder.join("nginx.conf"), settings).unwrap();
        let mut command = Command::new(program);
        command.arg("-p").arg(folder).arg("-e").arg("stderr").arg("-c").arg(folder.join("nginx.conf"));
        command
    }))
}

/// nginx as a server of static files: those of the folder `www`, which is also reached through
/// `/moved/` and a chain of redirects.
pub fn static_nginx() -> Option<Server> {
    static_nginx_with("", "")
}

/// The same with encryption, and with redirects from `/plain/` to a server without it.
pub fn static_tls() -> Option<(Server, OpenOptions)> {
    let certificate = Certificate::make()?;
    let both = certificate.both.display();
    let more = format!(
        "ssl_certificate {both}; ssl_certificate_key {both};\n\
         location /plain/ {{ return 302 http://127.0.0.1:1/head; }}"
    );
    let server = static_nginx_with(" ssl", &more)?;
    let options = certificate.options(&server);
    Some((server, options))
}

/// The same over HTTP/2, with this many requests for each connection. The file `requests` beside
/// `www` has a line for each request: the number of its connection, its protocol and its status.
pub fn static_http2(requests_max: usize) -> Option<(Server, OpenOptions)> {
    let certificate = Certificate::make()?;
    let both = certificate.both.display();
    let more = format!(
        "ssl_certificate {both}; ssl_certificate_key {both}; keepalive_requests {requests_max};\n\
         access_log AT/requests requests;"
    );
    let server = static_nginx_with(" ssl http2", &more)?;
    let options = certificate.options(&server);
    Some((server, options))
}

fn static_nginx_with(listen: &str, more: &str) -> Option<Server> {
    let program = program("nginx")?;
    let user = if who_i_am() == "root" { "user root;" } else { "" };
    Some(Server::start(|folder, port| {
        fs::create_dir(folder.join("www")).unwrap();
        let at = folder.display();
        let more = more.replace("AT", &at.to_string());
        let settings = format!(
            "{user} daemon off; master_process off; pid {at}/pid; error_log stderr;\n\
             events {{ worker_connections 256; }}\nhttp {{ access_log off; gzip on; gzip_types *;\n\
             log_format requests '$connection $server_protocol $status';\n\
             client_body_temp_path {at}/body; proxy_temp_path {at}/proxy; fastcgi_temp_path {at}/fastcgi;\n\
             uwsgi_temp_path {at}/uwsgi; scgi_temp_path {at}/scgi;\n\
             server {{ listen 127.0.0.1:{port}{listen}; {more} root {at}/www;\n\
             rewrite ^/moved/(.*)$ /$1 permanent; rewrite ^/hops([1-9])([0-9]*)/(.*)$ /hops$2/$3 redirect;\n\
             rewrite ^/hops/(.*)$ /$1 redirect; }} }}\n",
        );
        fs::write(folder.join("nginx.conf"), settings).unwrap();
        let mut command = Command::new(program);
        command.arg("-p").arg(folder).arg("-e").arg("stderr").arg("-c").arg(folder.join("nginx.conf"));
        command
    }))
}

/// Python's server of files, which knows no ranges.
pub fn static_python() -> Option<Server> {
    let program = program("python3")?;
    Some(Server::start(|folder, port| {
        fs::create_dir(folder.join("www")).unwrap();
        let mut command = Command::new(program);
        command.args(["-m", "http.server", "--bind", "127.0.0.1", "--directory"]);
        command.arg(folder.join("www")).arg(port.to_string());
        command
    }))
}

/// A certificate that only this test trusts.
pub struct Certificate {
    /// The file with the certificate and its key.
    pub both: std::path::PathBuf,
    folder: tempfile::TempDir,
}

impl Certificate {
    pub fn make() -> Option<Self> {
        let openssl = program("openssl")?;
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let mut command = Command::new(openssl);
        command.args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]);
        command.args(["-subj", "/CN=test", "-addext", "subjectAltName=IP:127.0.0.1", "-days", "2"]);
        command.args(["-addext", "basicConstraints=critical,CA:FALSE"]);
        command.arg("-keyout").arg(at("key")).arg("-out").arg(at("certificate"));
        assert!(command.output().unwrap().status.success());
        let both = [fs::read(at("certificate")).unwrap(), fs::read(at("key")).unwrap()].concat();
        fs::write(at("both"), both).unwrap();
        Some(Self { both: at("both"), folder })
    }

    /// Options that trust the certificate. It is copied to the server's folder, which lives longer.
    fn options(&self, server: &Server) -> OpenOptions {
        let kept = server.folder.path().join("authority.pem");
        fs::copy(self.folder.path().join("certificate"), &kept).unwrap();
        OpenOptions { authorities: Some(kept), ..OpenOptions::default() }
    }
}
