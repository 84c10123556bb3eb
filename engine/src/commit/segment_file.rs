//! The open file of a log segment.

use std::{path::Path, sync::Arc};

use crate::{Error, Result, error::SYNC, fs::AppendFile, sync::Mutex};

/// The open file of a log segment, which several threads may sync.
///
/// Linux reports a failed writeback to only one sync of an open file. So one thread syncs at a
/// time, and later syncs return its error.
#[derive(Debug)]
pub(super) struct SegmentFile {
    file: Arc<dyn AppendFile>,
    /// Held during a sync. No other lock is taken meanwhile.
    failed: Mutex<Option<Error>>,
}

impl SegmentFile {
    pub(super) fn new(file: Arc<dyn AppendFile>) -> Self {
        Self { file, failed: Mutex::default() }
    }

    /// Syncs the file, whose path is `path`.
    ///
    /// # Errors
    ///
    /// [`Error::Io`].
    pub(super) fn sync(&self, path: &Path) -> Result<()> {
        let mut failed = self.failed.lock();
        if let Some(error) = &*failed {
            return Err(error.clone());
        }
        let synced = self.file.sync_data().map_err(|error| Error::io(SYNC, path, error));
        *failed = synced.as_ref().err().cloned();
        synced
    }
}

#[cfg(all(test, not(feature = "shuttle")))]
mod tests {
    use std::{
        io, iter,
        sync::{Condvar, Mutex},
        thread,
        time::Duration,
    };

    use super::*;

    /// Reports an error like Linux: only to the first of concurrent syncs.
    #[derive(Debug, Default)]
    struct ReportsOnce {
        syncs: Mutex<u32>,
        begun: Condvar,
    }

    impl AppendFile for ReportsOnce {
        fn append(&self, _: &[u8]) -> io::Result<()> {
            Ok(())
        }

        fn sync_data(&self) -> io::Result<()> {
            let mut syncs = self.syncs.lock().expect("no thread panics");
            *syncs += 1;
            self.begun.notify_all();
            if *syncs > 1 {
                return Ok(());
            }
            // Fails during the sync of the other thread, if that thread can begin one.
            let other = Duration::from_millis(300);
            let waited = self.begun.wait_timeout_while(syncs, other, |syncs| *syncs < 2);
            drop(waited.expect("no thread panics"));
            Err(io::Error::other("writeback failed"))
        }
    }

    #[test]
    fn each_thread_gets_the_error_of_a_sync() {
        let file = SegmentFile::new(Arc::<ReportsOnce>::default());
        thread::scope(|scope| {
            let sync = || scope.spawn(|| file.sync(Path::new("log")));
            let threads: Vec<_> = iter::repeat_with(sync).take(2).collect();
            for thread in threads {
                let synced = thread.join().expect("no thread panics");
                assert!(synced.is_err(), "its bytes may be lost");
            }
        });
    }
}
