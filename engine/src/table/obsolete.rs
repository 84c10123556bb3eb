//! Obsolete files, until a worker unlinks them.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
    mem,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering::Relaxed},
    },
};

use crate::{
    file_name::FileName,
    fs::{Fs, existing},
    memory::MemoryAccount,
    sync::Mutex,
};

/// Files without readers. Filled by drops on any thread, emptied by a worker.
#[derive(Debug, Default)]
pub(crate) struct ObsoleteFiles {
    waiting: Mutex<Waiting>,
    /// Notifies the workers.
    memory: Arc<MemoryAccount>,
    retired: Mutex<Retired>,
    /// Bytes that tables and their blob files occupy, from an arbitrary start.
    occupied_bytes: AtomicI64,
}

/// Files to unlink, and files that must stay.
#[derive(Debug, Default)]
struct Waiting {
    /// Paths in the order of their unlinks: the newest table first, then other files by the number
    /// of their arrival.
    paths: BTreeMap<(Reverse<Option<u64>>, u64), PathBuf>,
    /// Files that have arrived.
    arrived: u64,
    /// Files whose unlink failed.
    failed: Vec<PathBuf>,
    /// Bytes of the files that were part of a version.
    bytes: BTreeMap<PathBuf, u64>,
    /// Ids of the files of each [`Hold`], ascending, by its number.
    holds: BTreeMap<u64, Vec<u64>>,
    next_hold: u64,
}

impl Waiting {
    fn push(&mut self, path: PathBuf) {
        self.paths.insert((Reverse(table_id(&path)), self.arrived), path);
        self.arrived += 1;
    }

    fn is_held(&self, path: &Path) -> bool {
        let id = FileName::of_path(path).and_then(FileName::id);
        id.is_some_and(|id| self.holds.values().any(|ids| ids.binary_search(&id).is_ok()))
    }
}

/// Keeps files from being unlinked until it is dropped.
#[derive(Debug)]
pub(crate) struct Hold {
    files: Arc<ObsoleteFiles>,
    number: u64,
}

impl Drop for Hold {
    fn drop(&mut self) {
        self.files.waiting.lock().holds.remove(&self.number);
        self.files.memory.ring();
    }
}

/// Ids of obsolete tables whose files may exist.
#[derive(Debug, Default)]
struct Retired {
    ids: BTreeSet<u64>,
    /// Tables whose unlink may not be durable.
    unlinked: BTreeSet<u64>,
    /// Log segments whose unlink may not be durable.
    unlinked_logs: BTreeSet<u64>,
    /// `true` if some are in no list of a live table. Their unlinks may become durable in any
    /// order, and some of them may hold entries that others had removed.
    is_unlisted: bool,
    /// The file that lists them, if one was required.
    list: Option<PathBuf>,
}

impl ObsoleteFiles {
    pub(super) fn new(memory: &Arc<MemoryAccount>) -> Self {
        Self { memory: Arc::clone(memory), ..Self::default() }
    }

    /// Adds a file that no manifest names.
    pub(crate) fn push(&self, path: PathBuf) {
        if let Some(id) = table_id(&path) {
            self.retire(id);
        }
        self.push_retired(path);
    }

    fn push_retired(&self, path: PathBuf) {
        self.waiting.lock().push(path);
        // An idle store has no other reason to notify its workers.
        self.memory.ring();
    }

    /// Adds a file of `bytes` bytes that was part of a version.
    pub(super) fn push_part_of_version(&self, path: PathBuf, bytes: u64) {
        self.waiting.lock().bytes.insert(path.clone(), bytes);
        self.push(path);
    }

    /// Counts the bytes of a new table, or of a blob file of one.
    pub(super) fn count_written(&self, bytes: u64) {
        self.occupied_bytes.fetch_add(bytes.cast_signed(), Relaxed);
    }

    /// Returns the bytes that tables and their blob files occupy, from an arbitrary start.
    pub(crate) fn occupied_bytes(&self) -> i64 {
        self.occupied_bytes.load(Relaxed)
    }

    /// Adds an incomplete file, or a table that lists no others.
    pub(crate) fn push_part(&self, path: PathBuf) {
        self.retire_listed(table_id(&path));
        self.push_retired(path);
    }

    /// Keeps the files with these ids, of any kind, until the hold is dropped. Has no effect on a
    /// file that was [taken](Self::take) before.
    pub(crate) fn hold(self: &Arc<Self>, mut ids: Vec<u64>) -> Hold {
        ids.sort_unstable();
        let mut waiting = self.waiting.lock();
        let number = waiting.next_hold;
        waiting.next_hold += 1;
        waiting.holds.insert(number, ids);
        Hold { files: Arc::clone(self), number }
    }

    pub(crate) fn extend(&self, paths: impl IntoIterator<Item = PathBuf>) {
        paths.into_iter().for_each(|path| self.push(path));
    }

    /// Records that no manifest names the table. Its file is added when its last reader ends.
    pub(crate) fn retire(&self, table: u64) {
        let mut retired = self.retired.lock();
        retired.is_unlisted |= retired.ids.insert(table);
    }

    /// As [`retire`](Self::retire), for tables that a durable table lists as replaced.
    pub(crate) fn retire_listed(&self, tables: impl IntoIterator<Item = u64>) {
        self.retired.lock().ids.extend(tables);
    }

    /// Returns `true` if a list of the retired tables is due before `paths` are unlinked.
    pub(crate) fn needs_list(&self, paths: &[PathBuf]) -> bool {
        let has_table = || paths.iter().any(|path| table_id(path).is_some());
        self.retired.lock().is_unlisted && has_table()
    }

    /// Records that the durable file `list` lists all tables that were `retired`. Returns the
    /// previous list, which is obsolete.
    pub(crate) fn set_list(&self, list: PathBuf, retired: &[u64]) -> Option<PathBuf> {
        debug_assert!(retired.is_sorted(), "they are searched");
        let mut now = self.retired.lock();
        now.is_unlisted = now.ids.iter().any(|id| retired.binary_search(id).is_err());
        now.list.replace(list)
    }

    /// Takes the list of retired tables if all of their unlinks are durable.
    pub(crate) fn take_unneeded_list(&self) -> Option<PathBuf> {
        let mut retired = self.retired.lock();
        if retired.ids.is_empty() { retired.list.take() } else { None }
    }

    /// Returns the ids of obsolete tables whose files may exist, ascending.
    pub(crate) fn retired(&self) -> Vec<u64> {
        self.retired.lock().ids.iter().copied().collect()
    }

    /// Returns the ids of retired tables and log segments whose unlink is durable after the next
    /// sync of the directory.
    pub(crate) fn unlinked(&self) -> Vec<u64> {
        let retired = self.retired.lock();
        retired.unlinked.union(&retired.unlinked_logs).copied().collect()
    }

    /// Removes tables and log segments whose unlink is durable.
    pub(crate) fn forget(&self, unlinked: &[u64]) {
        let mut retired = self.retired.lock();
        for id in unlinked {
            retired.ids.remove(id);
            retired.unlinked.remove(id);
            retired.unlinked_logs.remove(id);
        }
    }

    /// Returns `true` if a crash may restore a log segment.
    pub(super) fn has_unlinked_logs(&self) -> bool {
        !self.retired.lock().unlinked_logs.is_empty()
    }

    /// Returns `true` if no file can be unlinked.
    pub(crate) fn is_empty(&self) -> bool {
        let waiting = self.waiting.lock();
        waiting.paths.values().all(|path| waiting.is_held(path))
    }

    /// Takes at most `max` of the files that can be unlinked: the newest tables, or else the files
    /// that have waited longest.
    pub(crate) fn take(&self, max: usize) -> Vec<PathBuf> {
        let mut waiting = self.waiting.lock();
        let free = waiting.paths.iter().filter(|(_, path)| !waiting.is_held(path));
        let free: Vec<_> = free.map(|(&key, _)| key).take(max).collect();
        free.into_iter().filter_map(|key| waiting.paths.remove(&key)).collect()
    }

    /// Takes the file to unlink first: the newest table, or else the file that has waited longest.
    pub(crate) fn take_first(&self) -> Option<PathBuf> {
        let mut waiting = self.waiting.lock();
        let mut first = waiting.paths.iter().filter(|(_, path)| !waiting.is_held(path));
        let key = *first.next()?.0;
        waiting.paths.remove(&key)
    }

    /// Unlinks files. A failure is harmless: [`retry`](Self::retry) and the next open retry.
    pub(crate) fn unlink(&self, fs: &dyn Fs, mut paths: Vec<PathBuf>) {
        // Without a list, the last table of a group is unlinked first: it vouches for the others.
        paths.sort_unstable_by_key(|path| Reverse(table_id(path)));
        for path in paths {
            if existing(fs.unlink(&path)).is_err() {
                // A name without an id may have a new file by then.
                let id = FileName::of_path(&path).and_then(FileName::id);
                self.waiting.lock().failed.extend(id.map(|_| path));
                continue;
            }
            let bytes = self.waiting.lock().bytes.remove(&path);
            self.occupied_bytes.fetch_sub(bytes.unwrap_or(0).cast_signed(), Relaxed);
            let mut retired = self.retired.lock();
            match FileName::of_path(&path) {
                Some(FileName::Table(id)) => retired.unlinked.extend([id]),
                Some(FileName::Log(id)) => retired.unlinked_logs.extend([id]),
                _ => {}
            }
        }
    }

    /// Adds the files again whose unlink failed. Some file systems refuse unlinks while they are
    /// full.
    pub(crate) fn retry(&self) {
        let mut waiting = self.waiting.lock();
        let failed = mem::take(&mut waiting.failed);
        if failed.is_empty() {
            return;
        }
        failed.into_iter().for_each(|path| waiting.push(path));
        drop(waiting);
        self.memory.ring();
    }
}

fn table_id(path: &Path) -> Option<u64> {
    match FileName::of_path(path) {
        Some(FileName::Table(id)) => Some(id),
        _ => None,
    }
}

#[cfg(all(test, not(feature = "shuttle")))]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::{
        clock::{Clock as _, SystemClock},
        fs::{Call, Fault, FaultFs, MemoryFs, Times},
        tests::ENOSPC,
    };

    #[test]
    fn n15_a_table_is_retired_until_its_unlink_is_durable() {
        let (fs, files) = (MemoryFs::new(), ObsoleteFiles::default());
        let path = PathBuf::from("000007.sst");
        fs.create(&path).unwrap();
        files.push(path.clone());
        let paths = files.take(usize::MAX);
        assert!(files.needs_list(&paths));
        files.unlink(&fs, paths);
        assert!(!fs.exists(&path).unwrap());
        assert_eq!(files.retired(), [7], "a crash may bring it back");
        let unlinked = files.unlinked();
        // This file was unlinked after the sync began.
        files.push("000009.sst".into());
        files.forget(&unlinked);
        assert_eq!(files.retired(), [9]);
    }

    #[test]
    fn a_failed_unlink_is_retried() {
        let disk = Arc::new(MemoryFs::new());
        let (fs, files) = (FaultFs::new(Arc::clone(&disk) as _), ObsoleteFiles::default());
        let [path, other] = ["000007.sst", "CURRENT.tmp"].map(PathBuf::from);
        fs.create(&path).unwrap();
        fs.create(&other).unwrap();
        files.count_written(100);
        files.push_part_of_version(path.clone(), 100);
        files.push(other.clone());
        fs.inject(Fault::new(ENOSPC, Times::ForGood).calls(&[Call::Unlink]));
        files.unlink(&fs, files.take(usize::MAX));
        fs.heal();
        assert!(files.is_empty(), "a worker would try again at once");
        assert_eq!((files.retired(), files.unlinked()), (vec![7], vec![]));
        assert_eq!(files.occupied_bytes(), 100);
        files.retry();
        files.unlink(&fs, files.take(usize::MAX));
        assert!(!disk.exists(&path).unwrap());
        assert!(disk.exists(&other).unwrap(), "its name may be in use again");
        assert_eq!((files.unlinked(), files.occupied_bytes()), (vec![7], 0));
        files.retry();
        assert!(files.is_empty());
    }

    #[test]
    fn held_files_stay_until_the_last_hold_ends() {
        let files = Arc::new(ObsoleteFiles::default());
        let first = files.hold(vec![9, 7]);
        let second = files.hold(vec![7]);
        files.extend(["000007.sst".into(), "000008.log".into(), "000009.filter".into()]);
        assert_eq!(files.take(usize::MAX), [PathBuf::from("000008.log")]);
        assert!(files.is_empty(), "a worker would try again at once");
        drop(first);
        assert_eq!(files.take(usize::MAX), [PathBuf::from("000009.filter")]);
        drop(second);
        assert!(!files.is_empty());
        files.extend(["000001.log".into(), "000011.sst".into()]);
        let first = || files.take_first().expect("a file");
        assert_eq!([first(), first()].map(|path| table_id(&path)), [Some(11), Some(7)]);
        assert_eq!(files.take(usize::MAX), [PathBuf::from("000001.log")]);
        assert_eq!(files.take_first(), None);
        files.extend(["000012.sst".into(), "000013.log".into(), "000014.sst".into()]);
        assert_eq!(files.take(1), [PathBuf::from("000014.sst")], "the newest table");
        assert_eq!(files.take(9), ["000012.sst", "000013.log"].map(PathBuf::from));
    }

    /// Readers push under the same lock.
    #[test]
    fn choosing_a_file_does_not_walk_all_waiting_files() {
        const TABLES: u64 = 20_000;
        let files = ObsoleteFiles::default();
        files.extend((0..TABLES).map(|id| FileName::Table(id).path(Path::new("db"))));
        let clock = SystemClock::new();
        for id in (0..TABLES).rev() {
            assert_eq!(files.take_first().as_deref().and_then(table_id), Some(id));
        }
        let took = clock.now();
        assert!(took < Duration::from_secs(10), "{took:?}");
    }

    #[test]
    fn n15_a_list_is_needed_for_tables_that_no_table_lists() {
        let files = ObsoleteFiles::default();
        files.retire_listed([3, 4]);
        files.push("000003.sst".into());
        files.push_part("000005.sst".into());
        let paths = files.take(usize::MAX);
        assert!(!files.needs_list(&paths));
        files.retire(6);
        assert!(files.needs_list(&paths));
        assert!(!files.needs_list(&["000006.log".into()]), "no table goes");
        assert_eq!(files.set_list("000007.sst".into(), &[3, 4, 5]), None);
        assert!(files.needs_list(&paths), "6 was retired meanwhile");
        let before = files.set_list("000008.sst".into(), &[3, 4, 5, 6]);
        assert_eq!(before, Some("000007.sst".into()));
        assert!(!files.needs_list(&paths));
        assert_eq!(files.take_unneeded_list(), None, "a crash may bring them back");
        files.forget(&[3, 4, 5, 6]);
        assert_eq!(files.take_unneeded_list(), Some("000008.sst".into()));
    }
}
