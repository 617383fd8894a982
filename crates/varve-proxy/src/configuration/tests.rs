use super::*;

const WHOLE: &str = r#"
serve = "ahead"

[store.ahead]
kind = "read-ahead"
source = "front"
memory = "128M"

[store.front]
kind = "cache"
source = "out"
look-aside = "near"
look-aside-writes = true
memory = 1048576

[store.near]
kind = "bounded"
folder = "/var/cache/varve"
size = "10G"

[store.out]
kind = "buffer"
target = "all"
folder = "/var/spool/varve"
size = "4G"
patience = 5
rate = "1M"

[store.all]
kind = "shards"
stores = ["one", "two"]

[store.one]
kind = "server"
address = "tcp!one!17034"
attempts = 2
patience = 30

[store.two]
kind = "folder"
path = "/srv/two"
"#;

fn refused(text: &str) -> String {
    Configuration::from_text(text).expect_err(text).to_string()
}

#[test]
fn every_word_is_understood() {
    let read = Configuration::from_text(WHOLE).unwrap();
    assert_eq!(read.serve(), "ahead");
    assert_eq!(
        read.store("ahead"),
        Some(&StoreDescription::ReadAhead { source: "front".into(), memory_bytes: 128 << 20 })
    );
    assert_eq!(
        read.store("out"),
        Some(&StoreDescription::Buffer {
            target: "all".into(),
            folder: "/var/spool/varve".into(),
            settings: BufferSettings {
                bytes_max: 4 << 30,
                patience: Duration::from_secs(5),
                ..BufferSettings::default()
            },
            bytes_per_second: Some(1 << 20),
        })
    );
    assert_eq!(
        read.store("one"),
        Some(&StoreDescription::Server {
            address: Address::Tcp("one".into(), 17034),
            attempts: 2,
            patience: Duration::from_secs(30)
        })
    );
    assert_eq!(read.store("front").unwrap().behind(), [("source", "out"), ("look-aside", "near")]);
}

#[test]
fn the_example_in_the_documents_is_one() {
    let example =
        Configuration::from_text(include_str!("../../../../docs/guide/proxies.example.toml")).unwrap();
    assert_eq!(example.serve(), "ahead");
    assert_eq!(
        example.store("all"),
        Some(&StoreDescription::Shards { stores: vec!["one".into(), "two".into()] })
    );
}

#[test]
fn what_is_wrong_is_named() {
    let server = "[store.far]\nkind = \"server\"\naddress = \"far\"\n";
    let wrong = [
        ("", "serve"),
        ("serve = 7", "serve"),
        ("serve = \"a\"", "serve names a store \"a\", but there is no [store.a]"),
        ("serve = \"fa\"\n[store.far]\nkind = \"server\"\naddress = \"far\"", "a similar name is \"far\""),
        ("serve = \"far\"\n[store.far]\nkind = \"sever\"\naddress = \"far\"", "sever"),
        ("serve = \"far\"\n[store.far]\nkind = \"server\"\nadress = \"far\"", "adress"),
        ("serve = \"far\"\n[store.far]\naddress = \"far\"", "kind"),
        ("serve = \"far\"\n[store.far]\nkind = \"server\"\naddress = \"a b\"", "[store.far]: address"),
        ("serve = \"far\"\n[store.far]\nkind = \"server\"\naddress = \"far\"\nattempts = 0", "attempts"),
        ("serve = \"far\"\n[store.far]\nkind = \"server\"\naddress = \"far\"\nattempts = -1", "-1"),
        ("serve = \"far\"\n[store.far]\nkind = \"server\"\naddress = \"far\"\npatience = 100000", "86400"),
        ("serve = \"b\"\n[store.b]\nkind = \"bounded\"\nfolder = \"b\"\nsize = \"10X\"", "10X"),
        ("serve = \"b\"\n[store.b]\nkind = \"bounded\"\nfolder = \"b\"\nsize = \"1M\"", "8388608 at least"),
        (
            "serve = \"b\"\n[store.b]\nkind = \"bounded\"\nfolder = \"b\"\nsize = \"99999999999999999999T\"",
            "size",
        ),
        ("serve = \"b\"\n[store.b]\nkind = \"bounded\"\nfolder = \"\"", "path of a folder"),
        ("serve = \"s\"\n[store.s]\nkind = \"shards\"\nstores = []", "1 to 256"),
        ("serve = \"s\"\n[store.s]\nkind = \"shards\"\nstores = [\"s\"]", "s -> s"),
        ("nonsense", "nonsense"),
        ("serve = \"far\"\nserf = 1\n", "serf"),
    ];
    for (text, expected) in wrong {
        let said = refused(text);
        assert!(said.contains(expected), "{text:?} gives {said:?}, without {expected:?}");
    }
    let twice = format!("serve = \"s\"\n[store.s]\nkind = \"shards\"\nstores = [\"far\", \"far\"]\n{server}");
    assert!(refused(&twice).contains("name each store once"));
    let idle = format!("serve = \"far\"\n{server}[store.idle]\nkind = \"folder\"\npath = \"x\"");
    assert!(refused(&idle).contains("[store.idle] is not used: no store below serve = \"far\" names it"));
    let aside = format!(
        "serve = \"c\"\n[store.c]\nkind = \"cache\"\nsource = \"far\"\nlook-aside-writes = true\n{server}"
    );
    assert!(refused(&aside).contains("it needs a look-aside"));
}

#[test]
fn a_circle_is_not_a_store_that_two_use() {
    let ahead =
        |name: &str, source: &str| format!("[store.{name}]\nkind = \"read-ahead\"\nsource = \"{source}\"\n");
    let circle = format!("serve = \"a\"\n{}{}{}", ahead("a", "b"), ahead("b", "c"), ahead("c", "b"));
    assert!(refused(&circle).contains("b -> c -> b"), "{}", refused(&circle));
    let shared = "serve = \"c\"\n[store.c]\nkind = \"cache\"\nsource = \"far\"\nlook-aside = \"far\"\n\
                  [store.far]\nkind = \"server\"\naddress = \"far\"\n";
    Configuration::from_text(shared).unwrap();
    // Far beyond the limit: must be refused without deep recursion.
    let deep: String =
        (0..500).map(|number| ahead(&format!("s{number}"), &format!("s{}", number + 1))).collect();
    let deep = format!("serve = \"s0\"\n{deep}[store.s500]\nkind = \"server\"\naddress = \"far\"\n");
    assert!(refused(&deep).contains("at most 64"));
}

#[test]
fn one_folder_belongs_to_one_store() {
    let text = "serve = \"c\"\n[store.c]\nkind = \"cache\"\nsource = \"a\"\nlook-aside = \"b\"\n\
                [store.a]\nkind = \"folder\"\npath = \"x\"\n[store.b]\nkind = \"bounded\"\nfolder = \"x\"\n";
    assert!(refused(text).contains("give each its own"));
}

#[test]
fn no_text_makes_it_panic() {
    for end in 0..WHOLE.len() {
        let _ = Configuration::from_text(&WHOLE[..end]);
        let changed: Vec<u8> =
            WHOLE.bytes().enumerate().map(|(place, byte)| if place == end { b'=' } else { byte }).collect();
        let _ = Configuration::from_text(&String::from_utf8(changed).unwrap());
    }
}
