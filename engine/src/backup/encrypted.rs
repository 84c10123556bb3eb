//! Encrypted objects.

use std::{io, path::Path, sync::Arc};

use super::objects::{NewObject, ObjectStore};
use crate::{
    encryption::{Keys, ObjectWriter, open_object},
    fs::{FileLock, Fs, ReadFile},
    open_files::OpenFiles,
};

/// Encrypts each object as a whole, with a key derived from its name.
#[derive(Debug)]
pub(super) struct EncryptedObjects {
    inner: Arc<dyn ObjectStore>,
    keys: Keys,
    /// Source of random numbers.
    fs: Arc<dyn Fs>,
}

impl EncryptedObjects {
    pub(super) fn new(inner: Arc<dyn ObjectStore>, keys: Keys, fs: Arc<dyn Fs>) -> Self {
        Self { inner, keys, fs }
    }
}

impl ObjectStore for EncryptedObjects {
    fn frugal(self: Arc<Self>, open_files: &Arc<OpenFiles>) -> Arc<dyn ObjectStore> {
        let inner = Arc::clone(&self.inner).frugal(open_files);
        Arc::new(Self::new(inner, Arc::clone(&self.keys), Arc::clone(&self.fs)))
    }

    fn directory(&self) -> Option<&Path> {
        self.inner.directory()
    }

    fn lock(&self) -> io::Result<Box<dyn FileLock>> {
        self.inner.lock()
    }

    #[cfg(feature = "object-store")]
    fn break_lock(&self) -> io::Result<bool> {
        self.inner.break_lock()
    }

    fn remove_unfinished(&self) -> io::Result<()> {
        self.inner.remove_unfinished()
    }

    fn create(&self, name: &str) -> io::Result<Box<dyn NewObject>> {
        let (writer, head) = ObjectWriter::new(name, &*self.keys, &*self.fs)?;
        let mut object = self.inner.create(name)?;
        object.append(&head)?;
        Ok(Box::new(NewEncrypted { object, writer }))
    }

    fn open(&self, name: &str) -> io::Result<Arc<dyn ReadFile>> {
        open_object(name, self.inner.open(name)?, &*self.keys)
    }

    fn open_ranges(&self, name: &str) -> io::Result<Arc<dyn ReadFile>> {
        open_object(name, self.inner.open_ranges(name)?, &*self.keys)
    }

    fn list(&self, directory: &str) -> io::Result<Vec<String>> {
        self.inner.list(directory)
    }

    fn delete(&self, name: &str) -> io::Result<()> {
        self.inner.delete(name)
    }

    fn sync(&self, directory: &str) -> io::Result<()> {
        self.inner.sync(directory)
    }
}

struct NewEncrypted {
    object: Box<dyn NewObject>,
    writer: ObjectWriter,
}

impl NewObject for NewEncrypted {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.object.append(self.writer.append(bytes)?)
    }

    fn finish(mut self: Box<Self>) -> io::Result<()> {
        self.object.append(self.writer.finish())?;
        self.object.finish()
    }
}
