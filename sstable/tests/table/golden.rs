//! Golden files that pin the format. `REWRITE=1` updates them.

use std::sync::Arc;

use bytes::Bytes;
use sievedb_filter::{FilterKind, TableFilter, key_hash};
use sievedb_format::{Annotation, RangeTombstone};
use sievedb_sstable::{
    BlobIdentity, BlobUse, BlobWriter, Completed, Compression, PrefixExtractor, TableOptions,
    TableOrigin, TableSource, describe_blob_file, describe_filter_file, write_filter_file,
};

use crate::support::{Entry, IDENTITY, build_as, build_with, describe};

#[expect(clippy::disallowed_methods, reason = "golden files belong to the source tree")]
fn check_golden(name: &str, bytes: &[u8], describe: fn(&Arc<dyn TableSource>) -> Annotation) {
    let source: Arc<dyn TableSource> = Arc::new(Bytes::copy_from_slice(bytes));
    let mut text = describe(&source).to_string();
    text += "\n";
    for (line, bytes) in bytes.chunks(32).enumerate() {
        let hex: Vec<_> = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        text += &format!("{:08x}  {}\n", line * 32, hex.join(" "));
    }
    let path = format!("{}/testdata/{name}", env!("CARGO_MANIFEST_DIR"));
    if std::env::var_os("REWRITE").is_some() {
        std::fs::write(&path, &text).unwrap();
    }
    let want = std::fs::read(&path).unwrap();
    assert_eq!(text, String::from_utf8(want).unwrap(), "{path}; REWRITE=1 updates it");
}

fn entries() -> Vec<Entry> {
    vec![
        Entry::put(b"", 1, b"the empty key"),
        Entry::put(b"apple", 9, b"red"),
        Entry::put(b"apple", 4, b"green"),
        Entry::tombstone(b"apricot", 12),
        Entry::put(b"banana", 300, &b"yellow ".repeat(20)),
        Entry::put(b"\xff", 2, b""),
    ]
}

#[test]
fn a_plain_table() {
    let options = TableOptions::new().compression(Compression::None);
    check_golden("plain", &build_as(IDENTITY, &entries(), &[], options).bytes, describe);
}

#[test]
fn a_table_with_every_part() {
    let mut entries = entries();
    let long = b"a key long enough that a partition of the index is full with two of them ";
    for n in 0..5 {
        let user_key = [&long.repeat(6)[..], &[b'0' + n]].concat();
        entries.insert(1 + usize::from(n), Entry::put(&user_key, 20, &[b'v'; 900]));
    }
    let options = TableOptions::new()
        .block_bytes(1 << 10)
        .index_partition_bytes(1 << 10)
        .prefix_filter(PrefixExtractor::Separator(b' '), 10.0);
    let tombstones = [RangeTombstone::new(b"b", b"d", 40), RangeTombstone::new(b"b", b"c", 50)];
    let bytes = build_with(IDENTITY, &entries, &tombstones, options, Some(origin())).bytes;
    check_golden("every_part", &bytes, describe);
}

fn origin() -> TableOrigin {
    TableOrigin {
        keyspace: 7,
        name: "users".into(),
        // Blocks of 1 KiB.
        options: [10, 2, 0x80, 8].into(),
        level: 2,
        completed: Some(Completed { flushed: 300, replaced: vec![12, 13, 400] }),
        blob_files: vec![BlobUse {
            file_id: 44,
            bytes: 5000,
            checksum: 0x0102_0304_0506_0708,
            salt: 9,
            used_bytes: 4321,
        }],
        ..TableOrigin::default()
    }
}

#[test]
fn an_empty_table() {
    check_golden("empty", &build_as(IDENTITY, &[], &[], TableOptions::new()).bytes, describe);
}

#[test]
fn a_filter_file() {
    let hashes: Vec<u64> =
        entries().iter().map(|entry| key_hash(&entry.user_key, IDENTITY.hash_seed)).collect();
    let filter = TableFilter::build(FilterKind::BlockedBloom, &hashes, 10.0).unwrap();
    let mut bytes = Vec::new();
    write_filter_file(&mut bytes, &IDENTITY, 43, &filter).unwrap();
    check_golden("filter_file", &bytes, describe_filter_file);
}

#[test]
fn a_blob_file() {
    let identity = BlobIdentity { store_id: IDENTITY.store_id, file_id: 44, salt: IDENTITY.salt };
    let mut writer = BlobWriter::new(Vec::new(), identity, Compression::Lz4, 1 << 10).unwrap();
    writer.add(b"short").unwrap();
    writer.add(&b"yellow ".repeat(20)).unwrap();
    let (bytes, _) = writer.finish().unwrap();
    check_golden("blob_file", &bytes, describe_blob_file);
}
