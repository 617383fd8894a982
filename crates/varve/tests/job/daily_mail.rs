//! Mail of daily work: over TLS with real certificates, and the report of each week.

use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ServerConfig, ServerConnection, StreamOwned};

use crate::daily::{HOME, configure, daily_ok, home};
use crate::daily_sinks::{MailSink, MailTls};
use crate::moved_clock::MovedClock;
use crate::sandbox::{Run, Sandbox, has, write_secret};

const DAY: i64 = 86_400;

/// Makes a certificate for this machine, valid from now on. Returns it with the settings of a
/// server that shows it.
fn certificate(sandbox: &Sandbox) -> (PathBuf, Arc<ServerConfig>) {
    let (certificate, key) = (sandbox.path("certificate.pem"), sandbox.path("tls-key.pem"));
    let mut command = Command::new("openssl");
    command.args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]);
    command.args(["-subj", "/CN=test", "-addext", "subjectAltName=IP:127.0.0.1,DNS:localhost"]);
    command.args(["-addext", "basicConstraints=critical,CA:FALSE", "-days", "2"]);
    command.arg("-keyout").arg(&key).arg("-out").arg(&certificate);
    assert!(command.output().unwrap().status.success());
    let chain = vec![CertificateDer::from_pem_file(&certificate).unwrap()];
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let key = PrivateKeyDer::from_pem_file(&key).unwrap();
    (certificate, Arc::new(config.with_no_client_auth().with_single_cert(chain, key).unwrap()))
}

#[test]
fn a_mail_is_sent_over_tls_with_its_password() {
    if !has("openssl") {
        eprintln!("skipped, as openssl is not installed: a_mail_is_sent_over_tls_with_its_password");
        return;
    }
    let sandbox = home("");
    let (authority, config) = certificate(&sandbox);
    let open = move |stream| StreamOwned::new(ServerConnection::new(Arc::clone(&config)).unwrap(), stream);
    write_secret(&sandbox.path("password"), b"hunter2\n");
    let test = |url: &str, trusted: &str| {
        let mail = format!(
            "[notify]\nmail = {{ to = [\"ops@example.org\"], from = \"varve@example.org\", server = \"{url}\", \
             user = \"ann\", password-file = \"password\" }}\n"
        );
        configure(&sandbox, &format!("{HOME}{mail}"));
        let mut command = sandbox.command();
        command.args(["notify", "--test", "--config", "varve.toml"]);
        command.env("SSL_CERT_FILE", trusted).env_remove("SSL_CERT_DIR");
        Run::new(command.output().unwrap())
    };
    for tls in [MailTls::Implicit, MailTls::StartTls] {
        let sink = MailSink::start_with_tls(tls, open.clone());
        let url = match tls {
            MailTls::Implicit => format!("smtps://127.0.0.1:{}", sink.port),
            MailTls::StartTls => format!("smtp://127.0.0.1:{}?tls=required", sink.port),
        };
        let run = test(&url, authority.to_str().unwrap());
        assert_eq!(run.code, Some(0), "{tls:?}: {}", run.stderr);
        let mails = sink.take();
        assert_eq!(mails.len(), 1, "{tls:?}");
        assert!(mails[0].contains("AUTH PLAIN AGFubgBodW50ZXIy"), "{tls:?}: {mails:?}");
        assert!(mails[0].contains("Subject: varve ") && mails[0].contains("RCPT TO:<ops@example.org>"));
        // A certificate that nobody vouches for gets no password, and no mail.
        let run = test(&url, "/dev/null");
        assert_eq!((run.code, sink.take().len()), (Some(1), 0), "{tls:?}: {}", run.stderr);
        assert!(run.stderr.contains("varve: mail: "), "{tls:?}: {}", run.stderr);
    }
    // A server without TLS gets no password either.
    let plain = MailSink::start();
    for url in ["smtps://127.0.0.1:PORT", "smtp://127.0.0.1:PORT?tls=required"] {
        let run = test(&url.replace("PORT", &plain.port.to_string()), authority.to_str().unwrap());
        assert_eq!((run.code, plain.take().len()), (Some(1), 0), "{url}: {}", run.stderr);
    }
    assert!(!plain.has_seen_login());
}

#[test]
fn the_report_of_a_week_lists_every_promise() {
    let sandbox = home("");
    let Some(clock) = MovedClock::make(&sandbox.path("")) else {
        eprintln!("skipped, as cc is not installed: the_report_of_a_week_lists_every_promise");
        return;
    };
    let sink = MailSink::start();
    let port = sink.port;
    let told = format!(
        "[promise]\nsnapshot-within = \"30d\"\nverified-within = \"60d\"\n[notify]\non = [\"broken\", \"mended\", \"weekly\"]\n\
         mail = {{ to = [\"ops@example.org\"], from = \"varve@example.org\", server = \"smtp://127.0.0.1:{port}\" }}\n"
    );
    configure(&sandbox, &format!("{HOME}{told}"));
    daily_ok(&sandbox, &["run", "home"]);
    let first = sink.take();
    assert_eq!(first.len(), 1, "the first report comes with the first run: {first:?}");
    let notify_in = |days: i64| {
        let mut command = sandbox.command();
        clock.move_by(&mut command, days * DAY);
        let run = Run::new(command.args(["notify", "--config", "varve.toml"]).output().unwrap());
        assert_eq!(run.code, Some(0), "{}", run.stderr);
        sink.take()
    };
    assert_eq!([notify_in(0).len(), notify_in(6).len()], [0, 0]);
    let report = notify_in(8);
    assert_eq!(report.len(), 1);
    for line in [
        "every promise is kept (report of the week)",
        "ok snapshot-within",
        "ok verified-within",
        "ok clock",
        "ok store",
    ] {
        assert!(report[0].contains(line), "{line}: {}", report[0]);
    }
    assert_eq!([notify_in(9).len(), notify_in(14).len()], [0, 0]);
    // The report has the broken promises, too.
    assert_eq!(notify_in(16).len(), 1);
    assert!(notify_in(32)[0].contains("BROKEN snapshot-within"));
}
