//! Creation of log segments.

use std::path::Path;

use sievedb_format::{FileHeader, FileKind};

use crate::{
    Error, Result,
    error::SYNC,
    file_name::FileName,
    fs::Fs,
    log::{Position, Start, Writer, draw_secret},
};

/// Returns the ids of the segments among file names, ascending.
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

/// Parameters of a new segment.
#[derive(Debug, Clone, Copy)]
pub(crate) struct NewSegment {
    pub(crate) store_id: u128,
    /// A number above those of all segments, which no file had before.
    pub(crate) id: u64,
    /// The manifest that `CURRENT` durably names, and its durable length.
    pub(crate) manifest: Position,
    /// The segment that this one continues and its logical end. `None` for a new log, which is
    /// valid only once the manifest names it.
    pub(crate) previous: Option<Position>,
    /// The synced mark.
    pub(crate) mark: Position,
}

impl NewSegment {
    /// Creates the segment, durable with its directory entry: before the first batch is placed in
    /// it, and before a manifest names it.
    ///
    /// # Errors
    ///
    /// [`Error::Io`]. If the disk was full before the first sync, the file is removed if possible,
    /// and a new attempt needs a new id.
    pub(crate) fn create(&self, fs: &dyn Fs, folder: &Path) -> Result<Writer> {
        let path = FileName::Log(self.id).path(folder);
        let secret = draw_secret(fs, &path)?;
        let header = FileHeader::of_records(FileKind::Log, self.store_id, self.id, secret);
        let start = Start { manifest: self.manifest, previous: self.previous };
        let writer = Writer::create(fs, path.clone(), &header, &start, &[], self.mark);
        let writer = writer.inspect_err(|error| {
            if error.is_retryable() {
                // Frees the space; recovery would treat the file as an orphan.
                let _ = fs.unlink(&path);
            }
        })?;
        writer.sync_data()?;
        fs.sync_dir(folder).map_err(|e| Error::io(SYNC, folder, e))?;
        Ok(writer)
    }
}
