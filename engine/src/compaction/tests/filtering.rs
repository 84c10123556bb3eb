//! Compares the values that readers see after a filtered merge with the decisions of the filter.

use std::{
    collections::BTreeMap,
    rc::Rc,
    sync::{Arc, Mutex},
};

use proptest::prelude::*;
use sievedb_format::{Kind, SequenceNumber, Trailer};

use crate::{
    Error, Result,
    compaction::{filtering::Filtering, readers::Readers, retain::RetainStream},
    compaction_filter::{CompactionContext, CompactionFilter, Decision},
    fold::OperatorCell,
    iter::tests::model::{
        Entry, History, Moves, VecCursor, any_history, append, check, entries, read, text,
    },
    merge_operator::{MergeError, MergeOperator, NamedOperator},
};

type Decide = fn(&[u8], &[u8]) -> Decision;

/// Key, value and decision.
type Call = (Vec<u8>, Vec<u8>, Decision);

/// Decides by a function, and records each call with the decision.
#[derive(Debug)]
struct Noting {
    decide: Decide,
    calls: Mutex<Vec<Call>>,
}

impl Noting {
    fn new(decide: Decide) -> Arc<Self> {
        Arc::new(Self { decide, calls: Mutex::default() })
    }
}

impl CompactionFilter for Noting {
    fn name(&self) -> &str {
        "noting"
    }

    fn filter(&self, context: &CompactionContext<'_>, key: &[u8], value: &[u8]) -> Decision {
        assert_eq!((context.keyspace, context.output_level), ("default", 3));
        let decision = (self.decide)(key, value);
        let mut calls = self.calls.lock().expect("no test panics with the lock");
        calls.push((key.to_vec(), value.to_vec(), decision.clone()));
        decision
    }
}

/// Returns the entries that a filtered merge keeps.
fn filtered(
    filter: &Arc<Noting>,
    history: &History,
    snapshots: &[SequenceNumber],
    is_bottommost: bool,
    is_bottom: impl FnMut(&[u8]) -> bool,
) -> Result<Vec<Entry>> {
    filtered_by(append(), filter, history, snapshots, is_bottommost, is_bottom)
}

/// As [`filtered`], with this merge operator.
fn filtered_by(
    operator: OperatorCell,
    filter: &Arc<Noting>,
    history: &History,
    snapshots: &[SequenceNumber],
    is_bottommost: bool,
    is_bottom: impl FnMut(&[u8]) -> bool,
) -> Result<Vec<Entry>> {
    let readers = Readers::new(snapshots.iter().map(|&sequence| (sequence, 1000)), None, 1000);
    let newest = snapshots.iter().copied().max();
    let name = "default".to_owned();
    let mut filtering = Filtering::new(Arc::clone(filter) as _, name, 3, is_bottommost, newest);
    let merged = history.merge(&Rc::<Moves>::default());
    let stream = RetainStream::new(merged, readers, is_bottom, || false);
    let mut stream = stream.settling().folding(operator).filtered_by(Some(&mut filtering));
    let mut kept = Vec::new();
    stream.seek_to_first()?;
    while let Some(key) = stream.key() {
        let (user_key, trailer) = (key.user_key.to_vec(), key.trailer);
        kept.push(Entry { user_key, trailer, value: stream.value() });
        stream.next()?;
    }
    let calls = filter.calls.lock().expect("no test panics with the lock");
    let changes = calls.iter().any(|(_, _, decision)| *decision != Decision::Keep);
    assert_eq!(filtering.has_changed(), changes);
    Ok(kept)
}

fn by_length(key: &[u8], value: &[u8]) -> Decision {
    match (key.iter().map(|&byte| usize::from(byte)).sum::<usize>() + value.len()) % 6 {
        0 => Decision::Remove,
        1 => Decision::Replace(b"new".to_vec()),
        2 => Decision::RemoveAndSkipUntil([key, b"b"].concat()),
        3 => Decision::RemoveAndSkipUntil(key.to_vec()),
        _ => Decision::Keep,
    }
}

#[test]
fn snapshots_see_the_same_and_newer_readers_what_the_filter_decided() {
    let snapshots = prop::collection::vec(0..60_u64, 0..3);
    let below = prop_oneof![Just(0), 0..40_u64];
    let cases = (any_history(80, 4), snapshots, below);
    check(2000, &cases, |(history, snapshots, below)| {
        let (deeper, merged): (Vec<_>, Vec<_>) =
            history.sorted().into_iter().partition(|entry| entry.trailer.sequence() <= below);
        let is_bottom = |key: &[u8]| !deeper.iter().any(|entry| entry.user_key == key);
        let sources = merged.iter().map(|entry| (entry.value.len() % 2, entry.clone()));
        let inputs = History::new(sources.collect(), Vec::new());
        let filter = Noting::new(by_length);
        let kept = filtered(&filter, &inputs, &snapshots, deeper.is_empty(), is_bottom).unwrap();
        let at = |entries: &[Entry], reader| {
            read(&[deeper.clone(), entries.to_vec()].concat(), &[], reader)
        };
        for &reader in &snapshots {
            prop_assert_eq!(at(&merged, reader), at(&kept, reader), "reader at {}", reader);
        }

        let newest_snapshot = snapshots.iter().copied().max().unwrap_or(0);
        let mut newest = BTreeMap::new();
        for entry in &merged {
            let sequence = newest.entry(entry.user_key.clone()).or_insert(0);
            *sequence = entry.trailer.sequence().max(*sequence);
        }
        let mut want = at(&merged, SequenceNumber::MAX);
        let calls = filter.calls.lock().unwrap();
        prop_assert!(calls.is_sorted_by(|a, b| a.0 < b.0), "each key once, ascending");
        for (key, value, decision) in calls.iter() {
            prop_assert_eq!(want.get(key).map(|it| &**it), Some(&**value), "shown {:?}", key);
            prop_assert!(newest[key] > newest_snapshot, "a snapshot sees it");
            match decision {
                Decision::Keep => {}
                Decision::Replace(new) => drop(want.insert(key.clone(), new.clone().into())),
                Decision::Remove => drop(want.remove(key)),
                Decision::RemoveAndSkipUntil(until) => {
                    want.remove(key);
                    let is_skipped = |other: &Vec<u8>| {
                        key < other
                            && other < until
                            && newest.get(other).is_some_and(|&newest| newest > newest_snapshot)
                    };
                    want.retain(|other, _| !is_skipped(other));
                }
            }
        }
        prop_assert_eq!(at(&kept, SequenceNumber::MAX), want);
        Ok(())
    });
}

/// A history of one source.
fn one_source(text: &str) -> History {
    History::new(entries(text).into_iter().map(|entry| (0, entry)).collect(), Vec::new())
}

#[test]
fn the_rules_one_by_one() {
    let remove: Decide = |key, _| if key < &b"x"[..] { Decision::Remove } else { Decision::Keep };
    let replace: Decide = |_, _| Decision::Replace(b"new".to_vec());
    let skip: Decide = |_, _| Decision::RemoveAndSkipUntil(b"c".to_vec());
    let panic: Decide = |_, _| panic!("a filter panics, as it should");
    type Case = (&'static str, Decide, &'static str, &'static [u64], bool, &'static str);
    let cases: [Case; 15] = [
        ("removed at the bottom", remove, "a@3 a@2 x@1", &[], true, "x@0"),
        ("a deeper level may hold it", remove, "a@3 a@2 x@1", &[], false, "a@3- x@1"),
        ("a snapshot sees it", remove, "a@3", &[4], true, "a@0"),
        ("a snapshot at the version", remove, "a@3", &[3], true, "a@0"),
        ("a snapshot sees the older one", remove, "a@5 a@3", &[4], true, "a@5- a@0"),
        ("two snapshots", remove, "a@5 a@3 a@1", &[2, 4], true, "a@5- a@3 a@0"),
        ("never a tombstone", panic, "a@3- b@2-", &[], false, "a@3- b@2-"),
        ("never operands alone", panic, "a@3+", &[], false, "a@3+"),
        ("folded operands", remove, "a@3+ a@2", &[], true, ""),
        ("folded operands over others", remove, "a@3+ a@2", &[], false, "a@3-"),
        ("a replaced value", replace, "a@3 a@2", &[], false, "a@3"),
        ("a replaced value at the bottom", replace, "a@3+", &[], true, "a@0"),
        ("skipped at the bottom", skip, "a@3 b@2+ ba@5- c@1", &[], true, ""),
        ("skipped elsewhere", skip, "a@3 b@2+ ba@5- c@1", &[], false, "a@3- b@2- ba@5- c@1-"),
        ("skipped beside a snapshot", skip, "a@5 b@2 ba@6 d@1", &[4], true, "a@5- b@0 ba@6- d@0"),
    ];
    for (name, decide, input, snapshots, bottom, want) in cases {
        let filter = Noting::new(decide);
        let kept = filtered(&filter, &one_source(input), snapshots, bottom, |_| bottom).unwrap();
        assert_eq!(text(&kept), want, "{name}");
        let replaced = kept.iter().filter(|entry| *entry.value == *b"new").count();
        assert_eq!(replaced, usize::from(name.starts_with("a replaced")), "{name}");
    }
}

/// Takes the newest operand. Merges no operands without their base.
#[derive(Debug)]
struct Newest;

impl MergeOperator for Newest {
    fn name(&self) -> &str {
        "newest"
    }

    fn merge(&self, _: &[u8], _: Option<&[u8]>, of: &[&[u8]]) -> Result<Vec<u8>, MergeError> {
        Ok(of.last().expect("at least one").to_vec())
    }
}

/// The value below kept operands is not the value of the key.
#[test]
fn no_value_below_kept_operands_is_shown() {
    let entry = |sequence, kind, value: &[u8]| Entry {
        user_key: "a".into(),
        trailer: Trailer::new(sequence, kind),
        value: value.to_vec().into(),
    };
    let expiring = [&2000_u64.to_le_bytes()[..], b"value"].concat();
    let entries = [entry(2, Kind::Merge, b"operand"), entry(1, Kind::PutWithExpiry, &expiring)];
    let history = History::new(entries.iter().map(|it| (0, it.clone())).collect(), Vec::new());
    let operator = OperatorCell::default();
    operator.set(&Arc::default(), &NamedOperator::new(Arc::new(Newest)));
    let filter = Noting::new(|_, _| Decision::Remove);
    let kept = filtered_by(operator, &filter, &history, &[], false, |_| false).unwrap();
    assert_eq!(filter.calls.lock().unwrap().len(), 0, "no call");
    assert_eq!(kept[0].trailer, entries[0].trailer);
    assert!(kept.len() > 1, "the operand stays");
}

/// Returns the kept entries of a put that expires at 2000, and of an expired one.
fn kept_expiring(decide: Decide) -> Vec<(Trailer, Vec<u8>)> {
    let entry = |key: &str, expiry_ms: u64| Entry {
        user_key: key.into(),
        trailer: Trailer::new(5, Kind::PutWithExpiry),
        value: [&expiry_ms.to_le_bytes()[..], b"value"].concat().into(),
    };
    let entries = [entry("a", 2000), entry("b", 900)].map(|entry| (0, entry));
    let filter = Noting::new(decide);
    let history = History::new(entries.to_vec(), Vec::new());
    let kept = filtered(&filter, &history, &[], false, |_| false).unwrap();
    let calls = filter.calls.lock().unwrap();
    let shown: Vec<_> = calls.iter().map(|(key, value, _)| (&**key, &**value)).collect();
    assert_eq!(shown, [(&b"a"[..], &b"value"[..])], "the value alone, unless it has expired");
    kept.into_iter().map(|entry| (entry.trailer, entry.value.to_vec())).collect()
}

#[test]
fn a_replaced_value_keeps_its_expiry() {
    let expired = (Trailer::new(5, Kind::Tombstone), Vec::new());
    let kept = kept_expiring(|_, _| Decision::Replace(b"new".to_vec()));
    let stored = [&2000_u64.to_le_bytes()[..], b"new"].concat();
    assert_eq!(kept, [(Trailer::new(5, Kind::PutWithExpiry), stored), expired.clone()]);
    assert_eq!(kept_expiring(|_, _| Decision::Remove), [expired.clone(), expired]);
}

#[test]
fn a_skip_at_the_bottom_seeks() {
    let input: Vec<_> = (0..500).map(|number| format!("{number:03}@1")).collect();
    let moves = Rc::<Moves>::default();
    let cursor = VecCursor::new(entries(&input.join(" ")), &moves);
    let filter = Noting::new(|_, _| Decision::RemoveAndSkipUntil(b"499".to_vec()));
    let name = "default".to_owned();
    let mut filtering = Filtering::new(filter, name, 3, true, None);
    let stream = RetainStream::new(cursor, Readers::new([], None, 0), |_: &[u8]| true, || false);
    let mut stream = stream.filtered_by(Some(&mut filtering));
    stream.seek_to_first().unwrap();
    assert_eq!(stream.key().map(|key| key.user_key.to_vec()), None);
    assert!(moves.count.get() < 10, "{} moves", moves.count.get());
}

#[test]
fn a_panic_and_a_long_value_fail_the_merge() {
    let long: Decide = |_, _| Decision::Replace(vec![0; sievedb_format::VALUE_BYTES_MAX + 1]);
    let panics: Decide = |_, _| panic!("a filter panics, as it should");
    for (decide, want) in [(long, "the new value is longer than 256 MiB"), (panics, "it panicked")]
    {
        match filtered(&Noting::new(decide), &one_source("a@3- b@2"), &[], true, |_| true) {
            Err(Error::CompactionFilterFailed { keyspace, filter, key, reason }) => {
                assert_eq!((&*keyspace, &*filter, &*key), ("default", "noting", &b"b"[..]));
                assert_eq!(reason, want);
            }
            other => panic!("{other:?}"),
        }
    }
}
