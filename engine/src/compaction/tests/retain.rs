//! Compares the kept versions of a merge with those that its readers see.

use std::{collections::BTreeSet, rc::Rc};

use proptest::prelude::*;
use sievedb_format::{Corruption, Kind, SequenceNumber, Trailer};

use crate::{
    Error, Result,
    compaction::{readers::Readers, retain::RetainStream},
    history_length::HistoryStart,
    iter::tests::model::{
        Entry, History, Moves, VecCursor, any_history, append, check, entries, failure, read, text,
    },
};

const CLOCK_MS: u64 = 1000;

/// Readers at `snapshots` and newer ones, all at the same time.
fn readers(snapshots: &[SequenceNumber]) -> Readers {
    Readers::new(snapshots.iter().map(|&sequence| (sequence, CLOCK_MS)), None, CLOCK_MS)
}

/// Returns the entries of the stream, and the positions where an output may be split.
fn retain(
    history: &History,
    snapshots: &[SequenceNumber],
    is_bottom: impl FnMut(&[u8]) -> bool,
    moves: &Rc<Moves>,
) -> Result<(Vec<Entry>, Vec<bool>)> {
    let stream = RetainStream::new(history.merge(moves), readers(snapshots), is_bottom, || false);
    let mut stream = stream.settling().folding(append());
    let (mut kept, mut splits) = (Vec::new(), Vec::new());
    // A second start discards the first.
    stream.seek_to_first()?;
    stream.seek_to_first()?;
    while let Some(key) = stream.key() {
        kept.push(Entry {
            user_key: key.user_key.to_vec(),
            trailer: key.trailer,
            value: stream.value(),
        });
        splits.push(stream.may_split());
        stream.next()?;
    }
    Ok((kept, splits))
}

/// The definition: in each stripe of a key the newest version or, if that is a merge operand, one
/// entry of all operands down to the value. Without tombstones that hide nothing from the oldest
/// reader; puts that hide nothing from it lose their sequence number.
fn definition(
    sorted: &[Entry],
    snapshots: &[SequenceNumber],
    is_bottom: impl Fn(&[u8]) -> bool,
) -> Vec<Entry> {
    let snapshots: Vec<_> =
        snapshots.iter().copied().collect::<BTreeSet<_>>().into_iter().collect();
    let stripe_of =
        |entry: &Entry| snapshots.partition_point(|&snapshot| snapshot < entry.trailer.sequence());
    let mut kept = Vec::new();
    for key in sorted.chunk_by(|left, right| left.user_key == right.user_key) {
        let is_bottom = is_bottom(&key[0].user_key);
        let stripes: Vec<_> =
            key.chunk_by(|left, right| stripe_of(left) == stripe_of(right)).collect();
        for (number, stripe) in stripes.iter().enumerate() {
            let is_operand = |entry: &&Entry| entry.trailer.kind() == Kind::Merge;
            let operands = stripe.iter().take_while(is_operand).count();
            let mut entry = stripe[0].clone();
            let is_last = number + 1 == stripes.len();
            if operands > 0 {
                let base = stripe.get(operands);
                let ends = base.is_some() || (is_last && is_bottom);
                let kind = if ends { Kind::Put } else { Kind::Merge };
                let base = base.filter(|base| base.trailer.kind() == Kind::Put);
                let parts = base.into_iter().chain(stripe[..operands].iter().rev());
                let parts: Vec<_> = parts.map(|part| &*part.value).collect();
                entry.value = parts.join(&b',').into();
                entry.trailer = Trailer::new(entry.trailer.sequence(), kind);
            }
            if stripe_of(&entry) > 0 || !is_bottom {
                kept.push(entry);
            } else if entry.trailer.kind() != Kind::Tombstone {
                kept.push(Entry { trailer: Trailer::new(0, entry.trailer.kind()), ..entry });
            }
        }
    }
    kept
}

#[test]
fn every_reader_sees_the_same_and_nothing_else_is_kept() {
    let snapshots = prop::collection::vec(0..90_u64, 0..5);
    // Writes up to `below` are in deeper levels, the others are merged.
    check(2000, &(any_history(80, 4), snapshots, 0..40_u64), |(history, snapshots, below)| {
        let (deeper, merged): (Vec<_>, Vec<_>) =
            history.sorted().into_iter().partition(|entry| entry.trailer.sequence() <= below);
        let is_bottom = |key: &[u8]| !deeper.iter().any(|entry| entry.user_key == key);
        let sources = merged.iter().map(|entry| (entry.value.len() % 2, entry.clone()));
        let inputs = History::new(sources.collect(), Vec::new());
        let (kept, splits) = retain(&inputs, &snapshots, is_bottom, &Rc::default()).unwrap();

        let want = definition(&merged, &snapshots, is_bottom);
        prop_assert_eq!(text(&kept), text(&want));
        prop_assert_eq!(&kept, &want);
        for &reader in snapshots.iter().chain([&SequenceNumber::MAX]) {
            let before = read(&[deeper.clone(), merged.clone()].concat(), &[], reader);
            let after = read(&[deeper.clone(), kept.clone()].concat(), &[], reader);
            prop_assert_eq!(before, after, "reader at {}", reader);
        }
        for (at, split) in splits.into_iter().enumerate() {
            let same_key = at > 0 && kept[at - 1].user_key == kept[at].user_key;
            prop_assert_eq!(split, !same_key, "before {}", text(&kept[at..=at]));
        }
        Ok(())
    });
}

/// A keyspace with a history keeps what a snapshot at each of its sequence numbers sees.
#[test]
fn a_history_keeps_what_a_snapshot_of_each_version_sees() {
    let snapshots = prop::collection::vec(0..90_u64, 0..3);
    check(2000, &(any_history(80, 4), snapshots, 0..90_u64), |(history, mut snapshots, from)| {
        let kept = |readers: Readers| {
            let cursor = history.merge(&Rc::default());
            let mut stream = RetainStream::new(cursor, readers, |_: &[u8]| true, || false);
            stream.seek_to_first().unwrap();
            let mut kept = Vec::new();
            while let Some(key) = stream.key() {
                let value = stream.value();
                kept.push(Entry { user_key: key.user_key.to_vec(), trailer: key.trailer, value });
                stream.next().unwrap();
            }
            text(&kept)
        };
        let at = |&sequence: &SequenceNumber| (sequence, CLOCK_MS);
        let start = HistoryStart { sequence: from, clock_ms: CLOCK_MS };
        let of_history = Readers::new(snapshots.iter().map(at), Some(start), CLOCK_MS);
        let of_history = kept(of_history);
        snapshots.extend(from..100);
        prop_assert_eq!(of_history, kept(readers(&snapshots)));
        Ok(())
    });
}

/// A history of one source.
fn one_source(text: &str) -> History {
    History::new(entries(text).into_iter().map(|entry| (0, entry)).collect(), Vec::new())
}

#[test]
fn the_rules_one_by_one() {
    let cases: [(&str, &str, &[SequenceNumber], bool, &str); 20] = [
        ("newest only", "a@3 a@2 a@1", &[], true, "a@0"),
        ("one per stripe", "a@5 a@4 a@3 a@2 a@1", &[2, 4], true, "a@5 a@4 a@0"),
        ("a snapshot at the very version", "a@5 a@4", &[4], true, "a@5 a@0"),
        ("a snapshot older than all", "a@5 a@4", &[3], true, "a@5"),
        ("a snapshot newer than all", "a@5 a@4", &[6], true, "a@0"),
        ("repeated and unsorted snapshots", "a@5 a@4 a@2", &[4, 2, 4], true, "a@5 a@4 a@0"),
        ("a tombstone and what it hides", "a@5- a@4 b@1", &[], true, "b@0"),
        ("a deeper level may hold the key", "a@5- a@4 b@1", &[], false, "a@5- b@1"),
        ("a snapshot needs the put", "a@5- a@4", &[4], true, "a@5- a@0"),
        ("a change after a snapshot stays known", "a@5-", &[4], true, "a@5-"),
        ("the snapshot sees the tombstone too", "a@5- a@4", &[5], true, ""),
        ("a put over a spent tombstone", "a@6 a@5- a@4", &[5], true, "a@6"),
        ("a put that a deeper level may need", "a@6 a@5", &[7], false, "a@6"),
        ("operands and a put", "a@3+ a@2+ a@1", &[], true, "a@0"),
        ("operands and a deeper level", "a@3+ a@2+ b@1", &[], false, "a@3+ b@1"),
        ("operands and a tombstone", "a@3+ a@2- a@1", &[], false, "a@3"),
        ("operands alone", "a@3+ a@2+", &[], true, "a@0"),
        ("operands above a snapshot", "a@5+ a@4+ a@3+ a@2", &[3], false, "a@5+ a@3"),
        ("operands above an older stripe", "a@5+ a@4+ a@2-", &[3], true, "a@5+"),
        ("an operand alone above a snapshot", "a@5+", &[3], true, "a@5"),
    ];
    for (name, input, snapshots, bottom, want) in cases {
        let kept = retain(&one_source(input), snapshots, |_| bottom, &Rc::default()).unwrap().0;
        assert_eq!(text(&kept), want, "{name}");
    }
}

#[test]
fn a_blob_is_kept_like_a_put_and_read_below_operands_only() {
    let cases = [
        ("newest", "a@5? a@4", Some("a@0?")),
        ("seen by the snapshot", "a@9 a@5? a@4", Some("a@9 a@0?")),
        ("hidden", "a@6 a@5? a@4", Some("a@0")),
        ("below an operand", "a@6+ a@5?", None),
    ];
    for (name, input, want) in cases {
        match (retain(&one_source(input), &[7], |_| true, &Rc::default()), want) {
            (Ok((kept, _)), Some(want)) => assert_eq!(text(&kept), want, "{name}"),
            (Err(Error::Corrupt { source: Corruption::Unsupported { value, .. }, .. }), None) => {
                assert_eq!(value, Kind::BlobReference as u64, "{name}");
            }
            (got, _) => panic!("{name}: {got:?}"),
        }
    }
}

#[test]
fn entries_out_of_order_are_refused() {
    for (name, input) in [("keys", "b@2 a@1"), ("versions", "a@1 a@9")] {
        let cursor = VecCursor::new(entries(input), &Rc::default());
        let mut stream = RetainStream::new(cursor, readers(&[5]), |_: &[u8]| true, || false);
        let error = stream.seek_to_first().and_then(|()| stream.next()).unwrap_err();
        let want = Corruption::Order { what: "an entry" };
        assert!(matches!(error, Error::Corrupt { source, .. } if source == want), "{name}");
        assert_eq!(stream.key(), None, "{name}");
    }
}

#[test]
fn a_merge_stops_at_the_second_check() {
    let input: Vec<_> = (0..3000).map(|number| format!("{number:04}@1")).collect();
    let cursor = VecCursor::new(entries(&input.join(" ")), &Rc::default());
    let mut checks = 0;
    let stops = || {
        checks += 1;
        checks == 2
    };
    let mut stream = RetainStream::new(cursor, readers(&[]), |_: &[u8]| true, stops);
    stream.seek_to_first().unwrap();
    let mut steps = 0;
    let error = loop {
        match stream.next() {
            Ok(()) => steps += 1,
            Err(error) => break error,
        }
    };
    assert!(matches!(error, Error::Closed) && stream.key().is_none(), "{error}");
    assert_eq!(steps, 2 * 1024 - 1);
}

#[test]
fn error_of_an_input_is_returned() {
    let history = one_source("a@3 a@1 b@5- c@4 c@2");
    let clean = Rc::<Moves>::default();
    retain(&history, &[], |_| true, &clean).unwrap();
    for fail_at in 0..clean.count.get() {
        let moves = Rc::<Moves>::default();
        moves.fail_at.set(Some(fail_at));
        let error = retain(&history, &[], |_| true, &moves).unwrap_err();
        assert_eq!(error.to_string(), failure().to_string(), "move {fail_at}");
    }
}

/// Sequence numbers and kinds of the kept versions of one key: a put that expires at each of
/// `versions`, sequence number and expiry, and a put with number 1 below them.
fn kept_kinds(versions: &[(u64, u64)], readers: Readers, is_bottom: bool) -> String {
    let entry = |sequence, kind, value: &[u8]| Entry {
        user_key: b"a".to_vec(),
        trailer: Trailer::new(sequence, kind),
        value: value.to_vec().into(),
    };
    let expiring = versions.iter().map(|&(sequence, expiry_ms)| {
        let stored = [&u64::to_le_bytes(expiry_ms)[..], b"value"].concat();
        entry(sequence, Kind::PutWithExpiry, &stored)
    });
    let all: Vec<_> = expiring.chain([entry(1, Kind::Put, b"oldest")]).collect();
    let cursor = VecCursor::new(all, &Rc::default());
    let mut stream = RetainStream::new(cursor, readers, |_: &[u8]| is_bottom, || false).settling();
    let mut kept = Vec::new();
    stream.seek_to_first().unwrap();
    while let Some(key) = stream.key() {
        let (sequence, kind) = (key.trailer.sequence(), key.trailer.kind());
        assert_eq!(stream.value().is_empty(), kind == Kind::Tombstone);
        kept.push(format!("{sequence} {kind:?}"));
        stream.next().unwrap();
    }
    kept.join(", ")
}

#[test]
fn an_expired_put_is_a_tombstone_once_no_reader_sees_it() {
    type Case = (&'static str, &'static [(u64, u64)], Vec<(u64, u64)>, bool, &'static str);
    let cases: [Case; 8] = [
        ("alive", &[(5, 1001)], vec![], true, "0 PutWithExpiry"),
        ("expired, nothing below", &[(5, 1000)], vec![], true, ""),
        ("expired above deeper levels", &[(5, 1000)], vec![], false, "5 Tombstone"),
        ("it hides one that lives longer", &[(6, 900), (5, 2000)], vec![], true, ""),
        ("a snapshot sees it", &[(5, 950)], vec![(7, 900)], true, "0 PutWithExpiry"),
        ("a snapshot at a later time", &[(5, 950)], vec![(7, 950)], true, ""),
        ("a snapshot before it", &[(5, 950)], vec![(3, 900)], true, "5 Tombstone, 0 Put"),
        (
            "one snapshot for each",
            &[(8, 950), (5, 920)],
            vec![(5, 910), (9, 940)],
            true,
            "8 PutWithExpiry, 0 PutWithExpiry",
        ),
    ];
    for (name, versions, snapshots, is_bottom, want) in cases {
        let readers = Readers::new(snapshots, None, CLOCK_MS);
        assert_eq!(kept_kinds(versions, readers, is_bottom), want, "{name}");
    }
}

#[test]
fn operands_are_folded_into_a_put_that_never_expires() {
    let entry = |sequence, kind, value: &[u8]| Entry {
        user_key: b"a".to_vec(),
        trailer: Trailer::new(sequence, kind),
        value: value.to_vec().into(),
    };
    let kept = |expiry_ms: u64| {
        let stored = [&expiry_ms.to_le_bytes()[..], b"one"].concat();
        let put = entry(1, Kind::PutWithExpiry, &stored);
        let entries = [entry(2, Kind::Merge, b"two"), put].map(|entry| (0, entry));
        let history = History::new(entries.to_vec(), Vec::new());
        retain(&history, &[], |_| true, &Rc::default()).unwrap().0
    };
    assert_eq!(kept(u64::MAX), [entry(0, Kind::Put, b"one,two")]);
    assert_eq!(kept(u64::MAX - 1).len(), 2, "the operand outlives the put");
}

#[test]
fn a_put_too_short_for_its_expiry_is_refused() {
    let cut = Entry {
        user_key: b"a".to_vec(),
        trailer: Trailer::new(5, Kind::PutWithExpiry),
        value: b"short".to_vec().into(),
    };
    let cursor = VecCursor::new(vec![cut], &Rc::default());
    let mut stream = RetainStream::new(cursor, readers(&[]), |_: &[u8]| true, || false);
    match stream.seek_to_first() {
        Err(Error::Corrupt { source, .. }) => {
            let want = Corruption::Truncated { what: "expiry of an entry", need: 8, have: 5 };
            assert_eq!(source, want);
        }
        other => panic!("{other:?}"),
    }
}
