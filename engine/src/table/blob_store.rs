//! Opens blob files, each once for all of its tables.

use std::{
    collections::BTreeMap,
    sync::{Arc, Weak},
};

use sievedb_format::Corruption;
use sievedb_sstable::BlobUse;

use super::{TableMeta, blobs::BlobFile, store::TableStore};
use crate::{Error, Result, memory::MemoryUse};

impl TableStore {
    /// Opens the blob files of a table. Reuses those of other tables.
    ///
    /// # Errors
    ///
    /// As [`BlobFile::open`]; [`Error::Corrupt`] if another table describes a file differently.
    pub(super) fn open_blobs(&self, meta: &TableMeta) -> Result<Box<[Arc<BlobFile>]>> {
        meta.blob_files.iter().map(|used| self.open_blob_file(*used)).collect()
    }

    /// Opens a blob file, or reuses that of a table.
    ///
    /// # Errors
    ///
    /// As [`open_blobs`](Self::open_blobs).
    pub(crate) fn open_blob_file(&self, used: BlobUse) -> Result<Arc<BlobFile>> {
        let find = |open: &BTreeMap<u64, Weak<BlobFile>>| open.get(&used.file_id)?.upgrade();
        let found = find(&self.blob_files.0.lock());
        let file = match found {
            Some(file) => file,
            None => {
                let mut opened = BlobFile::open(&self.files, &self.folder, self.store_id, used)?;
                let mut open = self.blob_files.0.lock();
                match find(&open) {
                    // Another thread was faster. The newly opened file has no table.
                    Some(file) => file,
                    None => {
                        let bytes = 2 * size_of::<BlobFile>() + opened.path.as_os_str().len();
                        let charge = self.memory.charge(MemoryUse::Bookkeeping, bytes);
                        opened.own(&self.obsolete_files, charge);
                        let file = Arc::new(opened);
                        open.retain(|_, file| file.strong_count() > 0);
                        open.insert(used.file_id, Arc::downgrade(&file));
                        file
                    }
                }
            }
        };
        let is_same = BlobUse { used_bytes: 0, ..used } == BlobUse { used_bytes: 0, ..file.file };
        match is_same {
            true => Ok(file),
            false => {
                let source = Corruption::Order { what: "blob file of two tables" };
                Err(Error::corrupt(&*file.path, 0, source))
            }
        }
    }
}
