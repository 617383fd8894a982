//! Archives that the real vac wrote are read, and written once more.

mod hostile;
mod sha1_store;

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use sha1_store::Sha1Store;
use varve_block::{BlockName, BlockStore, BlockType, Score};
use varve_tree::{
    Entry, FixedWriter, StreamPiece, TreeReader, VENTI_ENTRY_BYTES, VacFolderBuilder, VacMode, VacRecord,
    VacShape, VentiEntry, VentiFolder, VentiRoot, put_vac_root,
};

/// A file that vac archived, with its contents.
struct Archived {
    record: VacRecord,
    content: Entry,
    /// Only for a folder.
    holds: Option<(Entry, Vec<Archived>)>,
}

fn read_folder(store: &Sha1Store, source: &Entry, meta: &Entry) -> Vec<Archived> {
    let mut folder = VentiFolder::new(store, source, meta);
    let mut records = Vec::new();
    folder.records(&mut |record| {
        records.push(record.unwrap());
        ControlFlow::Continue(())
    });
    // In the order in which vac archived the files.
    records.sort_by_key(|record| record.entry);
    let mut archived = Vec::new();
    for record in records {
        let content = folder.entry(record.entry).unwrap().unwrap().tree;
        let holds = record.mode.has(VacMode::FOLDER).then(|| {
            let meta = folder.entry(record.meta_entry).unwrap().unwrap().tree;
            (meta, read_folder(store, &content, &meta))
        });
        archived.push(Archived { record, content, holds });
    }
    archived
}

fn root_of(store: &Sha1Store, score: Score) -> (VentiRoot, Vec<Entry>) {
    let block = store.get(&BlockName { score, block_type: BlockType::ROOT }).unwrap();
    let root = VentiRoot::decode(&block).unwrap();
    let entries = store.get(&BlockName { score: root.score, block_type: BlockType::DIRECTORY }).unwrap();
    let entries = entries.chunks(VENTI_ENTRY_BYTES);
    let entries = entries.map(|entry| VentiEntry::decode(entry).unwrap().unwrap().tree).collect();
    (root, entries)
}

fn record_in(store: &Sha1Store, meta: &Entry) -> VacRecord {
    let mut found = None;
    VentiFolder::new(store, meta, meta).records(&mut |record| {
        found = Some(record.unwrap());
        ControlFlow::Break(())
    });
    found.unwrap()
}

/// Writes everything to another store, from the records that were read and the owner that vac
/// recorded at first.
fn write_folder(
    (from, to): (&Sha1Store, &Sha1Store),
    shape: VacShape,
    files: &[Archived],
    (owner, group): (&[u8], &[u8]),
) -> (Entry, Entry) {
    let mut builder = VacFolderBuilder::new(to, shape);
    for Archived { record, content, holds } in files {
        let bytes = record.encode().unwrap();
        let first = VacRecord { owner: owner.into(), group: group.into(), ..record.clone() };
        let first_bytes = first.encode().unwrap().len();
        assert_eq!(builder.next_entry(), record.entry);
        assert!(builder.push_record(&record.name, &bytes, first_bytes).unwrap());
        match holds {
            Some((_, files)) => {
                let (source, meta) = write_folder((from, to), shape, files, (&record.owner, &record.group));
                assert!(builder.push_folder(&source, &meta).unwrap());
            }
            None => {
                let mut writer = FixedWriter::new(to, shape.data());
                TreeReader::new(from, content)
                    .stream(&mut |piece| {
                        match piece {
                            StreamPiece::Bytes(bytes) => writer.write(bytes).unwrap(),
                            StreamPiece::Zeros(count) => writer.write_zeros(count).unwrap(),
                        }
                        Ok(())
                    })
                    .unwrap();
                assert!(builder.push_file(&writer.finish().unwrap()).unwrap());
            }
        }
    }
    builder.finish().unwrap()
}

/// An archive that vac made in one run is written again by our writer: every block is identical.
#[test]
fn what_vac_wrote_is_written_again_to_the_last_byte() {
    for (name, shape) in [("full", VacShape::default()), ("small-blocks", VacShape::new(1024).unwrap())] {
        let Some((store, score)) = Sha1Store::with_archive(name) else { return };
        let (root, entries) = root_of(&store, score);
        assert_eq!(root.block_bytes, shape.block_bytes());
        let files = read_folder(&store, &entries[0], &entries[1]);
        let record = record_in(&store, &entries[2]);
        let again = Sha1Store::default();
        let folder = write_folder((&store, &again), shape, &files, (&record.owner, &record.group));
        let written = put_vac_root(&again, shape, &folder, &record, root.previous).unwrap().unwrap();
        assert_eq!(again.names().difference(&store.names()).collect::<Vec<_>>(), Vec::<&BlockName>::new());
        assert_eq!(written, score, "{name}");
        assert_eq!(again.names(), store.names(), "{name}");
    }
}

/// Each record of every archive is read, and each file has all its bytes.
#[test]
fn all_that_vac_wrote_is_read() {
    let known = [
        ("dated", 33),
        ("full", 292),
        ("incremental", 291),
        ("large-blocks", 9),
        ("merged", 15),
        ("small-blocks", 17),
        ("stdin", 1),
    ];
    let mut counts = BTreeMap::new();
    for (name, _) in known {
        let Some((store, score)) = Sha1Store::with_archive(name) else { return };
        let (_, entries) = root_of(&store, score);
        let mut count = 0;
        let mut waiting = read_folder(&store, &entries[0], &entries[1]);
        while let Some(file) = waiting.pop() {
            count += 1;
            let mut bytes = 0;
            let count_bytes = &mut |piece: StreamPiece<'_>| {
                bytes += match piece {
                    StreamPiece::Bytes(bytes) => bytes.len() as u64,
                    StreamPiece::Zeros(count) => count,
                };
                Ok(())
            };
            TreeReader::new(&store, &file.content).stream(count_bytes).unwrap();
            assert_eq!(bytes, file.content.size());
            waiting.extend(file.holds.into_iter().flat_map(|(_, files)| files));
        }
        counts.insert(name, count);
    }
    assert_eq!(counts, BTreeMap::from(known));
}
