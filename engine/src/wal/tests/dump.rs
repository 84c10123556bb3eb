//! The bytes of a segment, pinned.

use sievedb_format::{Annotation, annotation::NextPart};
use sievedb_sstable::BlobReference;

use super::*;
use crate::{
    log::values::{LoggedValue, LoggedValues},
    tests::{check_golden, with_file},
    wal::dump::describe,
};

fn described(fs: &MemoryFs) -> String {
    let file = fs.open(path(12).as_ref()).unwrap();
    let describe = |next: &mut NextPart<'_>| describe(file, path(12).into(), 12, next);
    let (described, all) = Annotation::of_parts(describe);
    described.unwrap();
    all.to_string()
}

#[test]
fn the_bytes_of_a_segment_are_pinned() {
    let fs = new_fs();
    let mut writer = create(&*fs, 12, Some(at(9, 4096)), at(9, 64));
    let mut batch = BatchEncoder::new();
    // Blocks of 8 KiB.
    batch.create_keyspace(7, "users", b"\x0a\x02\x80\x40");
    batch.put(7, Kind::Put, b"key", b"value");
    batch.put(300, Kind::Put, b"", b"\x00\xff");
    batch.remove(0, b"gone");
    batch.put(7, Kind::Merge, b"key", b"operand");
    batch.put_expiring(7, b"session", 77, b"anna");
    batch.remove_range(7, b"a", b"m");
    batch.remove_range(7, b"x", b"");
    batch.clear_keyspace(7);
    batch.rename_keyspace(7, "people");
    batch.drop_keyspace(7);
    writer.append(&[pending(41, batch.finish()), put(52, b"next")], at(12, 64)).unwrap();
    writer.append(&[pending(53, vec![0; (1 << 20) + 1])], at(12, 64)).unwrap();
    let end = writer.offset();
    writer.seal(at(12, end)).unwrap();
    check_golden("wal/segment", &described(&fs));
    let torn = with_file(&fs, &path(12), |bytes| bytes.truncate(end as usize + 3));
    let text = described(&torn);
    assert!(text.lines().last().unwrap().contains("not a record"), "{text}");
    let room = with_file(&fs, &path(12), |bytes| {
        bytes.truncate(end as usize);
        bytes.resize(end as usize + 777, 0);
    });
    let text = described(&room);
    assert!(text.lines().last().unwrap().contains("room for records"), "{text}");
}

#[test]
fn a_compressed_batch_is_described() {
    let fs = new_fs();
    let mut writer = create(&*fs, 12, Some(at(9, 4096)), at(9, 64));
    let mut batch = BatchEncoder::new();
    batch.put(7, Kind::Put, b"key", &[b'x'; 2000]);
    batch.remove(7, b"gone");
    let payload = crate::log::Payload::compressed(batch.finish());
    writer.append(&[PendingRecord { sequence: 41, payload }], at(12, 64)).unwrap();
    let text = described(&fs);
    for part in ["lz4 payload", "entries", "keyspace 7 \"key\" = \"xxx", "keyspace 7 \"gone\""] {
        assert!(text.contains(part), "{part}: {text}");
    }
}

#[test]
fn a_batch_without_its_values_is_described() {
    let reference =
        BlobReference { file_id: 9, offset: 64, bytes: 2005, value_bytes: 2000, index_bytes: 0 };
    let mut batch = BatchEncoder::new();
    batch.put(7, Kind::Put, b"key", &[b'x'; 2000]);
    let batch = batch.finish();
    let range = batch.len() - 2000..batch.len();
    let values = vec![LoggedValue { range, reference, salt: 0x5a17 }];
    let payload = crate::log::Payload::without(&batch, LoggedValues { values, files: Vec::new() });
    let fs = new_fs();
    let mut writer = create(&*fs, 12, Some(at(9, 4096)), at(9, 64));
    writer.append(&[PendingRecord { sequence: 41, payload }], at(12, 64)).unwrap();
    check_golden("wal/values", &described(&fs));
    // The value file is missing.
    let (batches, replayed) = collect(&fs, &[12], NO_MARK).unwrap();
    assert!(batches.is_empty() && replayed.torn.is_some(), "{replayed:?}");
}
