//! Verdicts on every kind, snapshot, range tombstone and expiry: `testdata/resolve`.
//!
//! | command                                 | output                                        |
//! |-----------------------------------------|-----------------------------------------------|
//! | `kind NAME [expiry=MS]`                 | a verdict for each reader and range tombstone |
//! | `resolve [at=N] [cover=N] VERSIONS`     | the value of the key, and the reads           |
//! | `unmerged [at=N] [cover=N] VERSIONS`    | the same without a merge operator             |
//!
//! `kind` takes a version with sequence number 5, and readers at 0, 4, 5 and 9 whose clock is at
//! 1000 ms. Each column has one verdict for each newest visible range tombstone: none and 4, for
//! the last reader also 6 and 9. `-` invisible, `+` operand, `v` value, `b` value in a blob file,
//! `x` deleted. `VERSIONS` are written as `9+ 5v 3x`, newest first; the value of a version is its
//! sequence number.

use std::{convert::Infallible, fmt::Display};

use bytes::Bytes;
use sievedb_format::{Corruption, Kind, SequenceNumber, Trailer};

use super::{Needed, ReadPoint, Refused, Seen, Stored, Verdict, Version, older::Resolved};
use crate::tests::scenario;

/// Sequence number of a version.
const SEQUENCE: SequenceNumber = 5;
const CLOCK_MS: u64 = 1000;

/// Readers, each with the newest range tombstones of the key that it may see.
const READERS: [(SequenceNumber, &[SequenceNumber]); 4] =
    [(0, &[0]), (4, &[0, 4]), (SEQUENCE, &[0, 4]), (9, &[0, 4, 6, 9])];

#[test]
fn scenarios() {
    scenario::check("resolve", |_: &mut (), command, _| run(command));
}

fn run(command: &str) -> String {
    let (name, rest) = command.split_once(' ').expect("a command with arguments");
    let option = |name: &str| {
        let words = rest.split(' ');
        let mut values = words.filter_map(|word| word.strip_prefix(name)?.strip_prefix('='));
        values.next().map(|value| value.parse::<u64>().expect("a number"))
    };
    if name == "kind" {
        let name = rest.split(' ').next().expect("a kind");
        let kind = Kind::ALL.into_iter().find(|kind| format!("{kind:?}") == name);
        return verdicts(kind.expect("a kind"), option("expiry").unwrap_or(u64::MAX));
    }
    let versions: Vec<_> = rest.split(' ').filter(|word| !word.contains('=')).collect();
    let (at, cover) = (option("at").unwrap_or(9), option("cover").unwrap_or(0));
    let (resolved, reads) = resolve_all(&versions, at, cover);
    let value = resolved.into_value(
        |stored| Ok::<_, Corruption>(Bytes::copy_from_slice(stored)),
        |base, operands| match name {
            "resolve" => Ok([base.as_slice(), operands].concat().join(&b',').into()),
            "unmerged" => Err(Refused::OPERAND.into()),
            name => panic!("{name}"),
        },
    );
    let line = |answer: &dyn Display| format!("{answer}, {reads} reads\n");
    match value {
        Ok(Some(value)) => line(&value.escape_ascii()),
        Ok(None) => line(&"no value"),
        Err(error) => line(&error),
    }
}

fn verdicts(kind: Kind, expiry_ms: u64) -> String {
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
    verdicts.join(" ") + "\n"
}

#[test]
fn a_settled_version_is_seen_by_every_reader_and_any_range_tombstone_hides_it() {
    let settled = version(Trailer::new(0, Kind::Put));
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
        at.resolve(version(Trailer::new(5, kind)), cover);
        assert_eq!(searches, want, "{name}");
    }
}

#[test]
fn each_kind_shows_its_key_a_value_or_nothing() {
    for kind in Kind::ALL {
        let trailer = Trailer::new(SEQUENCE, kind);
        let want = match kind {
            Kind::Put | Kind::PutWithExpiry | Kind::BlobReference => Ok(Seen::Value),
            Kind::Tombstone => Ok(Seen::Nothing),
            Kind::Merge => Ok(Seen::Operand),
            _ => Err(Refused::Unsupported(kind)),
        };
        let at = ReadPoint::at_time(SEQUENCE, CLOCK_MS);
        assert_eq!(at.seen(trailer, expiring_later, || 0), want, "{kind:?}");
    }
    let below =
        |kind, sequence| ReadPoint::new(sequence).seen(Trailer::new(5, kind), expiring_later, || 0);
    assert_eq!(below(Kind::Merge, 4), Ok(Seen::Nothing), "invisible");
    let blob = Trailer::new(5, Kind::BlobReference);
    assert_eq!(ReadPoint::LATEST.seen(blob, || b"", || 6), Ok(Seen::Nothing), "covered");
}

/// The stored value of a put that expires a millisecond after [`CLOCK_MS`].
fn expiring_later() -> &'static [u8] {
    &[0xe9, 3, 0, 0, 0, 0, 0, 0]
}

fn version(trailer: Trailer) -> Version {
    Version::decode(trailer, || unreachable!("it has no expiry")).unwrap()
}

#[test]
fn a_put_with_expiry_is_refused_without_a_clock_or_an_expiry() {
    let trailer = Trailer::new(SEQUENCE, Kind::PutWithExpiry);
    let seen = |at: ReadPoint, stored: &'static [u8]| at.seen(trailer, || stored, || 0);
    let unread = seen(ReadPoint::LATEST, expiring_later());
    assert_eq!(unread, Err(Refused::Unsupported(Kind::PutWithExpiry)));
    let at = ReadPoint::LATEST.with_clock(|| CLOCK_MS);
    assert_eq!(seen(at, expiring_later()), Ok(Seen::Value));
    assert_eq!(at.with_clock(|| unreachable!("it is fixed")), at);
    let later = ReadPoint::at_time(SEQUENCE, CLOCK_MS + 1);
    assert_eq!(seen(later, expiring_later()), Ok(Seen::Nothing), "the expiry is the first without");
    assert_eq!(seen(at, &[0xe9, 3]), Err(Refused::ShortExpiry(2)));
    let want = Corruption::Truncated { what: "expiry of an entry", need: 8, have: 2 };
    assert_eq!(Corruption::from(Refused::ShortExpiry(2)), want);
    // The last time of the clock is never reached.
    let end = ReadPoint::at_time(SEQUENCE, u64::MAX);
    assert_eq!(seen(end, &[0xff; 8]), Ok(Seen::Value));
}

/// Also returns the number of reads.
fn resolve_all(words: &[&str], at: SequenceNumber, cover: SequenceNumber) -> (Resolved, usize) {
    let parse = |word: &&str| {
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
    let versions: Vec<_> = words.iter().map(parse).collect();
    let mut reads = 0;
    let resolved =
        Resolved::read(ReadPoint::new(at), cover, usize::MAX, |target| -> Result<_, Infallible> {
            reads += 1;
            Ok(versions.iter().find(|&&trailer| trailer <= target).map(|&trailer| {
                let stored = Bytes::from(trailer.sequence().to_string());
                (trailer, version(trailer), stored)
            }))
        });
    (resolved.unwrap(), reads)
}

#[test]
fn an_error_of_a_source_is_no_end_of_the_versions() {
    let mut left = 2;
    let resolved = Resolved::read(ReadPoint::LATEST, 0, usize::MAX, |target| {
        left -= 1;
        let trailer = Trailer::new(target.sequence().min(9) - 1, Kind::Merge);
        let version = version(trailer);
        if left == 0 { Err("failed") } else { Ok(Some((trailer, version, Bytes::new()))) }
    });
    assert_eq!(resolved.err(), Some("failed"));
}
