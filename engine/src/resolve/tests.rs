//! Cases of [`resolve`](super): every kind, snapshot, range tombstone and expiry.

use sievedb_format::{Kind, SequenceNumber, Trailer};

use super::{Needed, ReadPoint, Stored, Unsupported, Verdict, Version, check_kind};

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
