//! Batches of every op, and malformed ones.

use super::*;

fn sample() -> BatchEncoder {
    let mut batch = BatchEncoder::with_capacity(64);
    batch.create_keyspace(3, "users", b"\x01\x02");
    batch.put(3, Kind::Put, b"key", b"value");
    batch.put(0, Kind::Put, b"", b"");
    batch.remove(300, b"gone");
    batch.put(3, Kind::Merge, b"key", b"operand");
    batch.put_expiring(3, b"session", 77, b"anna");
    batch.remove_range(3, b"", b"z");
    batch.remove_range(3, b"a", b"");
    batch.clear_keyspace(3);
    batch.ingest(3, &[7, 300]);
    batch.rename_keyspace(3, "people");
    batch.drop_keyspace(3);
    batch
}

fn entries(payload: &Bytes) -> Result<Vec<String>, Corruption> {
    let batch = Batch::decode(payload.clone())?;
    batch.iter().map(|entry| entry.map(|entry| format!("{entry:?}"))).collect()
}

#[test]
fn batch_returns() {
    let payload = sample().finish();
    let batch = Batch::decode(payload.clone()).expect("well formed");
    assert_eq!((sample().entries(), batch.entries()), (12, 12));
    let got: Result<Vec<_>, _> = batch.iter().collect();
    fn point(
        kind: Kind,
        keyspace: u64,
        key: &'static [u8],
        value: &'static [u8],
    ) -> Entry<'static> {
        Entry::Point { keyspace, kind, key, value: Bytes::from_static(value) }
    }
    let want = vec![
        Entry::CreateKeyspace { keyspace: 3, name: "users", options: &[1, 2] },
        point(Kind::Put, 3, b"key", b"value"),
        point(Kind::Put, 0, b"", b""),
        point(Kind::Tombstone, 300, b"gone", b""),
        point(Kind::Merge, 3, b"key", b"operand"),
        point(Kind::PutWithExpiry, 3, b"session", b"M\0\0\0\0\0\0\0anna"),
        Entry::RemoveRange { keyspace: 3, start: b"", end: b"z" },
        Entry::RemoveRange { keyspace: 3, start: b"a", end: b"" },
        Entry::ClearKeyspace { keyspace: 3 },
        Entry::Ingest { keyspace: 3, tables: vec![7, 300] },
        Entry::RenameKeyspace { keyspace: 3, name: "people" },
        Entry::DropKeyspace { keyspace: 3 },
    ];
    assert_eq!(got, Ok(want));
    assert_eq!(entries(&BatchEncoder::new().finish()), Ok(vec![]));
}

#[test]
fn values_are_slices_of_the_payload() {
    let payload = sample().finish();
    let batch = Batch::decode(payload.clone()).expect("well formed");
    let Some(Ok(Entry::Point { value, .. })) = batch.iter().nth(1) else {
        panic!("the second entry is a put");
    };
    assert!(payload.as_ptr_range().contains(&value.as_ptr()));
}

#[test]
fn a_long_batch_has_a_long_count() {
    let mut batch = BatchEncoder::new();
    for key in 0..1000_u32 {
        batch.put(1, Kind::Put, &key.to_be_bytes(), b"v");
    }
    let batch = Batch::decode(batch.finish()).expect("well formed");
    assert_eq!(batch.entries(), 1000);
    assert!(batch.iter().all(|entry| entry.is_ok()));
}

#[test]
fn batch_refuses_malformed_bytes() {
    use Corruption::{Order, OutOfRange, Trailing, Truncated, Unsupported};
    let long_name = [&[1, 0x81, 1, 0x80, 2][..], &[b'n'; 256], &[0]].concat();
    let long_key = [&[1, 2, 1, 0x81, 0x80, 4][..], &[0; KEY_BYTES_MAX + 1]].concat();
    let name = "name of a keyspace";
    let short = Truncated { what: "expiry of an entry", need: 8, have: 7 };
    let long_end = [&[1, 6, 1, 0, 0x81, 0x80, 4][..], &[0; KEY_BYTES_MAX + 1]].concat();
    let (order, too_long) = ("start and end of a range", KEY_BYTES_MAX as u64 + 1);
    let cases: [(&str, &[u8], Corruption); 14] = [
        ("range", &[1, 6, 1, 1, b'b', 1, b'b'], Order { what: order }),
        ("no end", &[1, 6, 1, 1, b'b'], Truncated { what: "end of a range", need: 1, have: 0 }),
        ("long end", &long_end, OutOfRange { what: "end of a range", value: too_long }),
        ("nothing", &[], Truncated { what: "entries of a batch", need: 1, have: 0 }),
        ("count", &[9, 1, 1], OutOfRange { what: "entries of a batch", value: 9 }),
        ("rest", &[0, 7], Trailing { what: "batch", bytes: 1 }),
        ("op", &[1, 7, 1], Unsupported { what: "kind of an entry", value: 7 }),
        ("blob", &[1, 4, 1, 0, 0], Unsupported { what: "kind of an entry", value: 4 }),
        ("expiry", &[1, 5, 1, 0, 7, 0, 0, 0, 0, 0, 0, 0], short),
        ("value", &[1, 1, 1, 0, 9], Truncated { what: "value", need: 9, have: 0 }),
        ("no name", &[1, 0x81, 1, 0, 0], OutOfRange { what: name, value: 0 }),
        ("no text", &[1, 0x81, 1, 1, 0xff, 0], OutOfRange { what: name, value: 0 }),
        ("long name", &long_name, OutOfRange { what: name, value: 256 }),
        ("long key", &long_key, OutOfRange { what: "key", value: KEY_BYTES_MAX as u64 + 1 }),
    ];
    for (name, bytes, want) in cases {
        assert_eq!(entries(&Bytes::copy_from_slice(bytes)), Err(want), "{name}");
    }
}

#[test]
fn every_cut_and_every_flip_ends_in_entries_or_an_error() {
    let good = sample().finish();
    for at in 0..good.len() {
        assert!(entries(&good.slice(..at)).is_err(), "cut at {at}");
        for bit in 0..8 {
            let mut bytes = good.to_vec();
            bytes[at] ^= 1 << bit;
            // Another batch is acceptable: the checksum of the record detects it. The call must not
            // panic.
            let _ = entries(&bytes.into());
        }
    }
}
