//! Lookups that also read older versions, because the newest visible one does not determine the
//! value.

use std::path::Path;

use bytes::Bytes;
use sievedb_format::{InternalKey, SequenceNumber, Trailer};
use sievedb_sstable::{BlockCounts, ValueRef};

use crate::{
    Error, Result,
    compaction::tombstones::makes_due,
    fold::OPERANDS_FREE,
    read::lookup::Lookup,
    read::observer::Observer,
    read::view::{KeptView, PlacedMemtable},
    resolve::{Refused, Version, older::Resolved},
    stats::{LevelCounters, ThreadCounters},
    table::LiveTable,
};

/// A memtable or a table that may have versions of the key.
#[derive(Debug, Clone, Copy)]
enum Source<'v> {
    Memtable(&'v PlacedMemtable),
    Table(&'v LiveTable, &'v LevelCounters),
}

impl Source<'_> {
    /// Records that a read applied `operands` operands from here, of a key with many.
    fn note_operands(&self, operands: u64) {
        match self {
            Self::Memtable(placed) => placed.note_operands(operands),
            Self::Table(live, _) => {
                if live.add_skipped(operands, makes_due) {
                    live.memory().note_long_merges();
                }
            }
        }
    }

    /// Returns the file for error messages.
    fn path(&self) -> &Path {
        match self {
            Self::Memtable(_) => Path::new("memtable"),
            Self::Table(live, _) => &live.path,
        }
    }
}

impl Lookup<'_> {
    /// Returns the result of `observer` for the value of the key from its versions, newest first,
    /// as many as needed.
    ///
    /// Restarts with the newest version: only keys with merge operands need this. An observer that
    /// does not need the value gets an empty one. If it does not need the expiry either, only one
    /// operand is read.
    ///
    /// # Errors
    ///
    /// Errors of reading; [`Error::MergeFailed`]; [`Error::Corrupt`] with
    /// [`Unsupported`](sievedb_format::Corruption::Unsupported) if this release does not support
    /// the value.
    #[cold]
    pub(crate) fn find_older<V>(
        self,
        view: &KeptView,
        counters: &ThreadCounters,
        observer: &mut impl Observer<V>,
    ) -> Result<Option<V>> {
        let needs_all = observer.needs_value() || observer.needs_expiry();
        let operands_max = if needs_all { usize::MAX } else { 1 };
        let (resolved, sources) = self.read_older(view, counters, operands_max)?;
        observer.expires(resolved.expiry_ms());
        if !observer.needs_value() {
            return Ok(resolved.has_value().then(|| observer.value_in_memtable(&[])));
        }
        let has_many = resolved.operands().len() > OPERANDS_FREE;
        let refuse = |refused: Refused| {
            let newest = sources.first();
            let path = newest.map_or(Path::new("memtable"), |(source, _)| source.path());
            Error::corrupt(path, 0, refused.into())
        };
        let fold = |base: Option<&[u8]>, operands: &[&[u8]]| match view.operator.get() {
            Some(folder) => folder.fold(self.key, base, operands),
            None => Err(refuse(Refused::OPERAND)),
        };
        let read_blob = |stored: &[u8]| match sources.last() {
            Some((Source::Table(live, _), _)) => live.blob(stored)?.read(),
            _ => Err(refuse(Refused::BLOB)),
        };
        let value = resolved.into_value(read_blob, fold)?;
        if has_many {
            sources.iter().for_each(|(source, operands)| source.note_operands(*operands));
        }
        Ok(value.map(|value| observer.value_in_memtable(&value)))
    }

    /// Returns the operands of the key with their sequence numbers, newest first.
    ///
    /// # Errors
    ///
    /// Errors of reading.
    pub(crate) fn operands(
        self,
        view: &KeptView,
        counters: &ThreadCounters,
    ) -> Result<Vec<(SequenceNumber, Bytes)>> {
        let (resolved, _) = self.read_older(view, counters, usize::MAX)?;
        Ok(resolved.operands().to_vec())
    }

    /// Returns the stored parts of the key's value, and the sources with the number of versions
    /// read in each, newest first.
    fn read_older<'v>(
        self,
        view: &'v KeptView,
        counters: &'v ThreadCounters,
        operands_max: usize,
    ) -> Result<(Resolved, Vec<(Source<'v>, u64)>)> {
        let memtables =
            view.placed_memtables_at(self.at.sequence).map(|placed| Source::Memtable(placed));
        let tables = view.version.runs().iter().filter_map(|run| {
            Some(Source::Table(run.find(self.key)?, &counters.levels[usize::from(run.level)]))
        });
        let mut sources =
            memtables.chain(tables).filter(|source| self.may_be_in(source)).peekable();
        let (mut read, mut is_new) = (Vec::new(), true);
        let next = |target| -> Result<_> {
            while let Some(&source) = sources.peek() {
                if let Some((trailer, stored)) = self.version_in(source, target)? {
                    if is_new {
                        read.push((source, 0));
                        is_new = false;
                    }
                    read.iter_mut().next_back().expect("the source is in it").1 += 1;
                    let version = Version::decode(trailer, || &stored)
                        .map_err(|refused| Error::corrupt(source.path(), 0, refused.into()))?;
                    return Ok(Some((trailer, version, stored)));
                }
                sources.next();
                is_new = true;
            }
            Ok(None)
        };
        let cover = view.newest_cover(self.key, self.at.sequence, 0);
        let at = self.at.with_clock(|| self.clock.now_ms());
        let resolved = Resolved::read(at, cover, operands_max, next)?;
        Ok((resolved, read))
    }

    fn may_be_in(&self, source: &Source<'_>) -> bool {
        match source {
            Source::Memtable(placed) => placed.memtable.may_contain_hash(self.hash),
            Source::Table(live, _) => live.filters().point.may_contain_hash(self.hash),
        }
    }

    /// Returns the newest version of the key in `source` at or after `target`.
    fn version_in(&self, source: Source<'_>, target: Trailer) -> Result<Option<(Trailer, Bytes)>> {
        let target = InternalKey::new(self.key, target);
        match source {
            Source::Memtable(placed) => Ok(placed
                .memtable
                .get_with(target, |trailer, value| (trailer, Bytes::copy_from_slice(value)))),
            Source::Table(live, counters) => {
                let mut blocks = BlockCounts::default();
                let take = |trailer, value: ValueRef<'_>| (trailer, value.to_bytes());
                let found = live.table.get_with(target, self.cache_use, &mut blocks, take);
                counters.add_blocks(blocks);
                found.map_err(|error| live.error(error))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use sievedb_filter::key_hash;
    use sievedb_format::{Corruption, Kind, SequenceNumber};
    use sievedb_sstable::CacheUse;

    use super::*;
    use crate::{
        Append, Db, KeyspaceOptions, Options, fs::MemoryFs, read::observer::NoObserver,
        resolve::ReadPoint,
    };

    fn open() -> Db {
        let append = Arc::new(Append::with_separator(","));
        let keyspace = KeyspaceOptions::new().table_bytes(4 << 10).merge_operator(append);
        let options = Options::new().fs(Arc::new(MemoryFs::with_seed(1))).worker_threads(0);
        options.keyspace(keyspace).open("db").expect("a new store")
    }

    fn lookup<'k>(db: &'k Db, key: &'k [u8], sequence: SequenceNumber) -> Lookup<'k> {
        let hash = key_hash(key, db.store().hash_seed);
        let (at, clock) = (ReadPoint::new(sequence), db.store().versions.clock());
        Lookup { key, hash, at, clock, cache_use: CacheUse::Fill }
    }

    fn find_older(db: &Db, key: &[u8], sequence: SequenceNumber) -> Option<Bytes> {
        let counters = ThreadCounters::aside();
        let found = lookup(db, key, sequence).find_older(
            &db.default_keyspace().tree().view(),
            &counters,
            &mut NoObserver,
        );
        found.expect("the versions can be read")
    }

    #[test]
    fn older_versions_give_the_value_of_the_newest() {
        let db = open();
        let counters = ThreadCounters::aside();
        let (mut snapshots, mut seen, mut compared) = (Vec::new(), 0, 0);
        for round in 0_u32..40 {
            for key in 0_u32..6 {
                let mixed = (round * 7 + key * 13) % 5;
                match mixed {
                    0 => db.remove(key.to_be_bytes()).unwrap(),
                    1 | 2 => db.insert(key.to_be_bytes(), format!("{round} {key}")).unwrap(),
                    _ => {}
                }
            }
            snapshots.extend((round % 3 == 0).then(|| db.snapshot()));
            match round % 10 {
                3 | 6 => db.flush().unwrap(),
                9 => db.compact().unwrap(),
                _ => {}
            }
            let view = db.default_keyspace().tree().view();
            for sequence in 0..=db.store().writer.visible() {
                for key in (0_u32..7).map(u32::to_be_bytes) {
                    let lookup = lookup(&db, &key, sequence);
                    let want = lookup.find(&view, &counters, &mut NoObserver).unwrap();
                    assert_eq!(find_older(&db, &key, sequence), want, "{key:?} at {sequence}");
                    seen += u32::from(want.is_some());
                    compared += 1;
                }
            }
        }
        assert!(seen > compared / 10 && seen < compared, "{seen} of {compared}");
    }

    /// A store whose table has a value of `counter` and a tombstone of `removed`; sequence numbers
    /// up to 9 are visible.
    fn with_table() -> Db {
        let db = open();
        db.insert("counter", "base").unwrap();
        db.insert("removed", "gone").unwrap();
        let snapshot = db.snapshot();
        db.remove("removed").unwrap();
        db.flush().unwrap();
        drop(snapshot);
        for _ in 0..5 {
            db.insert("other", "").unwrap();
        }
        assert_eq!(db.store().writer.visible(), 9, "the first number created the keyspace");
        db
    }

    /// Adds a merge operand to the active memtable with this sequence number.
    fn add_operand(db: &Db, key: &[u8], sequence: SequenceNumber, operand: &str) {
        let view = db.default_keyspace().tree().view();
        if view.active.last_sequence() < sequence {
            view.active.place(sequence, sequence);
        }
        let hash = key_hash(key, db.store().hash_seed);
        let trailer = Trailer::new(sequence, Kind::Merge);
        view.active.memtable.insert(hash, key, trailer, operand.as_bytes());
    }

    #[test]
    fn operands_in_memtables_apply_to_the_value_in_a_table() {
        let db = with_table();
        for key in [&b"counter"[..], b"removed", b"new"] {
            add_operand(&db, key, 5, "five");
            add_operand(&db, key, 6, "six");
        }
        assert!(db.default_keyspace().tree().freeze());
        for key in [&b"counter"[..], b"removed", b"new"] {
            add_operand(&db, key, 8, "eight");
        }
        let cases: [(&str, SequenceNumber, Option<&str>); 11] = [
            ("counter", 9, Some("base,five,six,eight")),
            ("counter", 7, Some("base,five,six")),
            ("counter", 5, Some("base,five")),
            ("counter", 4, Some("base")),
            ("counter", 0, None),
            ("removed", 9, Some("five,six,eight")),
            ("removed", 4, None),
            ("removed", 3, Some("gone")),
            ("new", 9, Some("five,six,eight")),
            ("new", 4, None),
            ("absent", 9, None),
        ];
        for (key, sequence, want) in cases {
            let found = find_older(&db, key.as_bytes(), sequence);
            assert_eq!(found.as_deref(), want.map(str::as_bytes), "{key} at {sequence}");
        }
    }

    #[test]
    fn every_lookup_applies_operands() {
        let db = with_table();
        db.merge("counter", "nine").unwrap();
        let want = Some(Bytes::from("base,nine"));
        assert_eq!(db.get("counter").unwrap(), want);
        assert_eq!(db.get_with("counter", <[u8]>::len).unwrap(), Some(9));
        assert!(db.contains_key("counter").unwrap() && db.may_contain("counter"));
        assert_eq!(db.get_many(["other", "counter"]).unwrap(), [Some(Bytes::new()), want]);
        assert_eq!(db.contains_many(["absent", "counter"]).unwrap(), [false, true]);
        assert!(!db.insert_if_absent("counter", "").unwrap());
        let explanation = db.explain("counter").unwrap();
        assert_eq!((explanation.operands.len(), explanation.operands[0].operand_bytes), (1, 4));
        assert!(explanation.to_string().contains("a merge operand of 4 bytes"), "{explanation}");
    }

    #[test]
    fn lookups_without_a_merge_operator_refuse_an_operand() {
        let options = Options::new().fs(Arc::new(MemoryFs::with_seed(1))).worker_threads(0);
        let db = options.open("db").expect("a new store");
        db.insert("counter", "base").unwrap();
        add_operand(&db, b"counter", 9, "nine");
        let view = db.default_keyspace().tree().view();
        let found =
            lookup(&db, b"counter", 9).find(&view, &ThreadCounters::aside(), &mut NoObserver);
        let want = Corruption::Unsupported { what: "kind of an entry", value: Kind::Merge as u64 };
        match found.map(|value: Option<Bytes>| value) {
            Err(Error::Corrupt { source, path, .. }) => {
                assert_eq!((source, path), (want, "memtable".into()));
            }
            other => panic!("{other:?}"),
        }
    }
}
