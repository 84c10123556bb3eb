//! An unfinished file.

use std::{io, path::PathBuf, sync::Arc};

use sievedb_sstable::TableSink;

use super::obsolete::ObsoleteFiles;
use crate::fs::AppendFile;

/// An unfinished file. A drop makes it obsolete, unless it was finished.
#[derive(Debug)]
pub(crate) struct Unfinished {
    pub(crate) path: PathBuf,
    obsolete_files: Option<Arc<ObsoleteFiles>>,
}

impl Unfinished {
    pub(crate) fn new(path: PathBuf, obsolete_files: &Arc<ObsoleteFiles>) -> Self {
        Self { path, obsolete_files: Some(Arc::clone(obsolete_files)) }
    }

    pub(crate) fn finish(&mut self) {
        self.obsolete_files = None;
    }
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        if let Some(obsolete_files) = &self.obsolete_files {
            obsolete_files.push_part(std::mem::take(&mut self.path));
        }
    }
}

#[derive(Debug)]
pub(crate) struct FileSink(pub(crate) Arc<dyn AppendFile>);

impl TableSink for FileSink {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.0.append(bytes)
    }
}
