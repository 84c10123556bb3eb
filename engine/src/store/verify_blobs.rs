//! Verification of blob files, and of the references of a table to them.

use std::{collections::BTreeMap, ops::Bound, ops::ControlFlow, path::Path, sync::Arc};

use bytes::Bytes;
use sievedb_format::Corruption;
use sievedb_sstable::{
    BlobIdentity, BlobReference, BlobUse, CursorOptions, Table, TableSource,
    blob_file::{check_blob_file, check_blob_header},
    file_checksum,
};

use super::verify_table::{TableVerifier, all_keys};
use crate::{
    Error,
    file_name::FileName,
    resolve::is_in_blob_file,
    table::{TableMeta, blobs::blob_source, table_error},
};

impl TableVerifier<'_> {
    /// Reads every value that `table` refers to, and once every byte of each blob file.
    pub(super) fn blobs(&mut self, meta: &TableMeta, path: &Path, table: &Arc<Table>) {
        let mut sources = BTreeMap::new();
        for used in &meta.blob_files {
            if let Some(source) = self.blob_file(meta, used) {
                sources.insert(used.file_id, (source, used.salt));
            }
        }
        let mut used_bytes = BTreeMap::<u64, u64>::new();
        let options = CursorOptions { skip_damaged: true, ..CursorOptions::whole_table() };
        let mut cursor = Arc::clone(table).cursor(options);
        let mut moved = cursor.seek_to_first();
        while moved.is_ok()
            && let Some(key) = cursor.key()
            && !(self.is_cancelled)()
        {
            if is_in_blob_file(key.trailer) {
                let at = Bound::Included(Bytes::copy_from_slice(key.user_key));
                let keys = Some((at.clone(), at));
                match BlobReference::decode(cursor.value_ref()) {
                    Ok(reference) => {
                        let file = reference.file_id;
                        let used = used_bytes.entry(file).or_default();
                        *used = used.saturating_add(reference.bytes);
                        let read =
                            sources.get(&file).map(|(it, salt)| reference.read(&**it, *salt));
                        if let Some(Err(error)) = read {
                            let path = FileName::Blobs(file).path(self.folder);
                            self.report.error_of_keys(&table_error(&path, error), keys);
                        }
                    }
                    Err(source) => {
                        self.report.error_of_keys(&Error::corrupt(path, 0, source), keys);
                    }
                }
            }
            moved = cursor.next();
        }
        // Damage of the table was reported before.
        if moved.is_err() || (self.is_cancelled)() {
            return;
        }
        let stated = meta.blob_files.iter().map(|used| (used.file_id, used.used_bytes));
        if used_bytes != stated.collect() && !self.report.problems.iter().any(|it| it.path == path)
        {
            let what = "bytes of blob files in the manifest";
            self.report.error(&Error::corrupt(path, 0, Corruption::Order { what }));
        }
    }

    /// Verifies a blob file, unless another table has it too. Returns it if it can be read.
    fn blob_file(&mut self, meta: &TableMeta, used: &BlobUse) -> Option<Arc<dyn TableSource>> {
        let path = FileName::Blobs(used.file_id).path(self.folder);
        let is_new = self.blob_files.insert(used.file_id);
        let source = match blob_source(&self.blob_sources, used.file_id, path.as_path().into()) {
            Ok(source) => source,
            Err(error) => {
                self.report.error_of_keys(&error, Some(all_keys(meta)));
                return None;
            }
        };
        if !is_new {
            return Some(source);
        }
        let (store_id, file_id, salt) = (self.store_id, used.file_id, used.salt);
        let identity = BlobIdentity { store_id, file_id, salt };
        let checked = check_blob_file(&*source, identity, used.bytes)
            .and_then(|()| check_blob_header(&*source, identity));
        if let Err(error) = checked {
            self.report.error_of_keys(&table_error(&path, error), Some(all_keys(meta)));
            return Some(source);
        }
        let is_cancelled = self.is_cancelled;
        let found = file_checksum(&*source, &mut |_| match is_cancelled() {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        });
        match found {
            _ if is_cancelled() => {}
            Ok(found) if found == used.checksum => {}
            Ok(computed) => {
                let (what, stored) = ("whole blob file", used.checksum);
                let source = Corruption::Checksum { what, stored, computed };
                self.report.error(&Error::corrupt(path, 0, source));
            }
            Err(error) => self.report.error(&Error::io("read", path, error)),
        }
        Some(source)
    }
}
