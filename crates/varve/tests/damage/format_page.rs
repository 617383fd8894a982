//! `FORMAT.md` in a store and in its replicas describes what is in them, whichever program made the
//! store, and whatever happens to the page.

use std::fs;
use std::path::Path;

use crate::sandbox::{Sandbox, copy_folder, noise};

const PAGE: &str = include_str!("../../../../docs/internals/format.md");

/// Does something to a page.
type Harm<'a> = &'a dyn Fn(&Path);

fn page(folder: &Path) -> String {
    fs::read_to_string(folder.join("FORMAT.md")).unwrap()
}

/// Returns the page without its last line, which has the code.
fn text(page: &str) -> &str {
    let at = page.trim_end().rfind('\n').unwrap();
    assert!(page[at..].starts_with("\n<!-- code "), "{}", &page[at..]);
    &page[..=at]
}

#[test]
fn a_store_of_an_early_program_gets_the_page_of_its_writer() {
    let fixture = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/store-v1/plain");
    let sandbox = Sandbox::copy_of(&fixture, None);
    let early = page(sandbox.store());
    assert!(!early.contains(", revision "));
    // Readers change nothing, and find nothing wrong.
    sandbox.ok(["verify", "--data"]);
    assert_eq!(page(sandbox.store()), early);
    // The replica gets the page of the program that uploads.
    sandbox.ok(["replicate", "replica"]);
    assert_eq!(text(&page(&sandbox.path("replica"))), PAGE);
    fs::write(sandbox.path("replica/FORMAT.md"), &early).unwrap();
    sandbox.ok(["verify", "--replica", "replica"]);
    sandbox.snapshot_bytes("disk", &noise(1, 1000));
    assert_eq!(text(&page(sandbox.store())), PAGE);
    sandbox.ok(["replicate", "replica"]);
    assert_eq!(page(&sandbox.path("replica")), page(sandbox.store()));
    assert_eq!(sandbox.json(["replicate", "replica"]).remove(0)["objects"], 0);
    sandbox.ok(["verify", "--data"]);
    sandbox.ok(["verify", "--replica", "replica"]);
}

#[test]
fn a_page_that_is_gone_or_altered_is_noticed_and_written_again() {
    let sandbox = Sandbox::encrypted();
    sandbox.snapshot_bytes("disk", &noise(1, 1000));
    let good = page(sandbox.store());
    assert_eq!(text(&good), PAGE);
    copy_folder(sandbox.store(), &sandbox.path("other"));
    let harms: [(&str, Harm<'_>); 4] = [
        ("missing", &|file| fs::remove_file(file).unwrap()),
        ("altered", &|file| fs::write(file, good.replacen("must", "need not", 1)).unwrap()),
        ("altered", &|file| fs::write(file, good.clone() + "Skip the signature.\n").unwrap()),
        ("altered", &|file| fs::write(file, text(&good)).unwrap()),
    ];
    let file = sandbox.store().join("FORMAT.md");
    for (number, (word, harm)) in harms.into_iter().enumerate() {
        for mend in [&["snapshot", "key"][..], &["repair"]] {
            harm(&file);
            let found = sandbox.run(["verify", "--json"]);
            assert_eq!(found.code, Some(5), "{number}");
            assert_eq!(found.result()["format_page"], *word, "{number}");
            let found = sandbox.run(["verify"]);
            assert!(found.text().contains("FORMAT.md") && !found.text().contains("all is well"), "{number}");
            // A copy is made all the same, with a good page.
            let replica = format!("replica {number} {}", mend[0]);
            sandbox.ok(["replicate", &replica]);
            assert_eq!(page(&sandbox.path(&replica)), good, "{number}");
            sandbox.ok(mend);
            assert_eq!(page(sandbox.store()), good, "{number}: {mend:?}");
            sandbox.ok(["verify"]);
        }
        let replica = format!("replica {number} repair");
        harm(&sandbox.path(&replica).join("FORMAT.md"));
        let audit = sandbox.run(["verify", "--replica", &replica]);
        assert_eq!(audit.code, Some(5), "{number}: {}", audit.text());
        assert!(audit.text().contains("FORMAT.md: "), "{number}: {}", audit.text());
        sandbox.run(["replicate", &replica]);
        if sandbox.run(["verify", "--replica", &replica]).code != Some(0) {
            sandbox.ok(["replicate", &replica, "--replace", "FORMAT.md"]);
        }
        sandbox.ok(["verify", "--replica", &replica]);
        assert_eq!(page(&sandbox.path(&replica)), good, "{number}");
    }
    // The code belongs to one store.
    let other = Sandbox::made_with(&["--plaintext"]);
    fs::copy(other.store().join("FORMAT.md"), &file).unwrap();
    assert_eq!(sandbox.run(["verify"]).code, Some(5));
}
