//! A memtable against two oracles: `BTreeMap` and `crossbeam_skiplist::SkipMap`.

use std::{cmp::Reverse, collections::BTreeMap, ops::Bound, sync::Arc};

use bytes::Bytes;
use crossbeam_skiplist::SkipMap;
use proptest::prelude::*;
use sievedb_filter::key_hash;
use sievedb_format::{InternalKey, Kind, SequenceNumber, Trailer};
use sievedb_memtable::{Memtable, MemtableCursor};

const SEED: u64 = 3;

type ModelKey = (Vec<u8>, Reverse<Trailer>);

#[derive(Debug, Default)]
struct Model(BTreeMap<ModelKey, Bytes>);

impl Model {
    fn get(&self, user_key: &[u8], sequence: SequenceNumber) -> Option<(Trailer, Bytes)> {
        let from = (user_key.to_vec(), Reverse(Trailer::seek(sequence)));
        let ((found, Reverse(trailer)), value) = self.0.range(from..).next()?;
        (found == user_key).then(|| (*trailer, value.clone()))
    }

    /// Returns the versions of a key at `sequence` or below, newest first.
    fn versions(&self, user_key: &[u8], sequence: SequenceNumber) -> Vec<(Trailer, Bytes)> {
        let from = (user_key.to_vec(), Reverse(Trailer::seek(sequence)));
        let of_key = self.0.range(from..).take_while(|((key, _), _)| key == user_key);
        of_key.map(|((_, Reverse(trailer)), value)| (*trailer, value.clone())).collect()
    }

    fn first(&self, from: Bound<ModelKey>) -> Option<ModelKey> {
        self.0.range((from, Bound::Unbounded)).next().map(|(key, _)| key.clone())
    }

    fn last(&self, to: Bound<ModelKey>) -> Option<ModelKey> {
        self.0.range((Bound::Unbounded, to)).next_back().map(|(key, _)| key.clone())
    }
}

#[derive(Debug, Clone)]
enum Move {
    First,
    Last,
    Seek(Vec<u8>, SequenceNumber),
    SeekBefore(Vec<u8>, SequenceNumber),
    Next(usize),
    Prev(usize),
}

/// Few different keys, so that they have many versions. Some are prefixes of others.
fn user_key() -> impl Strategy<Value = Vec<u8>> {
    proptest::collection::vec(prop_oneof![Just(0), Just(b'a'), Just(0xff)], 0..4)
}

fn moves() -> impl Strategy<Value = Vec<Move>> {
    let step = 1_usize..100;
    let one = prop_oneof![
        Just(Move::First),
        Just(Move::Last),
        (user_key(), 0_u64..220).prop_map(|(key, at)| Move::Seek(key, at)),
        (user_key(), 0_u64..220).prop_map(|(key, at)| Move::SeekBefore(key, at)),
        step.clone().prop_map(Move::Next),
        step.prop_map(Move::Prev),
    ];
    proptest::collection::vec(one, 1..30)
}

/// Checks that the cursor and the model are at the same entry, or both unpositioned.
fn check(
    cursor: &MemtableCursor,
    at: Option<&ModelKey>,
    model: &Model,
) -> Result<(), TestCaseError> {
    let want = at.map(|(user_key, Reverse(trailer))| InternalKey::new(user_key, *trailer));
    prop_assert_eq!(cursor.key(), want);
    if let Some(key) = at {
        prop_assert_eq!(&cursor.value(), &model.0[key]);
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn lookups_and_scans_agree_with_the_oracles(
        writes in proptest::collection::vec((user_key(), any::<bool>()), 0..200),
        gets in proptest::collection::vec((user_key(), 0_u64..220), 50),
        moves in moves(),
    ) {
        let memtable = Arc::new(Memtable::new(1 << 12));
        let mut model = Model::default();
        let skip_map = SkipMap::new();
        for ((user_key, put), sequence) in writes.into_iter().zip(1..) {
            let trailer = Trailer::new(sequence, if put { Kind::Put } else { Kind::Tombstone });
            let value = if put { Bytes::from(format!("value {sequence}")) } else { Bytes::new() };
            memtable.insert(key_hash(&user_key, SEED), &user_key, trailer, &value);
            skip_map.insert((user_key.clone(), Reverse(trailer)), value.clone());
            model.0.insert((user_key, Reverse(trailer)), value);
        }
        prop_assert_eq!(memtable.entries(), model.0.len());
        prop_assert_eq!(memtable.is_empty(), model.0.is_empty());

        let mut cursor = Arc::clone(&memtable).cursor();
        cursor.seek_to_first();
        for entry in skip_map.iter() {
            check(&cursor, Some(entry.key()), &model)?;
            prop_assert_eq!(&cursor.value(), entry.value());
            cursor.next();
        }
        check(&cursor, None, &model)?;
        cursor.seek_to_last();
        for entry in skip_map.iter().rev() {
            check(&cursor, Some(entry.key()), &model)?;
            cursor.prev();
        }
        check(&cursor, None, &model)?;

        for (user_key, sequence) in gets {
            let want = model.get(&user_key, sequence);
            if want.is_some() {
                prop_assert!(memtable.may_contain_hash(key_hash(&user_key, SEED)));
            }
            prop_assert_eq!(memtable.get(&user_key, sequence), want);
            let from = (user_key.clone(), Reverse(Trailer::seek(sequence)));
            let found = skip_map.lower_bound(Bound::Included(&from));
            let found = found.filter(|entry| entry.key().0 == user_key);
            let found = found.map(|entry| (entry.key().1.0, entry.value().clone()));
            prop_assert_eq!(memtable.get(&user_key, sequence), found);

            let (mut older, mut target) = (Vec::new(), Trailer::seek(sequence));
            let take = |trailer, value: &[u8]| (trailer, Bytes::copy_from_slice(value));
            while let Some(version) = memtable.get_with(InternalKey::new(&user_key, target), take) {
                target = version.0.older();
                older.push(version);
            }
            prop_assert_eq!(older, model.versions(&user_key, sequence));
        }

        let mut cursor = Arc::clone(&memtable).cursor();
        let mut at: Option<ModelKey> = None;
        check(&cursor, None, &model)?;
        for step in moves {
            let model_key = |user_key: Vec<u8>, at| (user_key, Reverse(Trailer::seek(at)));
            match step {
                Move::First => {
                    cursor.seek_to_first();
                    at = model.first(Bound::Unbounded);
                }
                Move::Last => {
                    cursor.seek_to_last();
                    at = model.last(Bound::Unbounded);
                }
                Move::Seek(key, sequence) => {
                    cursor.seek(InternalKey::seek(&key, sequence));
                    at = model.first(Bound::Included(model_key(key, sequence)));
                }
                Move::SeekBefore(key, sequence) => {
                    cursor.seek_before(InternalKey::seek(&key, sequence));
                    at = model.last(Bound::Excluded(model_key(key, sequence)));
                }
                Move::Next(steps) => for _ in 0..steps {
                    let Some(from) = at else { break };
                    cursor.next();
                    at = model.first(Bound::Excluded(from.clone()));
                    let repeats = at.as_ref().is_some_and(|(key, _)| *key == from.0);
                    prop_assert_eq!(cursor.is_older_version(), repeats);
                    check(&cursor, at.as_ref(), &model)?;
                },
                Move::Prev(steps) => for _ in 0..steps {
                    let Some(from) = at else { break };
                    cursor.prev();
                    at = model.last(Bound::Excluded(from));
                    check(&cursor, at.as_ref(), &model)?;
                },
            }
            check(&cursor, at.as_ref(), &model)?;
        }
    }
}
