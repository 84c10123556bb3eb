//! Counters with an index of their counts: the most frequent words without a scan of all words.
//!
//! `cargo run -p sievedb-typed --example indexed_counters`

#![expect(clippy::print_stdout, reason = "an example shows what it found")]

use std::thread;

use sievedb_typed::{Index, IndexChanges, Indexed, Result, Schema, TypedKeyspace, sievedb::Db};

/// Words and their counts, indexed by count.
struct WordCounts {
    words: Indexed<String, u64>,
    by_count: Index<u64, String, u64>,
}

impl WordCounts {
    fn open(db: &Db) -> Result<Self> {
        let words = TypedKeyspace::open(db, "words", Schema::new("word count", 1))?;
        let mut words = Indexed::new(db, words)?;
        let by_count = words.index("words by count", 1, |_word, count| [*count])?;
        Ok(Self { words, by_count })
    }

    /// Counts `word`. Count and index change in one atomic step.
    fn add(&self, word: &str) -> Result<()> {
        self.words.update_fetch(word, |count| Some(count.unwrap_or(0) + 1))?;
        Ok(())
    }

    /// Returns the `number` most frequent words.
    fn top(&self, number: usize) -> Result<Vec<(String, u64)>> {
        let found = self.by_count.keys().rev().take(number);
        found.map(|entry| entry.map(|(count, word)| (word, count))).collect()
    }
}

fn main() -> std::result::Result<(), Box<dyn std::error::Error>> {
    let dir = tempfile::tempdir()?;
    let db = Db::open(dir.path())?;
    let counts = WordCounts::open(&db)?;

    // Two threads count the same words.
    thread::scope(|scope| {
        let threads: Vec<_> = (0..2)
            .map(|_| {
                scope.spawn(|| -> Result<()> {
                    "to be or not to be that is the question to"
                        .split(' ')
                        .try_for_each(|word| counts.add(word))
                })
            })
            .collect();
        threads.into_iter().try_for_each(|thread| thread.join().expect("no panic"))
    })?;

    let top = counts.top(3)?;
    println!("{top:?}");
    assert_eq!(top[..2], [("to".to_owned(), 6), ("be".to_owned(), 4)]);

    // All words that were counted twice, with their counts.
    let twice: Vec<_> = counts.by_count.get(2).collect::<Result<_>>()?;
    assert_eq!(twice.len(), 6);
    assert!(twice.iter().all(|(_, count)| *count == 2));

    // A range of counts, descending, at one point in time.
    let snapshot = db.snapshot();
    counts.words.remove("to")?;
    let then = counts.by_count.at(&snapshot)?;
    let frequent: Vec<_> = then.range(3..).rev().collect::<Result<_>>()?;
    assert_eq!(frequent[0], (6, "to".to_owned(), 6));
    assert_eq!(frequent.len(), 2);
    assert_eq!(counts.by_count.range(3..).count(), 1);

    // The index has exactly the entries that the data has.
    assert_eq!(counts.words.rebuild()?, IndexChanges::default());
    Ok(())
}
