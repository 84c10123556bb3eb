//! Tables are read again by this crate, and by the tools of RocksDB if they are installed.

#![expect(clippy::disallowed_methods, reason = "lists and damages exported files")]

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use proptest::prelude::*;

use super::*;
use crate::{
    Digest, Error,
    internal_key::{Comparator, ValueType},
    manifest::TableFile,
    table::{FOOTER_BYTES, Table, TableCursor},
    tombstone::Bounds,
};

type Entries = BTreeMap<Vec<u8>, Vec<u8>>;

fn open(path: &Path) -> crate::Result<TableCursor> {
    let known = TableFile {
        level: 0,
        number: 1,
        path_id: 0,
        bytes: fs::metadata(path).unwrap().len(),
        bounds: Bounds { smallest: (Vec::new(), 0), largest: (Vec::new(), 0) },
        largest_sequence: 0,
    };
    TableCursor::new(Table::open(path, &known, Comparator::BYTEWISE)?)
}

/// Returns the entries of a table.
fn read(path: &Path) -> crate::Result<Vec<(Vec<u8>, Vec<u8>)>> {
    let (mut cursor, mut entries) = (open(path)?, Vec::new());
    while cursor.advance()? {
        assert_eq!((cursor.sequence(), cursor.value_type()), (0, ValueType::Value));
        entries.push((cursor.key().to_vec(), cursor.value().to_vec()));
    }
    Ok(entries)
}

/// Returns the tables of a directory in order.
fn tables(path: &Path) -> Vec<PathBuf> {
    let mut tables: Vec<_> =
        fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path()).collect();
    tables.sort();
    tables
}

fn export(path: &Path, options: &ExportOptions, entries: &Entries) -> Vec<ExportedFamily> {
    let mut export = options.create(path).unwrap();
    export.column_family("default").unwrap();
    entries.iter().for_each(|(key, value)| export.add(key, value).unwrap());
    assert!(!path.exists());
    let families = export.finish().unwrap();
    assert!(!output_file::partial(path).exists());
    families
}

/// Compares an export with the entries that were written, and returns its number of tables.
fn check(path: &Path, options: &ExportOptions, entries: &Entries) -> usize {
    let families = export(path, options, entries);
    let mut digest = Digest::default();
    entries.iter().for_each(|(key, value)| digest.add(key, value));
    let tables = tables(&path.join("default"));
    assert_eq!(families[0].digest, digest);
    assert_eq!(families[0].tables, tables.len() as u64);
    let found: Vec<_> = tables.iter().flat_map(|table| read(table).unwrap()).collect();
    assert!(found.iter().map(|(key, value)| (key, value)).eq(entries), "{path:?}");
    for (table, number) in tables.iter().zip(1..) {
        assert_eq!(table.file_name().unwrap().to_str().unwrap(), format!("{number:06}.sst"));
        let is_small = fs::metadata(table).unwrap().len() <= options.file_bytes;
        assert!(is_small || read(table).unwrap().len() == 1);
    }
    tables.len()
}

/// Compressible and incompressible bytes.
fn bytes(len: impl Strategy<Value = usize>) -> impl Strategy<Value = Vec<u8>> {
    (len, any::<u64>(), any::<bool>()).prop_map(|(len, seed, is_random)| {
        let mut state = seed | 1;
        let mut next = || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state as u8
        };
        let first = next();
        (0..len).map(|_| if is_random { next() } else { first }).collect()
    })
}

fn entries() -> impl Strategy<Value = Entries> {
    let key = bytes(prop_oneof![3 => 0..40_usize, 1 => 0..10_000_usize]);
    let value = bytes(prop_oneof![Just(0), 1..200_usize, Just(64 << 10)]);
    prop::collection::btree_map(key, value, 0..120)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn exported_entries_are_read_again(
        entries in entries(),
        file_bytes in prop_oneof![Just(1_u64 << 20), Just(256 << 20)],
        compress in any::<bool>(),
    ) {
        let dir = tempfile::tempdir().unwrap();
        let options = ExportOptions::new().file_bytes(file_bytes).compress(compress);
        check(&dir.path().join("tables"), &options, &entries);
    }
}

#[test]
fn tables_are_split_at_their_limit() {
    let value = |number: u32| number.to_le_bytes().repeat(2500);
    let entries: Entries =
        (0..400).map(|number| (format!("key{number:09}").into_bytes(), value(number))).collect();
    let dir = tempfile::tempdir().unwrap();
    let small = ExportOptions::new().file_bytes(0).compress(false);
    assert_eq!(check(&dir.path().join("small"), &small, &entries), 4);
    assert_eq!(check(&dir.path().join("large"), &ExportOptions::new(), &entries), 1);
    // An entry that is larger than the limit.
    let large = Entries::from([(b"a".to_vec(), vec![1; 3 << 20]), (b"b".to_vec(), Vec::new())]);
    assert_eq!(check(&dir.path().join("entry"), &small, &large), 2);
    assert_eq!(check(&dir.path().join("none"), &small, &Entries::new()), 0);
}

#[test]
fn an_unfinished_export_has_another_name() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("tables");
    let mut export = Export::create(&path).unwrap();
    export.add(b"a", b"1").unwrap();
    assert!(!path.exists() && dir.path().join("tables.partial/default/000001.sst").exists());
    // A second export with the same name.
    assert!(matches!(Export::create(&path), Err(Error::Exists { .. })));
    drop(export);
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);

    let mut file = OutputFile::create(&path).unwrap();
    std::io::Write::write_all(&mut file, b"a").unwrap();
    assert!(!path.exists() && matches!(OutputFile::create(&path), Err(Error::Exists { .. })));
    drop(file);
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);

    // Nothing is replaced.
    fs::create_dir(&path).unwrap();
    assert!(matches!(OutputFile::create(&path), Err(Error::Exists { .. })));
    fs::write(path.join("file"), "a").unwrap();
    assert!(matches!(Export::create(&path), Err(Error::Exists { .. })));
    fs::remove_file(path.join("file")).unwrap();
    assert_eq!(Export::create(&path).unwrap().finish().unwrap(), []);
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
}

#[test]
fn entries_out_of_order_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let mut export = Export::create(dir.path().join("tables")).unwrap();
    export.add(b"b", b"").unwrap();
    for key in [b"b", b"a"] {
        assert!(matches!(export.add(key, b""), Err(Error::KeyOrder { .. })));
    }
    export.column_family("other").unwrap();
    export.add(b"", b"").unwrap();
    assert!(matches!(export.add(b"", b""), Err(Error::KeyOrder { .. })));
    assert!(matches!(export.column_family("other"), Err(Error::Exists { .. })));
}

#[test]
fn each_changed_byte_of_a_block_is_detected() {
    let entries: Entries =
        (0..60_u32).map(|number| (number.to_be_bytes().to_vec(), vec![7; 9])).collect();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("tables");
    export(&path, &ExportOptions::new(), &entries);
    let table = path.join("default/000001.sst");
    let bytes = fs::read(&table).unwrap();
    let expected = Vec::from_iter(entries);
    // The footer of format version 5 has no checksum.
    for at in (0..bytes.len() - FOOTER_BYTES).chain(bytes.len() - 8..bytes.len()) {
        let mut damaged = bytes.clone();
        damaged[at] ^= 1;
        fs::write(&table, damaged).unwrap();
        assert!(read(&table).is_err(), "byte {at} of {}", bytes.len());
    }
    fs::write(&table, bytes).unwrap();
    assert_eq!(read(&table).unwrap(), expected);
}

/// Runs a tool of RocksDB. Returns its output, or `None` if it is not installed.
fn tool(name: &str, args: &[&str]) -> Option<String> {
    let output = match Command::new(name).args(args).output() {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return None,
        output => output.unwrap(),
    };
    let text = [output.stdout, output.stderr].map(|text| String::from_utf8(text).unwrap());
    assert!(output.status.success(), "{name} {args:?}: {text:?}");
    Some(text.concat())
}

#[test]
#[expect(clippy::print_stdout, reason = "prints skipped tools")]
fn rocksdb_ingests_the_tables() {
    let mut entries: Entries = (0..3000_u32)
        .map(|number| {
            (number.to_be_bytes().to_vec(), number.to_le_bytes().repeat(number as usize % 40))
        })
        .collect();
    entries.insert(Vec::new(), vec![1; 64 << 10]);
    entries.insert(vec![b'k'; 10_000], Vec::new());
    let dir = tempfile::tempdir().unwrap();
    for compress in [false, true] {
        let path = dir.path().join(format!("tables-{compress}"));
        export(&path, &ExportOptions::new().compress(compress), &entries);
        let table = path.join("default/000001.sst");
        let db = dir.path().join(format!("db-{compress}"));
        let db = format!("--db={}", db.to_str().unwrap());
        let table = table.to_str().unwrap();
        let ingest = ["ingest_extern_sst", table, &db, "--create_if_missing"];
        if tool("ldb", &ingest).is_none() {
            println!("skipped: `ldb` of RocksDB is not installed");
            return;
        }
        tool("sst_dump", &[&format!("--file={table}"), "--command=verify"]).unwrap();
        let scan = tool("ldb", &["scan", &db, "--hex"]).unwrap();
        let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02X}")).collect::<String>();
        let lines = entries.iter().map(|(key, value)| format!("0x{} : 0x{}", hex(key), hex(value)));
        let want = Vec::from_iter(lines);
        assert_eq!(scan.lines().collect::<Vec<_>>(), want, "{compress}");
        for (key, value) in entries.iter().step_by(97) {
            let key = format!("0x{}", hex(key));
            let found = tool("ldb", &["get", &key, &db, "--hex"]).unwrap();
            assert_eq!(found.trim(), format!("0x{}", hex(value)));
        }
    }
}

#[test]
fn finished_directory_is_kept_if_its_name_is_taken() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("files");
    fs::create_dir(&path).unwrap();
    let output = OutputDirectory::create(&path).unwrap();
    fs::write(output.partial().join("file"), "a").unwrap();
    fs::create_dir(&path).unwrap();
    fs::write(path.join("other"), "b").unwrap();
    let error = output.finish().unwrap_err();
    let Error::NotRenamed { partial, source, .. } = &error else { panic!("{error}") };
    assert!(matches!(**source, Error::Exists { .. }), "{source}");
    assert_eq!(fs::read_to_string(partial.join("file")).unwrap(), "a");
    assert_eq!(tables(&path), [path.join("other")]);
}
