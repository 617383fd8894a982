//! Publications at each kind of target.

use crate::kinds;
use crate::sandbox::{json_lines, noise};
use crate::second_home::Second;

#[test]
fn each_kind_of_target_holds_a_publication() {
    for kind in [kinds::s3(), kinds::sftp(), kinds::webdav(), kinds::ftp()].into_iter().flatten() {
        let second = Second::new(&kind);
        let key = second.sandbox.arg("publisher.key");
        let mut disk = noise(61, 1_500_000);
        second.sandbox.snapshot_bytes("disk", &disk);
        let publish = ["publish", "disk", "URL", "--key", &key, "--block-size", "64K"];
        let run = second.run(&[&["--json"], &publish[..]].concat());
        assert_eq!(run.code, Some(0), "{}: {}", kind.name, run.stderr);
        let first = json_lines(&run.text()).pop().unwrap();
        assert_eq!((&first["serial"], &first["objects"]), (&1.into(), &25.into()), "{}: {first}", kind.name);

        disk[700_000] ^= 1;
        second.sandbox.snapshot_bytes("disk", &disk);
        let run =
            second.run(&[&["--json"], &publish[..], &["--keep", "1", "--prune", "--grace", "0h"]].concat());
        assert_eq!(run.code, Some(0), "{}: {}", kind.name, run.stderr);
        let lines = json_lines(&run.text());
        let [image, edition, pruned] = &lines[..] else { panic!("{}: {lines:?}", kind.name) };
        assert_eq!((&image["read_blocks"], &image["kept_blocks"]), (&1.into(), &22.into()), "{}", kind.name);
        assert_eq!(edition["objects"], 3, "{}: a block, a page and the root", kind.name);
        assert_eq!(pruned["removed_objects"], 3, "{}", kind.name);

        let address = format!("{}#{}", second.url, first["key"].as_str().unwrap());
        let checked = second.json(&["verify", "--publication", &address]);
        assert_eq!((&checked["blocks"], &checked["damaged"]), (&23.into(), &0.into()), "{}", kind.name);
    }
}
