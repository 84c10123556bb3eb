//! A refresh that has much to read shows parts of it before its end.

use std::{
    io,
    path::Path,
    sync::{Arc, Mutex, OnceLock},
};

use sievedb::{
    Bytes, Db, KeyspaceOptions,
    fs::{Fs, ReadFile},
};
use sievedb_doubles::MemoryFs;
use sievedb_tests::{
    layer::{Layer, Layered},
    settings::{STORE_DIR, small_options},
};

use super::following;

/// Calls a function before each read of a log.
struct Watched {
    disk: Arc<MemoryFs>,
    look: Arc<dyn Fn() + Send + Sync>,
}

impl std::fmt::Debug for Watched {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Watched").finish_non_exhaustive()
    }
}

impl Layer for Watched {
    fn inner(&self) -> &dyn Fs {
        &*self.disk
    }

    fn open(&self, path: &Path) -> io::Result<Arc<dyn ReadFile>> {
        let file = self.disk.open(path)?;
        if path.extension().is_none_or(|extension| extension != "log") {
            return Ok(file);
        }
        Ok(Arc::new(WatchedFile { file, look: Arc::clone(&self.look) }))
    }
}

struct WatchedFile {
    file: Arc<dyn ReadFile>,
    look: Arc<dyn Fn() + Send + Sync>,
}

impl std::fmt::Debug for WatchedFile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("WatchedFile").finish_non_exhaustive()
    }
}

impl ReadFile for WatchedFile {
    fn len(&self) -> io::Result<u64> {
        self.file.len()
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        (self.look)();
        self.file.read_at(buf, offset)
    }

    fn map(&self) -> io::Result<Bytes> {
        self.file.map()
    }
}

fn number(value: Option<Bytes>) -> u32 {
    value.map_or(0, |value| std::str::from_utf8(&value[..8]).unwrap().parse().unwrap())
}

/// Returns the newest batch that a snapshot of the follower shows, in both keyspaces.
fn newest(follower: &Db) -> u32 {
    let (snapshot, other) = (follower.snapshot(), follower.open_keyspace("other").unwrap());
    let newest = number(snapshot.get("newest").unwrap());
    let of_other = snapshot.keyspace(&other).unwrap();
    assert_eq!(number(of_other.get("newest").unwrap()), newest, "half of a batch");
    assert_eq!(snapshot.iter().count(), newest as usize + usize::from(newest > 0), "not a prefix");
    newest
}

#[test]
fn long_refresh_shows_whole_batches_before_its_end() {
    const BATCHES: u32 = 4000;
    for memtable_bytes in [256 << 10, 4 << 20] {
        let disk = Arc::new(MemoryFs::new());
        let (segment, keyspace) =
            (256 << 10, KeyspaceOptions::new().memtable_bytes(memtable_bytes));
        let options = small_options(disk.clone()).keyspace(keyspace.clone());
        let writer = options.log_segment_bytes(segment).log_bytes_max(8 << 20);
        let writer = writer.open(STORE_DIR).unwrap();
        let other = writer.keyspace_with("other", &keyspace).unwrap();
        let follower = Arc::<OnceLock<Db>>::default();
        let seen = Arc::<Mutex<Vec<u32>>>::default();
        let look = {
            let (follower, seen) = (Arc::clone(&follower), Arc::clone(&seen));
            move || {
                let shown = follower.get().map(newest);
                seen.lock().unwrap().extend(shown);
            }
        };
        let watched = Layered(Watched { disk: disk.clone(), look: Arc::new(look) });
        let opened = following(Arc::new(watched)).keyspace(keyspace).open(STORE_DIR).unwrap();
        let follower = follower.get_or_init(|| opened);
        for number in 1..=BATCHES {
            let mut batch = writer.batch();
            batch.insert(&writer, format!("{number:08}"), vec![1; 100]).unwrap();
            batch.insert(&writer, "newest", format!("{number:08}")).unwrap();
            batch.insert(&other, "newest", format!("{number:08}")).unwrap();
            batch.commit(sievedb::Durability::OsBuffer).unwrap();
        }
        let kept = follower.snapshot();
        assert!(follower.refresh().unwrap());
        assert_eq!(newest(follower), BATCHES);
        assert_eq!(kept.iter().count(), 0, "a snapshot has changed");
        let mut seen = seen.lock().unwrap().clone();
        assert!(seen.is_sorted(), "{seen:?}");
        seen.dedup();
        assert!(seen.len() > 3 && seen[0] == 0 && seen[1] < BATCHES / 2, "{seen:?}");

        // What is in no table is in memory, and counted.
        let bytes = |db: &Db| db.stats().memory.memtable_bytes;
        let (of_writer, of_follower) = (bytes(&writer), bytes(follower));
        assert!(of_follower >= of_writer / 2, "{of_follower} and {of_writer}");
        assert!(of_follower <= of_writer * 2 + (64 << 10), "{of_follower} and {of_writer}");
        writer.flush().unwrap();
        assert!(follower.refresh().unwrap());
        assert!(bytes(follower) < 16 << 10, "{} bytes are left", bytes(follower));
        assert_eq!(newest(follower), BATCHES);
    }
}

/// The log has batches after an ingest that the follower has not shown.
#[test]
fn a_long_refresh_shows_no_batch_before_an_earlier_ingest() {
    const INGESTED: usize = 10;
    let disk = Arc::new(MemoryFs::new());
    let writer = small_options(disk.clone()).log_segment_bytes(256 << 10).log_bytes_max(8 << 20);
    let writer = writer.open(STORE_DIR).unwrap();
    let keyspace = KeyspaceOptions::new().memtable_bytes(4 << 20);
    let other = writer.keyspace_with("other", &keyspace).unwrap();
    let follower = Arc::<OnceLock<Db>>::default();
    let seen = Arc::<Mutex<Vec<(usize, bool)>>>::default();
    let look = {
        let (follower, seen) = (Arc::clone(&follower), Arc::clone(&seen));
        move || {
            let snapshot = follower.get().map(Db::snapshot);
            let shown = snapshot.map(|snapshot| {
                let other = follower.get().unwrap().open_keyspace("other").unwrap();
                let has_later = snapshot.keyspace(&other).unwrap().contains_key("later").unwrap();
                (snapshot.iter().count(), has_later)
            });
            seen.lock().unwrap().extend(shown);
        }
    };
    let watched = Layered(Watched { disk: disk.clone(), look: Arc::new(look) });
    let opened = following(Arc::new(watched)).open(STORE_DIR).unwrap();
    let follower = follower.get_or_init(|| opened);
    let write = |key: &str| {
        other.insert(key, "").unwrap();
        for number in 0..4000_u32 {
            other.insert(number.to_be_bytes(), vec![1; 100]).unwrap();
        }
    };
    write("before");
    writer.ingest((0..INGESTED).map(|number| (format!("{number:04}"), "value"))).unwrap();
    write("later");
    assert!(follower.refresh().unwrap());
    let seen = seen.lock().unwrap().clone();
    assert!(seen.len() > 3, "{seen:?}");
    assert!(seen.iter().all(|&(count, has_later)| !has_later || count == INGESTED), "{seen:?}");
    assert_eq!(follower.iter().count(), INGESTED);
}
