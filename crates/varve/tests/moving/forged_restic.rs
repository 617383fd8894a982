//! Repositories of restic that an attacker has made, who knows the password. A few bytes stand for
//! more folders, levels or contents than any machine could hold.
#![allow(clippy::disallowed_methods, reason = "an import must end in good time")]

use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use aws_lc_rs::cipher::{AES_128, AES_256, EncryptingKey, EncryptionContext, UnboundCipherKey};
use aws_lc_rs::digest::{SHA256, digest};
use aws_lc_rs::iv::FixedLength;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use poly1305::Poly1305;
use poly1305::universal_hash::KeyInit;
use serde_json::{Value, json};

use crate::sandbox::{Run, Sandbox, noise};

const PASSWORD: &str = "known to the attacker";
/// A debug build imports each of these repositories in a few seconds.
const PATIENCE: Duration = Duration::from_secs(120);

/// A key as the repository has it: 32 bytes for the encryption, and 16 and 16 for the code.
struct SealKey([u8; 64]);

impl SealKey {
    /// The counter, the ciphertext, and Poly1305-AES of the ciphertext.
    fn seal(&self, plain: &[u8]) -> Vec<u8> {
        let nonce: [u8; 16] = digest(&SHA256, plain).as_ref()[..16].try_into().unwrap();
        let key_stream = |key: &[u8], bytes: &mut [u8]| {
            let algorithm = if key.len() == 32 { &AES_256 } else { &AES_128 };
            let key = EncryptingKey::ctr(UnboundCipherKey::new(algorithm, key).unwrap()).unwrap();
            let counter = EncryptionContext::Iv128(FixedLength::from(nonce));
            key.less_safe_encrypt(bytes, counter).unwrap();
        };
        let mut text = plain.to_vec();
        key_stream(&self.0[..32], &mut text);
        let mut code_key = [0; 32];
        code_key[..16].copy_from_slice(&self.0[48..]);
        key_stream(&self.0[32..48], &mut code_key[16..]);
        let code = Poly1305::new(&code_key.into()).compute_unpadded(&text);
        [&nonce[..], &text, &code].concat()
    }
}

fn name_of(bytes: &[u8]) -> String {
    digest(&SHA256, bytes).as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A repository with one pack.
struct Forged<'a> {
    sandbox: &'a Sandbox,
    key: SealKey,
    pack: Vec<u8>,
    blobs: Vec<Value>,
}

impl<'a> Forged<'a> {
    fn make(sandbox: &'a Sandbox) -> Self {
        let key = SealKey(noise(1, 64).try_into().unwrap());
        let forged = Self { sandbox, key, pack: Vec::new(), blobs: Vec::new() };
        for folder in ["data/00", "index", "keys", "snapshots"] {
            fs::create_dir_all(forged.path(folder)).unwrap();
        }
        let text = |bytes: &[u8]| STANDARD.encode(bytes);
        let parts = [&forged.key.0[..32], &forged.key.0[32..48], &forged.key.0[48..]].map(text);
        let master = json!({ "mac": { "k": parts[1], "r": parts[2] }, "encrypt": parts[0] });
        let (salt, mut made) = ([7; 64], [0; 64]);
        let cost = scrypt::Params::new(1, 1, 1).unwrap();
        scrypt::scrypt(PASSWORD.as_bytes(), &salt, &cost, &mut made).unwrap();
        let data = SealKey(made).seal(master.to_string().as_bytes());
        let key_file =
            json!({ "kdf": "scrypt", "N": 2, "r": 1, "p": 1, "salt": text(&salt), "data": text(&data) });
        let key_file = key_file.to_string();
        fs::write(forged.path("keys").join(name_of(key_file.as_bytes())), &key_file).unwrap();
        fs::write(forged.path("config"), forged.key.seal(br#"{"version":1}"#)).unwrap();
        forged
    }

    fn path(&self, name: &str) -> PathBuf {
        self.sandbox.path("repository").join(name)
    }

    /// Adds a blob, and returns its id.
    fn add(&mut self, kind: &str, plain: &[u8]) -> String {
        let (id, sealed) = (name_of(plain), self.key.seal(plain));
        let blob = json!({ "id": id, "type": kind, "offset": self.pack.len(), "length": sealed.len() });
        self.blobs.push(blob);
        self.pack.extend(sealed);
        id
    }

    fn add_tree(&mut self, nodes: &[Value]) -> String {
        self.add("tree", json!({ "nodes": nodes }).to_string().as_bytes())
    }

    fn add_sealed(&self, folder: &str, content: &Value) {
        let sealed = self.key.seal(content.to_string().as_bytes());
        fs::write(self.path(folder).join(name_of(&sealed)), sealed).unwrap();
    }

    /// Writes the pack, the index and a snapshot of this tree, and imports it.
    fn import(self, tree: &str) -> Run {
        let pack = name_of(&self.pack);
        fs::create_dir_all(self.path("data").join(&pack[..2])).unwrap();
        fs::write(self.path("data").join(&pack[..2]).join(&pack), &self.pack).unwrap();
        self.add_sealed("index", &json!({ "packs": [{ "id": pack, "blobs": self.blobs }] }));
        let time = "2026-01-02T03:04:05Z";
        self.add_sealed(
            "snapshots",
            &json!({ "time": time, "tree": tree, "paths": ["/x", "/y"], "hostname": "h" }),
        );
        let mut command: Command = self.sandbox.command();
        command.env("RESTIC_PASSWORD", PASSWORD).args(["import", "restic"]).arg(self.path(""));
        let began = Instant::now();
        let run = Run::new(command.output().unwrap());
        assert!(began.elapsed() < PATIENCE, "{:?}", began.elapsed());
        run
    }
}

fn folder(name: &str, subtree: &str) -> Value {
    json!({ "name": name, "type": "dir", "mode": 0o755, "subtree": subtree })
}

/// The rest is left out with a reason, the sound file beside it comes over, and the store is sound.
fn assert_left_out(sandbox: &Sandbox, run: &Run, why: &str) {
    assert_eq!(run.code, Some(3), "{}{}", run.text(), run.stderr);
    assert!(run.stderr.contains(why), "{}", run.stderr);
    let listed = sandbox.json(["snapshots"]);
    assert_eq!(listed.len(), 1, "{listed:?}");
    let id = listed[0]["id"].as_str().unwrap();
    assert_eq!(sandbox.run(["cat", &format!("{id}:sound")]).stdout, b"sound");
    sandbox.ok(["verify", "--data"]);
}

fn sound(forged: &mut Forged<'_>) -> Value {
    let blob = forged.add("data", b"sound");
    json!({ "name": "sound", "type": "file", "mode": 0o644, "size": 5, "content": [blob] })
}

/// Each list of files has the next one twice: sixty of them are 2⁶⁰ folders.
#[test]
fn lists_that_double_are_left_out() {
    let sandbox = Sandbox::encrypted();
    let mut forged = Forged::make(&sandbox);
    let sound = sound(&mut forged);
    // Long lists come to the limit with fewer folders.
    let long = json!({ "name": "link", "type": "symlink", "linktarget": "x".repeat(4000) });
    let mut tree = forged.add_tree(std::slice::from_ref(&long));
    for _ in 0..60 {
        tree = forged.add_tree(&[folder("a", &tree), folder("b", &tree), long.clone()]);
    }
    let root = forged.add_tree(&[folder("bomb", &tree), sound]);
    let run = forged.import(&root);
    assert_left_out(&sandbox, &run, "the same lists of files again and again");
}

#[test]
fn levels_beyond_the_limit_are_left_out() {
    let sandbox = Sandbox::encrypted();
    let mut forged = Forged::make(&sandbox);
    let sound = sound(&mut forged);
    let mut tree = forged.add_tree(&[]);
    for _ in 0..40_000 {
        tree = forged.add_tree(&[folder("d", &tree)]);
    }
    let root = forged.add_tree(&[folder("deep", &tree), sound]);
    let run = forged.import(&root);
    assert_left_out(&sandbox, &run, "its path has ");
}

/// A file of a megabyte whose list names one blob of a megabyte 200,000 times.
#[test]
fn a_content_that_is_longer_than_its_file_is_left_out() {
    let sandbox = Sandbox::encrypted();
    let mut forged = Forged::make(&sandbox);
    let sound = sound(&mut forged);
    let blob = forged.add("data", &noise(5, 1 << 20));
    let content = vec![blob; 200_000];
    let file = json!({ "name": "file", "type": "file", "mode": 0o644, "size": 1 << 20, "content": content });
    let root = forged.add_tree(&[file, sound]);
    let run = forged.import(&root);
    assert_left_out(&sandbox, &run, "its list of blobs has 209715200000 bytes, and the file has 1048576");
}
