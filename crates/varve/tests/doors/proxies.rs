//! `varve serve --venti` before proxies, with the real programs and the Venti protocol between
//! them. The tests check the promises of cache, write buffer, shards and read-ahead to a client,
//! also when the proxy and the servers behind it are killed.
//!
//! `VARVE_PROXY_SECONDS` sets the duration of the test that kills processes, and `VARVE_SEED` sets
//! its seed. The exact moments depend on the machine as well.
#![allow(clippy::disallowed_methods, reason = "waits for programs, and stops in good time")]
#![allow(clippy::print_stderr, reason = "says what was done")]

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::sandbox::{Sandbox, noise};
use varve_block::{Block, BlockKind, BlockName, BlockStore, BlockType, GetError, Score, with_causes};
use varve_remote::{VentiOptions, VentiStore};

/// A server process that is killed if the test ends first.
struct Server {
    child: Child,
    address: String,
}

impl Server {
    fn start(words: &[String]) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_varve"));
        let mut child = command.args(words).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let Some(address) = line.trim().strip_prefix("serving at ") else {
            child.kill().unwrap();
            let mut said = String::new();
            child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
            panic!("{words:?}: {line:?} {said}");
        };
        // A thread empties the pipe of standard error, so that it never fills up.
        let mut said = child.stderr.take().unwrap();
        std::thread::spawn(move || std::io::copy(&mut said, &mut std::io::sink()));
        Self { address: address.to_owned(), child }
    }

    fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Sends SIGTERM to the server, and waits until it has ended.
    fn end(mut self) {
        kill_process(Pid::from_child(&self.child), Signal::TERM).unwrap();
        assert_eq!(self.child.wait().unwrap().code(), Some(0));
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn words(list: &[&str]) -> Vec<String> {
    list.iter().map(|word| (*word).to_owned()).collect()
}

/// Makes a store for Venti's clients.
fn make_store(sandbox: &Sandbox, name: &str) -> String {
    let path = sandbox.arg(name);
    let made = ["-s", &path, "init", "--plaintext", "--score", "sha1", "-q"];
    assert!(Command::new(env!("CARGO_BIN_EXE_varve")).args(made).status().unwrap().success());
    path
}

fn socket(sandbox: &Sandbox, name: &str) -> String {
    format!("unix!{}", sandbox.arg(&format!("{name}.socket")))
}

fn serve_store(sandbox: &Sandbox, name: &str) -> Server {
    Server::start(&words(&["-s", &sandbox.arg(name), "serve", "--venti", &socket(sandbox, name)]))
}

fn client_of(address: &str) -> VentiStore {
    let options = VentiOptions { attempts: 1, pause: Duration::ZERO, ..VentiOptions::default() };
    VentiStore::connect_later(address.parse().unwrap(), options)
}

/// The error of a server for a block that it has, but cannot return now.
fn trouble(error: GetError) -> String {
    assert!(!matches!(error, GetError::NotFound { .. }), "{error}");
    with_causes(&error)
}

fn data(bytes: &[u8]) -> Block<'_> {
    Block { block_type: BlockType::DATA, bytes }
}

fn name(score: Score) -> BlockName {
    BlockName { score, block_type: BlockType::DATA }
}

fn blocks(seed: u64, count: usize, length: usize) -> Vec<Vec<u8>> {
    noise(seed, count * length).chunks(length).map(<[u8]>::to_vec).collect()
}

#[test]
fn a_shard_that_is_killed_fails_its_own_blocks_only_and_comes_back() {
    let sandbox = Sandbox::empty();
    for store in ["one", "two"] {
        make_store(&sandbox, store);
    }
    let [one, two] = ["one", "two"].map(|store| serve_store(&sandbox, store));
    let proxy = Server::start(&words(&[
        "serve",
        "--venti",
        "127.0.0.1:0",
        "--shard",
        &one.address,
        "--shard",
        &two.address,
    ]));
    let client = client_of(&proxy.address);
    let first = blocks(1, 200, 3000);
    let put: Vec<Block<'_>> = first.iter().map(|bytes| data(bytes)).collect();
    let names: Vec<BlockName> = client.put_batch(&put).unwrap().into_iter().map(name).collect();
    client.sync().unwrap();
    let is_second = |name: &BlockName| name.score.as_bytes()[0] >= 0x80;
    two.kill();
    // The server was killed right after the sync, so all its blocks are durable.
    for (name, answer) in names.iter().zip(client.get_batch(&names)) {
        match answer {
            Ok(_) => assert!(!is_second(name), "{name} is at the one that was killed"),
            Err(error) => {
                let said = trouble(error);
                assert!(is_second(name) && said.contains("shard 2 of 2"), "{name}: {said}");
            }
        }
    }
    for bytes in &blocks(2, 40, 3000) {
        // A successful put shows to which of the two shards a block belongs.
        if let Ok(score) = client.put(data(bytes)) {
            assert!(!is_second(&name(score)));
        }
    }
    let two = serve_store(&sandbox, "two");
    for (answer, bytes) in client.get_batch(&names).into_iter().zip(&first) {
        assert_eq!(answer.unwrap(), *bytes);
    }
    // The failure has passed, and the server has not become read-only.
    for bytes in &blocks(2, 40, 3000) {
        client.put(data(bytes)).unwrap();
    }
    client.sync().unwrap();
    drop(client);
    proxy.end();
    one.end();
    two.end();
}

#[test]
fn what_was_read_once_is_near_and_a_file_says_how() {
    let sandbox = Sandbox::empty();
    make_store(&sandbox, "far");
    let far = serve_store(&sandbox, "far");
    let bytes = blocks(3, 100, 5000);
    let put: Vec<Block<'_>> = bytes.iter().map(|bytes| data(bytes)).collect();
    let behind = client_of(&far.address);
    let names: Vec<BlockName> = behind.put_batch(&put).unwrap().into_iter().map(name).collect();
    let scores: Vec<u8> = names.iter().flat_map(|name| name.score.as_bytes().to_vec()).collect();
    let pointer = BlockType::at_depth(BlockKind::Data, 1).unwrap();
    let root = behind.put(Block { block_type: pointer, bytes: &scores }).unwrap();
    behind.sync().unwrap();

    let file = sandbox.path("proxies.toml");
    let text = format!(
        "serve = \"ahead\"\n\
         [store.ahead]\nkind = \"read-ahead\"\nsource = \"front\"\n\
         [store.front]\nkind = \"cache\"\nsource = \"far\"\nlook-aside = \"near\"\nmemory = \"1M\"\n\
         [store.near]\nkind = \"bounded\"\nfolder = \"{}\"\nsize = \"16M\"\n\
         [store.far]\nkind = \"server\"\naddress = \"{}\"\nattempts = 1\n",
        sandbox.arg("near"),
        far.address
    );
    fs::write(&file, text).unwrap();
    let serve = words(&["serve", "--venti", "127.0.0.1:0", "--proxies", file.to_str().unwrap()]);
    let proxy = Server::start(&serve);
    let client = client_of(&proxy.address);
    let found = client.get(&BlockName { score: root, block_type: pointer }).unwrap();
    assert_eq!(found, scores);
    // All blocks arrive, by read-ahead or by request, and stay in the cache.
    for (answer, bytes) in client.get_batch(&names).into_iter().zip(&bytes) {
        assert_eq!(answer.unwrap(), *bytes);
    }
    drop(client);
    proxy.end();
    far.kill();
    let proxy = Server::start(&serve);
    let client = client_of(&proxy.address);
    for (answer, bytes) in client.get_batch(&names).into_iter().zip(&bytes) {
        assert_eq!(answer.unwrap(), *bytes, "from the look-aside alone");
    }
    assert!(client.put(data(b"new")).is_err(), "what is authoritative is away");
    drop(client);
    proxy.end();
}

#[test]
fn a_server_that_was_started_again_is_no_trouble() {
    let sandbox = Sandbox::empty();
    make_store(&sandbox, "far");
    let far = serve_store(&sandbox, "far");
    let file = sandbox.path("proxies.toml");
    let text = format!(
        "serve = \"far\"\n[store.far]\nkind = \"server\"\naddress = \"{}\"\nattempts = 1\n",
        far.address
    );
    fs::write(&file, text).unwrap();
    let proxy =
        Server::start(&words(&["serve", "--venti", "127.0.0.1:0", "--proxies", file.to_str().unwrap()]));
    let client = client_of(&proxy.address);
    let bytes = blocks(4, 300, 20_000);
    let put: Vec<Block<'_>> = bytes.iter().map(|bytes| data(bytes)).collect();
    let names: Vec<BlockName> = client.put_batch(&put).unwrap().into_iter().map(name).collect();
    client.sync().unwrap();
    // A batch of gets opens many connections of the proxy. All of them break.
    assert!(client.get_batch(&names[..100]).iter().all(Result::is_ok));
    far.kill();
    let far = serve_store(&sandbox, "far");
    for (answer, bytes) in client.get_batch(&names[100..]).into_iter().zip(&bytes[100..]) {
        assert_eq!(answer.unwrap(), *bytes);
    }
    drop(client);
    proxy.end();
    far.end();
}

#[test]
fn what_is_wrong_in_a_file_or_in_flags_is_said() {
    let sandbox = Sandbox::empty();
    let file = sandbox.path("proxies.toml");
    let at = file.to_str().unwrap().to_owned();
    let run = |words: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_varve"));
        let output = command.env_remove("VARVE_STORE").args(words).output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(!said.contains("panicked"), "{said}");
        (output.status.code(), said)
    };
    for (text, expected) in [
        ("serve = \"front\"", "there is no [store.front]"),
        ("serve = \"a\"\n[store.a]\nkind = \"cache\"\nsource = \"a\"", "a -> a"),
        ("serve = \"a\"\n[store.a]\nkind = \"cash\"", "cash"),
        ("serve = \"a\"\n[store.a]\nkind = \"folder\"\npath = \"/nowhere/at/all\"", "[store.a]"),
    ] {
        fs::write(&file, text).unwrap();
        let (code, said) = run(&["serve", "--venti", "127.0.0.1:0", "--proxies", &at]);
        assert_eq!(code, Some(if said.contains("not a store") { 10 } else { 1 }), "{said}");
        assert!(said.contains(expected), "{text}: {said}");
    }
    let (code, said) = run(&["serve", "--venti", "127.0.0.1:0", "--proxies", "/no/such/file"]);
    assert!(code == Some(1) && said.contains("/no/such/file"), "{said}");
    let (code, said) = run(&["serve", "--nfs", "127.0.0.1:0", "--shard", "tcp!127.0.0.1!1"]);
    assert!(code == Some(2) && said.contains("--roots"), "{said}");
    let (code, said) = run(&["serve", "--venti", "127.0.0.1:0", "--proxies", &at, "--read-ahead"]);
    assert!(code == Some(2) && said.contains("--read-ahead"), "{said}");
    let (code, said) = run(&["serve", "--venti", "127.0.0.1:0", "--read-ahead"]);
    assert!(code == Some(2) && said.contains("--store"), "{said}");
}

/// Draws random numbers from a seed.
struct Dice(u64);

impl Dice {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }
}

fn setting(variable: &str, default: u64) -> u64 {
    std::env::var(variable).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

/// Waits until a condition holds, for up to five minutes.
fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let started = Instant::now();
    while !is_so() {
        assert!(started.elapsed() < Duration::from_secs(300), "{what}: not within five minutes");
        sleep(Duration::from_millis(50));
    }
}

/// Returns true if no block waits in a write buffer.
fn is_through(folder: &Path) -> bool {
    let slots = fs::read_dir(folder.join("slots")).into_iter().flatten().flatten();
    slots
        .map(|slot| slot.path().join("arenas"))
        .all(|arenas| fs::read_dir(arenas).into_iter().flatten().next().is_none())
}

/// A client, a proxy with a cache and a write buffer before shards, and two servers. Each process
/// except the client is killed at random, and stays away for a while. The proxy must never
/// report a block as missing that a sync acknowledged to the client, and in the end every such
/// block must be at the servers.
#[test]
fn no_acknowledged_block_is_lost_when_each_side_is_killed_at_random() {
    let seed = setting("VARVE_SEED", 20_261_121);
    let time = Duration::from_secs(setting("VARVE_PROXY_SECONDS", 6));
    let mut dice = Dice(seed);
    let sandbox = Sandbox::empty();
    for store in ["one", "two"] {
        make_store(&sandbox, store);
    }
    let addresses = ["one", "two"].map(|store| socket(&sandbox, store));
    let front = socket(&sandbox, "front");
    let buffer = sandbox.path("buffer");
    let file = sandbox.path("proxies.toml");
    let text = format!(
        "serve = \"front\"\n\
         [store.front]\nkind = \"cache\"\nsource = \"out\"\nlook-aside = \"near\"\n\
         [store.near]\nkind = \"bounded\"\nfolder = \"{}\"\nsize = \"8M\"\n\
         [store.out]\nkind = \"buffer\"\ntarget = \"all\"\nfolder = \"{}\"\nsize = \"64M\"\npatience = 1\n\
         [store.all]\nkind = \"shards\"\nstores = [\"one\", \"two\"]\n\
         [store.one]\nkind = \"server\"\naddress = \"{}\"\nattempts = 1\n\
         [store.two]\nkind = \"server\"\naddress = \"{}\"\nattempts = 1\n",
        sandbox.arg("near"),
        sandbox.arg("buffer"),
        addresses[0],
        addresses[1]
    );
    fs::write(&file, text).unwrap();
    let serve_proxy =
        || Server::start(&words(&["serve", "--venti", &front, "--proxies", file.to_str().unwrap()]));
    let mut servers = ["one", "two"].map(|store| Some(serve_store(&sandbox, store)));
    let mut proxy = Some(serve_proxy());
    let client = client_of(&front);
    let mut put: Vec<(BlockName, Vec<u8>)> = Vec::new();
    let mut synced: BTreeMap<BlockName, Vec<u8>> = BTreeMap::new();
    let mut kills = [0_u32; 3];
    let (mut failed_reads, mut good_reads, mut syncs) = (0_u32, 0_u32, 0_u32);
    let started = Instant::now();
    let mut number = 0;
    while started.elapsed() < time {
        match dice.below(24) {
            // Proxy and server may both be away for a while. A server that is away comes back
            // later.
            0 => match proxy.take() {
                Some(alive) => {
                    alive.kill();
                    kills[0] += 1;
                }
                None => proxy = Some(serve_proxy()),
            },
            1..=3 if proxy.is_none() => proxy = Some(serve_proxy()),
            side @ 4..=6 => {
                let side = usize::from(side == 4);
                match servers[side].take() {
                    Some(alive) => {
                        alive.kill();
                        kills[1 + side] += 1;
                    }
                    None => servers[side] = Some(serve_store(&sandbox, ["one", "two"][side])),
                }
            }
            7..=9 => {
                if client.sync().is_ok() {
                    syncs += 1;
                    synced.extend(put.drain(..));
                }
            }
            10..=15 => {
                let known: Vec<BlockName> = synced.keys().copied().collect();
                if known.is_empty() {
                    continue;
                }
                let start = usize::try_from(dice.below(known.len() as u64)).unwrap();
                let asked = &known[start..known.len().min(start + 20)];
                for (name, answer) in asked.iter().zip(client.get_batch(asked)) {
                    match answer {
                        Ok(found) => {
                            good_reads += 1;
                            assert_eq!(found, synced[name], "seed {seed}: {name}");
                        }
                        // A process is away, or was until now. The answer must never be that the
                        // block does not exist.
                        Err(error) => {
                            failed_reads += 1;
                            let said = trouble(error);
                            assert!(said.contains("connect"), "seed {seed}: {name}: {said}");
                        }
                    }
                }
            }
            _ => {
                number += 1;
                let count = 1 + usize::try_from(dice.below(30)).unwrap();
                let length = 500 + usize::try_from(dice.below(12_000)).unwrap();
                let fresh = blocks(seed ^ (number << 20), count, length);
                let list: Vec<Block<'_>> = fresh.iter().map(|bytes| data(bytes)).collect();
                if let Ok(scores) = client.put_batch(&list) {
                    put.extend(scores.into_iter().map(name).zip(fresh));
                }
            }
        }
    }
    let proxy = proxy.unwrap_or_else(serve_proxy);
    for (side, store) in ["one", "two"].into_iter().enumerate() {
        servers[side].get_or_insert_with(|| serve_store(&sandbox, store));
    }
    client.sync().unwrap();
    synced.extend(put);
    eprintln!(
        "seed {seed}: {} blocks in {syncs} syncs; killed: proxy {}, servers {} and {}; reads {good_reads}, of somebody who was away {failed_reads}",
        synced.len(),
        kills[0],
        kills[1],
        kills[2]
    );
    assert!(kills.iter().sum::<u32>() > 0 && !synced.is_empty(), "nothing was tried");
    let rest = Instant::now();
    wait_until("everything gets through", || is_through(&buffer));
    eprintln!("seed {seed}: the rest got through in {:.1} s", rest.elapsed().as_secs_f64());
    // All blocks are durable at the servers. Neither the proxy nor the memory of a server is
    // needed.
    proxy.kill();
    for server in servers.iter_mut().filter_map(Option::take) {
        server.kill();
    }
    let servers = ["one", "two"].map(|store| serve_store(&sandbox, store));
    let behind = servers.each_ref().map(|server| client_of(&server.address));
    for (name, bytes) in &synced {
        let store = &behind[usize::from(name.score.as_bytes()[0] >> 7)];
        let found = store.get(name).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        assert_eq!(found, *bytes, "seed {seed}: {name}");
    }
}
