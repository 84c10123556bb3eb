//! Cases of [`resolve`](super): every kind, snapshot, range tombstone and expiry.

use std::convert::Infallible;

use bytes::Bytes;
use sievedb_format::{Corruption, Kind, SequenceNumber, Trailer};

use super::{
    Needed, ReadPoint, Stored, Unsupported, Verdict, Version, check_kind,
    older::{MergeOperator, NoMergeOperator, Resolved},
};

/// Sequence number of the version in the table of cases.
const SEQUENCE: SequenceNumber = 5;
/// Clock of the reader in the table of cases, in milliseconds.
const CLOCK_MS: u64 = 1000;

/// Readers of the table of cases, each with the newest range tombstones of the key that it may see.
const READERS: [(SequenceNumber, &[SequenceNumber]); 4] =
    [(0, &[0]), (4, &[0, 4]), (SEQUENCE, &[0, 4]), (9, &[0, 4, 6, 9])];

/// One row for each kind, and for each expiry of a kind with expiry. Columns: readers and range
/// tombstones in the order of [`READERS`]. `-` more needed, invisible; `+` more needed, operand;
/// `v` value; `b` value in a blob file; `x` deleted.
const CASES: [(Kind, u64, &str); 9] = [
    (Kind::Put, u64::MAX, "- -- vv vvxx"),
    (Kind::Tombstone, u64::MAX, "- -- xx xxxx"),
    (Kind::Merge, u64::MAX, "- -- ++ ++xx"),
    (Kind::BlobReference, u64::MAX, "- -- bb bbxx"),
    (Kind::PutWithExpiry, CLOCK_MS + 1, "- -- vv vvxx"),
    (Kind::PutWithExpiry, CLOCK_MS, "- -- xx xxxx"),
    (Kind::PutWithExpiry, CLOCK_MS - 1, "- -- xx xxxx"),
    (Kind::PutWithExpiry, u64::MAX, "- -- vv vvxx"),
    (Kind::RangeTombstone, u64::MAX, "- -- xx xxxx"),
];

#[test]
fn every_kind_at_every_snapshot_under_every_range_tombstone_and_expiry() {
    for (kind, expiry_ms, want) in CASES {
        let version = Version { sequence: SEQUENCE, kind, expiry_ms };
        let verdicts = READERS.map(|(sequence, covers)| {
            let at = ReadPoint { sequence, clock_ms: CLOCK_MS };
            let letter = |&cover: &SequenceNumber| match at.resolve(version, || cover) {
                Verdict::MoreNeeded(Needed::Invisible) => '-',
                Verdict::MoreNeeded(Needed::Operand) => '+',
                Verdict::Value(Stored::Inline) => 'v',
                Verdict::Value(Stored::Blob) => 'b',
                Verdict::Deleted => 'x',
            };
            covers.iter().map(letter).collect::<String>()
        });
        assert_eq!(verdicts.join(" "), want, "{kind:?}, expiry at {expiry_ms}");
    }
    for kind in Kind::ALL {
        assert!(CASES.iter().any(|case| case.0 == kind), "no case of {kind:?}");
    }
}

#[test]
fn a_settled_version_is_seen_by_every_reader_and_any_range_tombstone_hides_it() {
    let settled = Version::decode(Trailer::new(0, Kind::Put)).unwrap();
    let at = ReadPoint::new(0);
    assert_eq!(at.resolve(settled, || 0), Verdict::Value(Stored::Inline));
    assert_eq!(ReadPoint::LATEST.resolve(settled, || 1), Verdict::Deleted);
}

#[test]
fn range_tombstones_are_searched_only_where_they_matter() {
    let cases = [
        ("a put", ReadPoint::new(5), Kind::Put, 1),
        ("a tombstone", ReadPoint::new(5), Kind::Tombstone, 0),
        ("invisible", ReadPoint::new(4), Kind::Put, 0),
    ];
    for (name, at, kind, want) in cases {
        let mut searches = 0;
        let cover = || {
            searches += 1;
            0
        };
        at.resolve(Version::decode(Trailer::new(5, kind)).unwrap(), cover);
        assert_eq!(searches, want, "{name}");
    }
}

#[test]
fn what_this_release_cannot_apply_is_refused_by_kind() {
    for kind in Kind::ALL {
        let trailer = Trailer::new(SEQUENCE, kind);
        let want = match kind {
            Kind::Put => Ok(true),
            Kind::Tombstone => Ok(false),
            _ => Err(Unsupported(kind)),
        };
        assert_eq!(ReadPoint::LATEST.has_value(trailer, || 0), want, "{kind:?}");
        assert_eq!(check_kind(kind), want.map(drop), "{kind:?}");
    }
    let below = |kind, sequence| ReadPoint::new(sequence).has_value(Trailer::new(5, kind), || 0);
    assert_eq!(below(Kind::Merge, 4), Ok(false), "invisible");
    let covered = ReadPoint::LATEST.has_value(Trailer::new(5, Kind::BlobReference), || 6);
    assert_eq!(covered, Ok(false), "covered");
}

/// A merge operator that joins operands with commas.
pub(crate) struct Append;

impl MergeOperator for Append {
    fn merge<'o>(
        &self,
        base: Option<&'o [u8]>,
        operands: impl Iterator<Item = &'o [u8]>,
    ) -> Result<Bytes, Corruption> {
        let parts: Vec<&[u8]> = base.into_iter().chain(operands).collect();
        Ok(parts.join(&b',').into())
    }
}

/// Resolves versions written as `"9+ 5v 3x"`, newest first, letters as in [`CASES`]. The stored
/// value of a version is its sequence number.
fn resolve_all(versions: &str, at: SequenceNumber, cover: SequenceNumber) -> (Resolved, usize) {
    let parse = |word: &str| {
        let (sequence, letter) = word.split_at(word.len() - 1);
        let kind = match letter {
            "v" => Kind::Put,
            "x" => Kind::Tombstone,
            "+" => Kind::Merge,
            "b" => Kind::BlobReference,
            letter => panic!("{letter}"),
        };
        Trailer::new(sequence.parse().unwrap(), kind)
    };
    let versions: Vec<_> = versions.split_whitespace().map(parse).collect();
    let mut reads = 0;
    let resolved = Resolved::read(ReadPoint::new(at), cover, |target| -> Result<_, Infallible> {
        reads += 1;
        Ok(versions.iter().find(|&&trailer| trailer <= target).map(|&trailer| {
            let stored = Bytes::from(trailer.sequence().to_string());
            (trailer, Version::decode(trailer).unwrap(), stored)
        }))
    });
    (resolved.unwrap(), reads)
}

#[test]
fn older_versions_are_read_until_the_key_is_resolved() {
    // Name, versions, value; sequence numbers of reader and range tombstone; versions read.
    let cases: [([&str; 3], [SequenceNumber; 2], usize); 12] = [
        (["no version", "", ""], [9, 0], 1),
        (["a value", "5v 3v", "5"], [9, 0], 1),
        (["a tombstone", "5x 3v", ""], [9, 0], 1),
        (["a value below newer versions", "8v 7x 5v", "5"], [5, 0], 1),
        (["operands on a value", "8+ 7+ 5v 3v", "5,7,8"], [9, 0], 3),
        (["operands on nothing", "8+ 7+", "7,8"], [9, 0], 3),
        (["operands on a tombstone", "8+ 7x 5v", "8"], [9, 0], 2),
        (["an older snapshot", "8+ 7+ 5v", "5,7"], [7, 0], 2),
        (["before all operands", "8+ 7+ 5v", "5"], [6, 0], 1),
        (["a range tombstone below an operand", "8+ 7+ 5v", "7,8"], [9, 6], 3),
        (["a range tombstone over an operand", "8+ 6+ 5v", "8"], [9, 7], 2),
        (["a range tombstone over all", "8+ 5v", ""], [9, 9], 1),
    ];
    for ([name, versions, want], [at, cover], want_reads) in cases {
        let (resolved, reads) = resolve_all(versions, at, cover);
        let value = resolved.into_value(&Append).unwrap();
        assert_eq!(value.unwrap_or_default(), want, "{name}");
        assert_eq!(reads, want_reads, "{name}");
    }
}

#[test]
fn a_missing_step_is_refused_and_not_skipped() {
    let refused = |kind| Err(Corruption::Unsupported { what: "kind of an entry", value: kind });
    let cases = [
        ("an operand without an operator", "8+ 5v", refused(3)),
        ("a blob", "5b", refused(4)),
        ("a blob below an operand", "8+ 5b", refused(4)),
        ("neither", "5v", Ok(Some(Bytes::from("5")))),
    ];
    for (name, versions, want) in cases {
        assert_eq!(resolve_all(versions, 9, 0).0.into_value(&NoMergeOperator), want, "{name}");
    }
}

#[test]
fn an_error_of_a_source_is_no_end_of_the_versions() {
    let mut left = 2;
    let resolved = Resolved::read(ReadPoint::LATEST, 0, |target| {
        left -= 1;
        let trailer = Trailer::new(target.sequence().min(9) - 1, Kind::Merge);
        let version = Version::decode(trailer).unwrap();
        if left == 0 { Err("failed") } else { Ok(Some((trailer, version, Bytes::new()))) }
    });
    assert_eq!(resolved.err(), Some("failed"));
}
