//! The web page: pictures, zip files, the bar of a snapshot, and commands.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;

use crate::sandbox::{Sandbox, tool};
use crate::web_page::{Page, link};

const PNG: &[u8] = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\0\x02\0\0\0\x03\x08\x02\0\0\0";
const SVG: &[u8] = b"<svg xmlns='http://www.w3.org/2000/svg'><script>alert(1)</script></svg>";

#[test]
fn pictures_are_shown_by_their_bytes_and_not_by_their_names() {
    let sandbox = Sandbox::encrypted();
    let home = sandbox.path("home");
    fs::create_dir(&home).unwrap();
    for (name, bytes) in [("photo.txt", PNG), ("fake.png", SVG), ("page.svg", SVG)] {
        fs::write(home.join(name), bytes).unwrap();
    }
    sandbox.ok(["snapshot", &sandbox.arg("home"), "--tag", "why=upgrade", "--comment", "before the upgrade"]);
    let page = Page::start(&sandbox, &[]);
    let session = page.log_in();
    let root = link(&page.get("/look", &session), "/look/");
    let root = root.trim_start_matches("/look").to_owned();
    let shown = page.get(&format!("/look{root}photo.txt"), &session).text();
    let image = format!("<img src=\"/picture{root}photo.txt\"");
    assert!(shown.contains(&image) && shown.contains("width=\"2\" height=\"3\""), "{shown}");
    // The bar tells the comment and the tags of the snapshot.
    assert!(shown.contains("before the upgrade") && shown.contains("why=upgrade"), "{shown}");
    // The command is complete.
    let command = format!("varve -s {} restore ", sandbox.store().display());
    assert!(shown.contains(&command) && shown.contains(":photo.txt ./restored"), "{shown}");
    let picture = page.get(&format!("/picture{root}photo.txt"), &session);
    assert_eq!((picture.status, picture.header("content-type")), (200, "image/png"));
    assert_eq!(picture.header("x-content-type-options"), "nosniff");
    assert!(picture.header("content-security-policy").starts_with("sandbox; default-src 'none'"));
    assert!(picture.body == PNG);
    for name in ["fake.png", "page.svg"] {
        assert_eq!(page.get(&format!("/picture{root}{name}"), &session).status, 404, "{name}");
        assert!(!page.get(&format!("/look{root}{name}"), &session).text().contains("/picture/"), "{name}");
    }
    assert_eq!(page.get(&format!("/picture{root}photo.txt"), "").status, 303);
}

#[test]
fn a_zip_file_has_the_files_and_lists_all_others() {
    let sandbox = Sandbox::encrypted();
    let home = sandbox.path("home");
    fs::create_dir_all(home.join("deep/er")).unwrap();
    let large = vec![7_u8; 3_000_000];
    fs::write(home.join("deep/er/large"), &large).unwrap();
    fs::write(home.join("caf\u{e9} 1.txt"), "text").unwrap();
    fs::write(home.join("12:30"), "x").unwrap();
    fs::write(home.join("empty"), "").unwrap();
    fs::write(home.join("..\\..\\evil"), "x").unwrap();
    fs::write(home.join(OsStr::from_bytes(b"\xff")), "x").unwrap();
    std::os::unix::fs::symlink("/etc/passwd", home.join("passwd")).unwrap();
    sandbox.ok(["snapshot", &sandbox.arg("home")]);
    let page = Page::start(&sandbox, &[]);
    let session = page.log_in();
    let root = link(&page.get("/look", &session), "/look/");
    let folder = page.get(&root, &session);
    let zip = page.get(&link(&folder, "/zip/"), &session);
    assert_eq!((zip.status, zip.header("content-type")), (200, "application/octet-stream"));
    assert!(zip.header("content-disposition").contains("home.zip"));
    fs::write(sandbox.path("got.zip"), &zip.body).unwrap();
    let (file, got) = (sandbox.arg("got.zip"), sandbox.arg("got"));
    tool("python3", ["-m", "zipfile", "-e", &file, &got].map(OsStr::new));
    let got = sandbox.path("got/home");
    assert!(fs::read(got.join("deep/er/large")).unwrap() == large);
    assert_eq!(fs::read(got.join("caf\u{e9} 1.txt")).unwrap(), b"text");
    assert_eq!(fs::read(got.join("empty")).unwrap(), b"");
    assert_eq!(fs::read_dir(&got).unwrap().count(), 3);
    let list = fs::read_to_string(sandbox.path("got/LEFT-OUT.txt")).unwrap();
    for left_out in ["home/passwd: ", "home/12:30: ", "evil: ", "home/\\xff: "] {
        assert!(list.contains(left_out), "{left_out} in {list}");
    }
    // No list if everything is there.
    let inside = page.get(&format!("/zip{}deep/", root.trim_start_matches("/look")), &session);
    assert!(!inside.body.windows(12).any(|part| part == b"LEFT-OUT.txt"));
}
