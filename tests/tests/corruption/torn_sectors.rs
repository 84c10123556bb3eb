//! Power cuts that keep some sectors of an unsynced log tail, or part of a sector.

use std::sync::Arc;

use sievedb::{Db, Durability, Error, Options};
use sievedb_doubles::MemoryFs;

use super::{
    log_record::records_end,
    repair::options,
    sample::{Files, STORE_DIR, disk, files},
};

const SECTOR_BYTES: usize = 512;
/// Number of synced writes.
const DURABLE: usize = 4;
const WRITES: usize = 10;

/// A log before and after unsynced writes. Each write is one record.
struct Log {
    /// Files of the store after all writes.
    files: Files,
    name: String,
    /// Bytes after the last sync, padded with zeros to the length of `written`.
    synced: Vec<u8>,
    written: Vec<u8>,
    /// Ends of the records of the writes.
    ends: Vec<usize>,
}

fn insert(db: &Db, write: usize, durability: Durability) {
    let value = vec![write as u8 + 1; 90 + 50 * write];
    db.insert([write as u8], value).unwrap();
    db.persist(durability).unwrap();
}

impl Log {
    fn new() -> Self {
        let fs = Arc::new(MemoryFs::with_seed(7));
        let db = options(&fs).open(STORE_DIR).unwrap();
        let log = || {
            let mut logs = files(&fs).into_iter().filter(|(name, _)| name.ends_with(".log"));
            logs.next().map(|(name, bytes)| (name, bytes.to_vec())).unwrap()
        };
        let mut ends = Vec::new();
        for write in 0..DURABLE {
            insert(&db, write, Durability::Disk);
            ends.push(records_end(&log().1));
        }
        let (name, mut synced) = log();
        for write in DURABLE..WRITES {
            insert(&db, write, Durability::OsBuffer);
            ends.push(records_end(&log().1));
        }
        let (_, written) = log();
        let files = files(&fs);
        synced.resize(written.len(), 0);
        Self { files, name, synced, written, ends }
    }

    /// Returns the first unsynced byte.
    fn synced_end(&self) -> usize {
        self.ends[DURABLE - 1]
    }

    fn end(&self) -> usize {
        self.ends[WRITES - 1]
    }

    fn disk(&self, log: &[u8]) -> Arc<MemoryFs> {
        let mut files = self.files.clone();
        files.insert(self.name.clone(), log.to_vec().into());
        disk(&files)
    }

    /// Checks that the store with `log` has exactly the first `writes` writes, also after a reopen,
    /// and that a torn tail is reported after them.
    fn check_cut(&self, log: &[u8], writes: usize, case: &str) {
        let fs = self.disk(log);
        let end = self.ends[writes - 1];
        let report = Options::new().fs(fs.clone()).verify(STORE_DIR, |_| ()).unwrap();
        assert!(report.is_good(), "{case}: {report}");
        let told: Vec<_> = report.torn_tails.iter().map(|tail| tail.offset as usize).collect();
        let is_torn = log[end..].iter().any(|&byte| byte != 0);
        assert_eq!(told, if is_torn { vec![end] } else { vec![] }, "{case}: {report}");
        for opening in 0..2 {
            let db = options(&fs).open(STORE_DIR).unwrap();
            let is_present = |write: &usize| db.get([*write as u8]).unwrap().is_some();
            let present: Vec<_> = (0..WRITES).filter(is_present).collect();
            assert_eq!(present, (0..writes).collect::<Vec<_>>(), "{case}, opening {opening}");
        }
    }

    /// Checks a log in which only sectors that were being written may have changed.
    fn check(&self, log: &[u8], case: &str) {
        assert_eq!(log[..self.synced_end()], self.written[..self.synced_end()], "{case}");
        let is_whole = |end: &&usize| log[..**end] == self.written[..**end];
        self.check_cut(log, self.ends.iter().take_while(is_whole).count(), case);
    }
}

#[test]
fn formats_torn_tail_of_whole_sectors_is_truncated() {
    let log = Log::new();
    let sectors = log.synced_end() / SECTOR_BYTES..log.end().div_ceil(SECTOR_BYTES);
    assert!((3..8).contains(&sectors.len()), "{sectors:?}");
    for kept in 0..1_u32 << sectors.len() {
        let mut bytes = log.synced.clone();
        let is_kept = |(bit, _): &(usize, usize)| kept >> bit & 1 > 0;
        for (_, sector) in sectors.clone().enumerate().filter(is_kept) {
            let end = log.written.len().min((sector + 1) * SECTOR_BYTES);
            let place = sector * SECTOR_BYTES..end;
            bytes[place.clone()].copy_from_slice(&log.written[place]);
        }
        log.check(&bytes, &format!("sectors {kept:b} of {sectors:?}"));
    }
}

#[test]
fn formats_torn_tail_of_partial_sectors_is_truncated() {
    let log = Log::new();
    for cut in (log.synced_end()..=log.end()).step_by(3) {
        // The rest of the sector is old or invalid; later sectors are old or new.
        let rest = cut..log.end().min(cut.next_multiple_of(SECTOR_BYTES));
        for (garbage, follows_new) in [(false, false), (true, false), (false, true), (true, true)] {
            let mut bytes = log.synced.clone();
            bytes[..cut].copy_from_slice(&log.written[..cut]);
            if garbage {
                bytes[rest.clone()].fill(0xa5);
            }
            if follows_new {
                bytes[rest.end..].copy_from_slice(&log.written[rest.end..]);
            }
            let case = format!("cut at {cut}, garbage {garbage}, the rest is new {follows_new}");
            log.check(&bytes, &case);
        }
    }
}

/// Violates the assumption: the cut changes a synced sector.
#[test]
fn formats_damaged_sector_below_a_synced_mark_is_corruption() {
    let log = Log::new();
    let last = log.ends[DURABLE - 2]..log.synced_end();
    for at in last.clone().step_by(7) {
        // Synced marks of unsynced records cover it.
        let mut bytes = log.written.clone();
        bytes[at] ^= 1;
        let error = options(&log.disk(&bytes)).open(STORE_DIR).unwrap_err();
        let Error::Corrupt { path, offset, .. } = &error else { panic!("{at}: {error:?}") };
        assert!(path.ends_with(&log.name) && *offset == last.start as u64, "{at}: {error:?}");
        // Without a later record, no mark covers the last synced record.
        let mut bytes = log.synced.clone();
        bytes[at] ^= 1;
        log.check_cut(&bytes, DURABLE - 1, &format!("byte {at}"));
    }
}
