//! Disk images in other formats than raw: QEMU's tools read them for a snapshot and write them for
//! a restore.
#![allow(clippy::print_stderr, reason = "says what it skipped")]

use crate::sandbox;
use std::fs;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::process::{Command, Stdio};

use crate::qemu::{has, tool, wait_for};
use crate::sandbox::{Sandbox, noise, sparse_image, write_program};

const PROGRAMS: [&str; 2] = ["qemu-img", "qemu-nbd"];
const FORMATS: [&str; 5] = ["qcow2", "vmdk", "vhdx", "vdi", "vpc"];
/// Formats, and the options of their variants.
const VARIANTS: [(&str, &[&str]); 5] = [
    (
        "qcow2",
        &[
            "compat=0.10",
            "cluster_size=512",
            "cluster_size=2M",
            "cluster_size=128k,extended_l2=on",
            "compression_type=zlib",
            "compression_type=zstd",
            "lazy_refcounts=on,refcount_bits=1",
            "preallocation=full",
        ],
    ),
    (
        "vmdk",
        &[
            "subformat=monolithicSparse",
            "subformat=monolithicFlat",
            "subformat=twoGbMaxExtentSparse",
            "subformat=twoGbMaxExtentFlat",
            "subformat=streamOptimized",
            "adapter_type=lsilogic,hwversion=8,zeroed_grain=on",
        ],
    ),
    ("vhdx", &["subformat=fixed", "block_size=1M", "block_size=64M,log_size=4M"]),
    ("vdi", &["static=on"]),
    ("vpc", &["subformat=dynamic,force_size=on", "subformat=fixed,force_size=on"]),
];
const MIB: u64 = 1 << 20;

/// Writes `disk.raw`: a raw image of 24 MiB, most of it holes.
fn raw(sandbox: &Sandbox) -> Vec<u8> {
    let path = sandbox.path("disk.raw");
    sparse_image(
        &path,
        24 * MIB,
        &[(0, &noise(1, 3 << 20)), (10 * MIB + 512, &[7; 4096]), (24 * MIB - 512, &[9; 512])],
    );
    fs::read(path).unwrap()
}

/// Converts `disk.raw` to another format, as `disk.FORMAT`.
fn convert(sandbox: &Sandbox, format: &str) -> String {
    let to = sandbox.arg(&format!("disk.{format}"));
    let more: &[&str] = if format == "vpc" { &["-o", "force_size=on"] } else { &[] };
    tool(
        "qemu-img",
        &[&["convert", "-f", "raw", "-O", format], more, &[&sandbox.arg("disk.raw"), &to]].concat(),
    );
    to
}

#[test]
fn a_disk_is_the_same_in_every_format() {
    if !has(&PROGRAMS, "a_disk_is_the_same_in_every_format") {
        return;
    }
    let sandbox = Sandbox::encrypted();
    let bytes = raw(&sandbox);
    sandbox.ok(["snapshot", &sandbox.arg("disk.raw"), "--as", "image", "--name", "raw"]);
    for format in FORMATS {
        let path = convert(&sandbox, format);
        // The blocks of a disk do not depend on its image format.
        assert_eq!(sandbox.json(["snapshot", &path, "--name", format])[0]["new_bytes"], 0, "{format}");
        assert!(sandbox.run(["cat", format]).stdout == bytes, "{format}");

        let back = sandbox.arg(&format!("back.{format}"));
        // The restore does not follow links that others have planted, and nobody else can read the
        // restored disk.
        for trap in ["", "-0"] {
            let trap = sandbox.path(&format!(".back.{format}.varve-partial{trap}"));
            std::os::unix::fs::symlink(sandbox.path("trap"), trap).unwrap();
        }
        sandbox.ok(["restore", "raw", &back, "--format", format]);
        assert_eq!(fs::metadata(&back).unwrap().permissions().mode() & 0o777, 0o600, "{format}");
        tool("qemu-img", &["compare", "-f", "raw", "-F", format, &sandbox.arg("disk.raw"), &back]);
        assert!(sandbox::bytes_on_disk(back.as_ref()) < 12 * MIB, "{format} takes room for its holes");
        let said = sandbox.fails(1, ["restore", "raw", &back, "--format", format]);
        assert!(said.contains("--overwrite"), "{said}");
        sandbox.ok(["restore", "raw", &back, "--format", format, "--overwrite", "always"]);
    }
    assert!(!sandbox.path("trap").exists());
    let left =
        |name: &str| name.contains(".varve-partial") && !name.ends_with("partial") && !name.ends_with("-0");
    let names = fs::read_dir(sandbox.path("")).unwrap().map(|entry| entry.unwrap().file_name());
    let left: Vec<_> = names.filter(|name| left(name.to_str().unwrap())).collect();
    assert!(left.is_empty(), "{left:?}");
    tool("qemu-img", &["check", "-q", &sandbox.arg("back.qcow2")]);
    // With `--format raw` the image file itself is archived.
    let path = sandbox.arg("disk.qcow2");
    sandbox.ok(["snapshot", &path, "--name", "file", "--format", "raw"]);
    assert!(sandbox.run(["cat", "file"]).stdout == fs::read(path).unwrap());
    let said = sandbox.fails(2, ["restore", "raw", "-", "--format", "qcow2"]);
    assert!(said.contains("only to a file"), "{said}");
}

/// Each format in the variants that QEMU writes. An image over several files is allowed to use
/// those beside it.
#[test]
fn a_disk_is_the_same_in_every_variant_of_a_format() {
    if !has(&PROGRAMS, "a_disk_is_the_same_in_every_variant_of_a_format") {
        return;
    }
    let sandbox = Sandbox::encrypted();
    let bytes = raw(&sandbox);
    sandbox.ok(["snapshot", &sandbox.arg("disk.raw"), "--as", "image", "--name", "raw"]);
    let folder = sandbox.path("made").to_str().unwrap().to_owned();
    let mut count = 0;
    for (format, variants) in VARIANTS {
        for variant in variants {
            fs::create_dir(&folder).unwrap();
            let image = format!("{folder}/disk.{format}");
            let compressed: &[&str] = if variant.contains("compression_type") { &["-c"] } else { &[] };
            let words = [&["convert", "-f", "raw", "-O", format, "-o", variant][..], compressed];
            let output = Command::new("qemu-img")
                .args(words.concat())
                .args([&sandbox.arg("disk.raw"), &image])
                .output()
                .unwrap();
            if output.status.success() {
                let words = ["snapshot", &image, "--name", "made", "--allow-backing", &folder];
                assert_eq!(sandbox.json(words)[0]["new_bytes"], 0, "{format} {variant}");
                assert!(sandbox.run(["cat", "made"]).stdout == bytes, "{format} {variant}");
                count += 1;
            } else {
                let said = String::from_utf8_lossy(&output.stderr);
                eprintln!("skipped, as this qemu-img does not make it: {format} {variant}: {said}");
            }
            fs::remove_dir_all(&folder).unwrap();
        }
    }
    assert!(count >= 15, "{count}");
}

/// A VHD has its size in bytes, and rounded down in cylinders. QEMU believes the cylinders unless
/// it knows the program that made the file.
#[test]
fn the_end_of_a_vhd_is_archived_whoever_made_it() {
    if !has(&PROGRAMS, "the_end_of_a_vhd_is_archived_whoever_made_it") {
        return;
    }
    let sandbox = Sandbox::encrypted();
    let bytes = raw(&sandbox);
    let vhd = fs::read(convert(&sandbox, "vpc")).unwrap();
    for (name, maker) in [("vbox", b"vbox"), ("xen", b"xo  "), ("azure", b"wa\0\0"), ("hyper", b"win ")] {
        let mut vhd = vhd.clone();
        for footer in [0, vhd.len() - 512] {
            let footer = &mut vhd[footer..footer + 512];
            footer[28..32].copy_from_slice(maker);
            // 722 cylinders of 4 heads and 17 sectors: by the specification's rule for 24 MiB.
            footer[56..60].copy_from_slice(&[2, 210, 4, 17]);
            footer[64..68].fill(0);
            let sum: u32 = footer.iter().map(|byte| u32::from(*byte)).sum();
            footer[64..68].copy_from_slice(&(!sum).to_be_bytes());
        }
        fs::write(sandbox.path("made.vhd"), vhd).unwrap();
        sandbox.ok(["snapshot", &sandbox.arg("made.vhd"), "--name", name]);
        assert!(sandbox.run(["cat", name]).stdout == bytes, "{name}");
    }
}

/// VMDKstream is the program of Debian's package python3-vmdkstream.
#[test]
fn a_vmdk_that_another_program_has_made_is_the_same_disk() {
    let test = "a_vmdk_that_another_program_has_made_is_the_same_disk";
    let python = |code: &str| Command::new("/usr/bin/python3").args(["-c", code]).output();
    if !has(&PROGRAMS, test) {
        return;
    }
    if !python("import sys, VMDKstream").is_ok_and(|output| output.status.success()) {
        eprintln!("skipped as python3-vmdkstream is not installed: {test}");
        return;
    }
    let sandbox = Sandbox::encrypted();
    let bytes = raw(&sandbox);
    let made = sandbox.arg("made.vmdk");
    let convert = format!("VMDKstream.convert_to_stream({:?}, {made:?})", sandbox.arg("disk.raw"));
    let output = python(&format!("import sys, VMDKstream\n{convert}")).unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    sandbox.ok(["snapshot", &made, "--name", "made"]);
    assert!(sandbox.run(["cat", "made"]).stdout == bytes);
}

#[test]
fn snapshots_inside_a_qcow2_are_named() {
    if !has(&PROGRAMS, "snapshots_inside_a_qcow2_are_named") {
        return;
    }
    let sandbox = Sandbox::encrypted();
    raw(&sandbox);
    let path = convert(&sandbox, "qcow2");
    tool("qemu-img", &["snapshot", "-c", "before-upgrade", &path]);
    let line = format!(
        "  left out: 1 snapshot inside {path}: before-upgrade: only the current state of the disk is archived\n"
    );
    let said = sandbox.ok(["snapshot", &path, "--name", "disk"]);
    assert!(said.contains(&line), "{said}");
    let listed = sandbox.json(["snapshots", "disk"]);
    let what = listed[0]["left_out"][0]["what"].as_str().unwrap();
    assert!(what.contains("before-upgrade"), "{what}");
}

#[test]
fn an_image_stands_only_on_what_is_allowed() {
    if !has(&PROGRAMS, "an_image_stands_only_on_what_is_allowed") {
        return;
    }
    let sandbox = Sandbox::encrypted();
    let bytes = raw(&sandbox);
    fs::create_dir_all(sandbox.path("base")).unwrap();
    fs::create_dir_all(sandbox.path("other")).unwrap();
    fs::rename(sandbox.path("disk.raw"), sandbox.path("base/disk.raw")).unwrap();
    let create = |base: &str, format: &str, top: &str| {
        tool("qemu-img", &["create", "-q", "-f", "qcow2", "-b", base, "-F", format, &sandbox.arg(top)]);
    };
    create("disk.raw", "raw", "base/middle.qcow2");
    create("base/middle.qcow2", "qcow2", "top.qcow2");
    tool("qemu-io", &["-f", "qcow2", "-c", "write -P 5 1M 64k", &sandbox.arg("top.qcow2")]);
    let (top, base, other) = (sandbox.arg("top.qcow2"), sandbox.arg("base"), sandbox.arg("other"));
    let said = sandbox.fails(1, ["snapshot", &top]);
    assert!(said.contains("base/middle.qcow2") && said.contains("--allow-backing"), "{said}");
    sandbox.fails(1, ["snapshot", &top, "--allow-backing", &other]);
    sandbox.ok(["snapshot", &top, "--allow-backing", &other, "--allow-backing", &base]);
    let mut expected = bytes;
    expected[1 << 20..(1 << 20) + (64 << 10)].fill(5);
    assert!(sandbox.run(["cat", "top.qcow2"]).stdout == expected);

    // A guest has rewritten its raw disk: the disk now claims a backing file on the host, or to be
    // a file of the host.
    fs::write(sandbox.path("secret"), [0x42; 512]).unwrap();
    tool(
        "qemu-img",
        &[
            "create",
            "-q",
            "-f",
            "qcow2",
            "-u",
            "-b",
            &sandbox.arg("secret"),
            "-F",
            "raw",
            &sandbox.arg("evil.img"),
            "1M",
        ],
    );
    let said = sandbox.fails(1, ["snapshot", &sandbox.arg("evil.img")]);
    assert!(said.contains("secret") && said.contains("--allow-backing"), "{said}");
    sandbox.ok(["snapshot", &sandbox.arg("evil.img"), "--format", "raw"]);
    tool(
        "qemu-img",
        &[
            "create",
            "-q",
            "-f",
            "qcow2",
            "-u",
            "-b",
            "nbd:localhost:10809",
            "-F",
            "raw",
            &sandbox.arg("net.img"),
            "1M",
        ],
    );
    let said = sandbox.fails(1, ["snapshot", &sandbox.arg("net.img"), "--allow-backing", "/"]);
    assert!(said.contains("is not a file"), "{said}");
    let parts = format!(
        "# Disk DescriptorFile\nversion=1\nCID=1\nparentCID=ffffffff\ncreateType=\"monolithicFlat\"\nRW 1 FLAT \"{}\" 0\n",
        sandbox.arg("secret")
    );
    fs::write(sandbox.path("evil.vmdk"), parts).unwrap();
    let said = sandbox.fails(1, ["snapshot", &sandbox.arg("evil.vmdk")]);
    assert!(said.contains("secret") && said.contains("--allow-backing"), "{said}");

    // A chain of images that leads back to its own start.
    for (top, base) in [("other/a.qcow2", "b.qcow2"), ("other/b.qcow2", "a.qcow2")] {
        tool(
            "qemu-img",
            &["create", "-q", "-f", "qcow2", "-u", "-b", base, "-F", "qcow2", &sandbox.arg(top), "1M"],
        );
    }
    let said = sandbox.fails(1, ["snapshot", &sandbox.arg("other/a.qcow2"), "--allow-backing", &other]);
    assert!(said.contains("or is its own"), "{said}");
}

/// Truncates a file.
fn cut(path: &str, length: u64) {
    fs::OpenOptions::new().write(true).open(path).unwrap().set_len(length).unwrap();
}

/// Writes some bytes into a file.
fn put(path: &str, offset: u64, bytes: &[u8]) {
    fs::OpenOptions::new().write(true).open(path).unwrap().write_all_at(bytes, offset).unwrap();
}

#[test]
fn what_is_missing_is_not_taken_for_zeros() {
    if !has(&PROGRAMS, "what_is_missing_is_not_taken_for_zeros") {
        return;
    }
    let sandbox = Sandbox::encrypted();
    fs::write(sandbox.path("disk.raw"), noise(1, 24 << 20)).unwrap();
    for format in FORMATS {
        let path = convert(&sandbox, format);
        cut(&path, 9 * MIB);
        let said = sandbox.fails(1, ["snapshot", &path]);
        let is_said =
            ["damaged or cut short", "is cut short", "truncated"].iter().any(|part| said.contains(part));
        assert!(is_said, "{format}: {said}");
        assert!(said.contains("archives the file as it is") || format == "vpc", "{format}: {said}");
        sandbox.ok(["snapshot", &path, "--format", "raw", "--name", &format!("file-{format}")]);
    }
    // The truncated file is the backing file of an image that is whole.
    let qcow2 = convert(&sandbox, "qcow2");
    let top = sandbox.arg("top.qcow2");
    tool("qemu-img", &["create", "-q", "-f", "qcow2", "-b", &qcow2, "-F", "qcow2", &top]);
    sandbox.ok(["snapshot", &top, "--name", "whole", "--allow-backing", &sandbox.arg("")]);
    cut(&qcow2, 9 * MIB);
    let said = sandbox.fails(1, ["snapshot", &top, "--allow-backing", &sandbox.arg("")]);
    assert!(said.contains("disk.qcow2 is damaged") && said.contains("qemu-img check -r"), "{said}");
    // Unused clusters are not damage. The end of the first refcount block counts some here.
    let qcow2 = convert(&sandbox, "qcow2");
    let length = fs::metadata(&qcow2).unwrap().len();
    cut(&qcow2, length + MIB);
    put(&qcow2, 2 * 65536 + 2 * (length / 65536), &[0, 1]);
    sandbox.ok(["snapshot", &qcow2, "--name", "leaks"]);
    // QEMU has set the corrupt bit in the image.
    put(&qcow2, 79, &[2]);
    let said = sandbox.fails(1, ["snapshot", &qcow2]);
    assert!(said.contains("marked it as damaged") && said.contains("--format raw"), "{said}");
    // An external data file beside the image.
    let beside = ["-o", "data_file=DATA"].map(|word| word.replace("DATA", &sandbox.arg("data")));
    let image = sandbox.arg("beside.qcow2");
    tool("qemu-img", &["convert", "-O", "qcow2", &beside[0], &beside[1], &sandbox.arg("disk.raw"), &image]);
    sandbox.ok(["snapshot", &image, "--name", "beside", "--allow-backing", &sandbox.arg("")]);
    cut(&sandbox.arg("data"), 20 * MIB);
    let said = sandbox.fails(1, ["snapshot", &image, "--allow-backing", &sandbox.arg("")]);
    assert!(said.contains("20971520 of 25165824 bytes"), "{said}");
    // External extents beside the image.
    let flat = sandbox.arg("flat.vmdk");
    let words = ["convert", "-O", "vmdk", "-o", "subformat=monolithicFlat", &sandbox.arg("disk.raw"), &flat];
    tool("qemu-img", &words);
    sandbox.ok(["snapshot", &flat, "--name", "flat", "--allow-backing", &sandbox.arg("")]);
    cut(&sandbox.arg("flat-flat.vmdk"), 24 * MIB - 1);
    let said = sandbox.fails(1, ["snapshot", &flat, "--allow-backing", &sandbox.arg("")]);
    assert!(said.contains("25165823 of 25165824 bytes"), "{said}");
    // Images that are only a part of a disk.
    let vdi = convert(&sandbox, "vdi");
    put(&vdi, 76, &[4]);
    let said = sandbox.fails(1, ["snapshot", &vdi]);
    assert!(said.contains("not complete without another image"), "{said}");
    let vpc = convert(&sandbox, "vpc");
    put(&vpc, 60, &[0, 0, 0, 4]);
    assert!(sandbox.fails(1, ["snapshot", &vpc]).contains("differencing VHD"));
    tool("qemu-img", &["create", "-q", "-f", "qcow", &sandbox.arg("old.img"), "1M"]);
    let said = sandbox.fails(1, ["snapshot", &sandbox.arg("old.img")]);
    assert!(said.contains("format qcow:") && said.contains("convert -f qcow -O qcow2"), "{said}");
}

#[test]
fn what_an_image_names_keeps_nobody_and_misleads_no_terminal() {
    if !has(&PROGRAMS, "what_an_image_names_keeps_nobody_and_misleads_no_terminal") {
        return;
    }
    let sandbox = Sandbox::encrypted();
    rustix::fs::mkfifoat(rustix::fs::CWD, sandbox.path("fifo"), rustix::fs::Mode::RWXU).unwrap();
    let (fifo, image) = (sandbox.arg("fifo"), sandbox.arg("image"));
    let create = |below: &str, format: &[&str]| {
        let words =
            [&["create", "-q", "-u", "-f", "qcow2", "-b", below][..], format, &[&image, "1M"]].concat();
        tool("qemu-img", &words);
    };
    let refused = |why: &str| {
        let said = sandbox.fails(1, ["snapshot", &image, "--allow-backing", &sandbox.arg("")]);
        assert!(said.contains(why), "{said}");
        said
    };
    create(&fifo, &["-F", "raw"]);
    refused("neither a file nor a block device");
    create(&fifo, &["-F", "qcow2"]);
    refused("neither a file nor a block device");
    create("/dev/zero", &["-F", "raw"]);
    sandbox.fails(1, ["snapshot", &image, "--allow-backing", "/dev"]);
    let parts = |line: &str| {
        fs::write(
            &image,
            format!(
                "# Disk DescriptorFile\nCID=1\nparentCID=ffffffff\ncreateType=\"monolithicFlat\"\n{line}\n"
            ),
        )
        .unwrap();
    };
    parts(&format!("RW 1 FLAT \"{fifo}\" 0"));
    refused("neither a file nor a block device");

    // The check recognises each spelling of an extent line.
    fs::write(sandbox.path("secret"), [0x42; 512]).unwrap();
    let secret = sandbox.arg("secret");
    let filler = "# nothing\n".repeat(10_000);
    for line in [
        format!("RW\n1\nFLAT\n\"{secret}\" 0"),
        format!("RW 1FLAT \"{secret}\"0"),
        format!("{filler}RW 1 FLAT \"{secret}\" 0"),
    ] {
        parts(&line);
        let said = sandbox.fails(1, ["snapshot", &image]);
        assert!(said.contains("secret") && said.contains("--allow-backing"), "{said}");
    }

    create("\x1b[2J/a\nvarve: all is well", &["-F", "raw"]);
    for words in [&["snapshot", &image][..], &["snapshot", &image, "--allow-backing", "/nowhere"]] {
        let said = sandbox.fails(1, words);
        assert!(!said.contains('\x1b') && !said.contains("\nvarve: all is well"), "{said:?}");
        assert!(said.contains(r"\u{1b}[2J/a\nvarve: all is well"), "{said}");
    }
}

#[test]
fn an_image_that_changes_while_qemu_opens_it_is_refused() {
    if !has(&PROGRAMS, "an_image_that_changes_while_qemu_opens_it_is_refused") {
        return;
    }
    let sandbox = Sandbox::encrypted();
    fs::write(sandbox.path("secret"), [0x42; 512]).unwrap();
    fs::create_dir(sandbox.path("bin")).unwrap();
    fs::create_dir(sandbox.path("allowed")).unwrap();
    fs::write(sandbox.path("allowed/part"), [1; 512]).unwrap();
    let text = |part: &str| {
        format!(
            "# Disk DescriptorFile\nCID=1\nparentCID=ffffffff\ncreateType=\"monolithicFlat\"\nRW 1 FLAT \"{}\" 0\n",
            sandbox.arg(part)
        )
    };
    fs::write(sandbox.path("good"), text("allowed/part")).unwrap();
    fs::write(sandbox.path("evil"), text("secret")).unwrap();
    let snapshot = |before: &str| {
        fs::copy(sandbox.path("good"), sandbox.path("image")).unwrap();
        // A script in place of QEMU's tool runs `before`, then the real tool.
        let path = std::env::var("PATH").unwrap();
        let script =
            format!("#!/bin/sh\ncd {}\n{before}\nPATH={path}\nexec qemu-nbd \"$@\"\n", sandbox.arg(""));
        write_program(&sandbox.path("bin/qemu-nbd"), &script);
        let mut command = sandbox.command();
        command.env("PATH", format!("{}:{path}", sandbox.arg("bin")));
        command.args(["snapshot", &sandbox.arg("image"), "--allow-backing", &sandbox.arg("allowed")]);
        sandbox::Run::new(command.output().unwrap())
    };
    for (before, why) in [
        ("cp evil image", "secret"),
        ("cp evil image; (sleep 0.4; cp good image) &", "it was opened"),
        ("touch image", "it was opened"),
        ("mv image old; cp -p old image", "it was opened"),
    ] {
        let run = snapshot(before);
        let is_refused = run.stderr.contains(why) || run.stderr.contains("secret");
        assert!(run.code == Some(1) && is_refused, "{before}: {}{}", run.text(), run.stderr);
    }
    assert!(sandbox.ids().is_empty());
    assert_eq!(snapshot("true").code, Some(0));
}

#[test]
fn without_the_tools_it_says_which() {
    let sandbox = Sandbox::encrypted();
    fs::write(sandbox.path("disk.vhdx"), b"vhdxfile").unwrap();
    sandbox.ok(["snapshot", &sandbox.arg("disk.vhdx"), "--format", "raw", "--name", "a"]);
    for words in [
        vec!["snapshot".into(), sandbox.arg("disk.vhdx")],
        vec!["restore".into(), "a".into(), sandbox.arg("b"), "--format".into(), "vdi".into()],
    ] {
        let run = sandbox::Run::new(sandbox.command().env("PATH", "/nowhere").args(words).output().unwrap());
        assert_eq!(run.code, Some(1));
        assert!(
            run.stderr.contains("is not installed") && run.stderr.contains("qemu-utils"),
            "{}",
            run.stderr
        );
    }
    // With the tools, the error of a damaged image has the tools' message.
    if has(&PROGRAMS, "without_the_tools_it_says_which: damaged images") {
        let said = sandbox.fails(1, ["snapshot", &sandbox.arg("disk.vhdx")]);
        assert!(said.contains("QEMU cannot open it"), "{said}");
    }
}

#[test]
fn a_tool_that_nobody_has_reached_yet_ends_with_the_program() {
    if !has(&["qemu-img", "setpriv"], "a_tool_that_nobody_has_reached_yet_ends_with_the_program") {
        return;
    }
    let sandbox = Sandbox::encrypted();
    raw(&sandbox);
    let image = convert(&sandbox, "qcow2");
    // A script in place of QEMU's tool never listens.
    let bin = sandbox.path("bin");
    let script = format!("#!/bin/sh\necho $$ >{}\nexec sleep 1000\n", sandbox.arg("started"));
    write_program(&bin.join("qemu-nbd"), &script);
    let temporary = sandbox.path("tmp");
    fs::create_dir(&temporary).unwrap();
    let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap_or_default());
    let mut command = sandbox.command();
    command.args(["snapshot", &image]).env("PATH", path).env("TMPDIR", &temporary);
    let mut program = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let started = || fs::read_to_string(sandbox.path("started")).ok()?.trim().parse::<u32>().ok();
    let tool = wait_for("the tool", started);
    program.kill().unwrap();
    program.wait().unwrap();
    wait_for("the tool's end", || {
        let state = fs::read_to_string(format!("/proc/{tool}/stat")).unwrap_or_default();
        // The process is gone, or a zombie that nobody waits for.
        state.split(") ").nth(1).is_none_or(|state| state.starts_with('Z')).then_some(())
    });
    let left = || fs::read_dir(&temporary).unwrap().count();
    assert_eq!(left(), 1, "the folder of its socket");
    let run = sandbox.command().args(["snapshot", &image]).env("TMPDIR", &temporary).output().unwrap();
    assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stderr));
    assert_eq!(left(), 0, "that goes with the next one");
}
