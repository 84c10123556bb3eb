//! How a segment of the write-ahead log begins.

use std::path::Path;

use sievedb_format::{FileHeader, FileKind};

use crate::{
    Error, Result,
    error::SYNC,
    file_name::FileName,
    fs::Fs,
    log::{Position, Start, Writer, draw_secret},
};

/// Ids of the segments among the files of a folder, ascending.
pub(crate) fn segment_ids(names: &[String]) -> Vec<u64> {
    let id = |name: &String| match FileName::parse(name) {
        Some(FileName::Log(id)) => Some(id),
        _ => None,
    };
    let mut ids: Vec<u64> = names.iter().filter_map(id).collect();
    // Names of seven digits sort before those of six.
    ids.sort_unstable();
    ids
}

/// What is told to a new segment.
#[derive(Debug, Clone, Copy)]
pub(crate) struct NewSegment {
    /// Random number of the store.
    pub(crate) store_id: u128,
    /// A number that no file had before, above those of all segments.
    pub(crate) id: u64,
    /// The manifest that counts (`CURRENT` names it durably) and the length up to which it is
    /// durable.
    pub(crate) manifest: Position,
    /// The segment that this one continues and its logical end; `None` if the log begins anew: then
    /// the segment counts only once the manifest names it.
    pub(crate) previous: Option<Position>,
    /// What is known to be durable.
    pub(crate) mark: Position,
}

impl NewSegment {
    /// Creates the segment and makes it durable, entry in the folder included: before the first
    /// batch is placed in it, and before a manifest names it.
    ///
    /// # Errors
    ///
    /// [`Error::Io`] if the file system refuses. If the disk was full before anything was synced,
    /// the file is removed again if that is possible, and a new attempt needs a new id.
    pub(crate) fn create(&self, fs: &dyn Fs, folder: &Path) -> Result<Writer> {
        let path = FileName::Log(self.id).path(folder);
        let secret = draw_secret(fs, &path)?;
        let header = FileHeader::of_records(FileKind::Log, self.store_id, self.id, secret);
        let start = Start { manifest: self.manifest, previous: self.previous };
        let writer = Writer::create(fs, path.clone(), &header, &start, &[], self.mark);
        let writer = writer.inspect_err(|error| {
            if error.is_passing() {
                // Nothing was synced. Only to free the room. If it stays, recovery finds that it
                // leads nowhere.
                let _ = fs.unlink(&path);
            }
        })?;
        writer.sync_data()?;
        fs.sync_dir(folder).map_err(|e| Error::io(SYNC, folder, e))?;
        Ok(writer)
    }
}
