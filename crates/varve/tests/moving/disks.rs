//! Chains of qcow2 images, made by the real `qemu-img`.

use std::process::Command;

use crate::changing_folder::has_all;
use crate::sandbox::{Sandbox, noise, tool};

const DISK_BYTES: usize = 8 << 20;
const CLUSTER_BYTES: usize = 64 << 10;

struct Chain {
    sandbox: Sandbox,
    /// The disk as the newest image has it.
    disk: Vec<u8>,
}

impl Chain {
    /// A raw base image.
    fn new() -> Self {
        let sandbox = Sandbox::encrypted();
        let disk = noise(1, DISK_BYTES);
        std::fs::write(sandbox.path("base.raw"), &disk).unwrap();
        Self { sandbox, disk }
    }

    /// Adds an image with one changed piece, through QEMU itself.
    fn add(&mut self, name: &str, below: (&str, &str), offset: usize) {
        let folder = self.sandbox.arg("");
        let (backing, format) = below;
        tool(
            "qemu-img",
            ["create", "-q", "-f", "qcow2", "-b", backing, "-F", format, &self.sandbox.arg(name)],
        );
        let piece = noise(name.len() as u64, 2 * CLUSTER_BYTES);
        std::fs::write(self.sandbox.path("piece"), &piece).unwrap();
        self.disk[offset..offset + piece.len()].copy_from_slice(&piece);
        let write = format!("write -q -s piece {offset} {}", piece.len());
        let status =
            Command::new("qemu-io").args(["-f", "qcow2", "-c", &write, name]).current_dir(folder).status();
        assert!(status.unwrap().success());
    }

    fn dated(&self, name: &str, time: &str) {
        tool("touch", ["-d", time, &self.sandbox.arg(name)]);
    }
}

#[test]
fn each_image_of_a_chain_is_a_snapshot() {
    if !has_all(&["qemu-img", "qemu-nbd", "qemu-io"]) {
        return;
    }
    let mut chain = Chain::new();
    let mut disks = vec![chain.disk.clone()];
    chain.add("one.qcow2", ("base.raw", "raw"), 1 << 20);
    disks.push(chain.disk.clone());
    chain.add("two.qcow2", ("one.qcow2", "qcow2"), 5_000_001);
    disks.push(chain.disk.clone());
    for (name, time) in [("base.raw", "2025-06-01"), ("one.qcow2", "2025-06-02"), ("two.qcow2", "2025-06-03")]
    {
        chain.dated(name, time);
    }
    let sandbox = &chain.sandbox;
    let told = sandbox.fails(1, ["import", "qcow2", "two.qcow2", "--by-mtime"]);
    assert!(told.contains("--allow-backing"), "{told}");
    let told = sandbox.fails(1, ["import", "qcow2", "two.qcow2", "--allow-backing", "."]);
    assert!(told.contains("--by-mtime"), "{told}");
    let import = |top: &str| sandbox.ok(["import", "qcow2", top, "--allow-backing", ".", "--by-mtime"]);
    import("one.qcow2");
    let text = import("two.qcow2");
    assert!(text.contains("2 snapshots imported before"), "{text}");
    let listed = sandbox.json(["snapshots"]);
    let times: Vec<_> = listed.iter().map(|one| one["time"].as_str().unwrap()).collect();
    assert_eq!(times, ["2025-06-01T00:00:00Z", "2025-06-02T00:00:00Z", "2025-06-03T00:00:00Z"]);
    for (one, disk) in listed.iter().zip(&disks) {
        assert_eq!(one["name"], "base.raw");
        let back = sandbox.arg(&format!("{}.raw", one["id"].as_str().unwrap()));
        sandbox.ok(["restore", one["id"].as_str().unwrap(), &back]);
        assert!(std::fs::read(&back).unwrap() == *disk, "{one}");
    }
    let check = ["import", "qcow2", "two.qcow2", "--allow-backing", ".", "--by-mtime", "--check"];
    let checked = sandbox.ok([&check[..], &["--report", "report"]].concat());
    assert_eq!(checked.matches("8.00 MiB compared, no difference").count(), 3, "{checked}");
    let report = std::fs::read_to_string(sandbox.path("report")).unwrap();
    assert_eq!(report.matches("no difference").count(), 3, "{report}");
    // Unchanged clusters are not read: the base has other bytes now, as its time does not tell.
    std::fs::write(sandbox.path("base.raw"), noise(9, DISK_BYTES)).unwrap();
    chain.dated("base.raw", "2025-06-01");
    chain.add("three.qcow2", ("two.qcow2", "qcow2"), 3 << 20);
    chain.dated("three.qcow2", "2025-06-04");
    let sandbox = &chain.sandbox;
    // The check reads it, and finds the difference in each image.
    let told = sandbox.fails(1, check);
    assert_eq!(told.matches("differs from the snapshot").count(), 3, "{told}");
    sandbox.ok(["import", "qcow2", "three.qcow2", "--allow-backing", ".", "--by-mtime"]);
    sandbox.ok(["restore", "base.raw", &sandbox.arg("back.raw")]);
    assert!(std::fs::read(sandbox.path("back.raw")).unwrap() == chain.disk);
}
