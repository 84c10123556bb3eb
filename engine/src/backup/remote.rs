//! Objects in an object store, through the crate `object_store`.

mod lock;

use std::{
    fmt::{self, Debug},
    io,
    path::{Path, PathBuf},
    sync::Arc,
};

use bytes::Bytes;
use object_store::{
    Error, MultipartUpload, ObjectStoreExt as _, PutMode, PutPayload, path::Path as Location,
};
use tokio::{runtime::Handle, task::JoinHandle};

use self::lock::{LOCK, OwnLock};
use super::objects::{BACKUPS, NewObject, ObjectStore};
use crate::{
    fs::{FileLock, ReadFile},
    open_files::OpenFiles,
    sync::Mutex,
};

/// Length of a part of an upload, in bytes. S3 accepts at most 10,000 parts of at least 5 MiB.
const PART_BYTES: usize = 16 << 20;

/// Length of a read, in bytes. The next part is prefetched.
const READ_BYTES: u64 = 8 << 20;

/// A prefix of an object store. Clones share their lock.
#[derive(Clone)]
pub(super) struct Remote {
    store: Arc<dyn object_store::ObjectStore>,
    prefix: Location,
    runtime: Handle,
    /// Locked while the object `LOCK` is created or deleted.
    lock: Arc<Mutex<OwnLock>>,
}

impl Debug for Remote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.store, self.prefix)
    }
}

impl Remote {
    pub(super) fn new(
        store: Arc<dyn object_store::ObjectStore>,
        prefix: Location,
        runtime: Handle,
    ) -> Self {
        Self { store, prefix, runtime, lock: Arc::default() }
    }

    /// Path for error messages.
    pub(super) fn path(&self) -> PathBuf {
        PathBuf::from(format!("{self:?}"))
    }

    fn location(&self, name: &str) -> Location {
        name.split('/').fold(self.prefix.clone(), |location, part| location.join(part))
    }

    fn put(&self, name: &str, bytes: Bytes, mode: PutMode) -> io::Result<()> {
        let location = self.location(name);
        let put = self.store.put_opts(&location, bytes.into(), mode.into());
        self.runtime.block_on(put).map(drop).map_err(to_io)
    }

    fn get(&self, name: &str) -> io::Result<Bytes> {
        let location = self.location(name);
        let get = async { self.store.get(&location).await?.bytes().await };
        self.runtime.block_on(get).map_err(to_io)
    }
}

impl ObjectStore for Remote {
    fn frugal(self: Arc<Self>, _open_files: &Arc<OpenFiles>) -> Arc<dyn ObjectStore> {
        self
    }

    fn directory(&self) -> Option<&Path> {
        None
    }

    fn lock(&self) -> io::Result<Box<dyn FileLock>> {
        self.take_lock()
    }

    fn break_lock(&self) -> io::Result<bool> {
        // A delete of a missing object succeeds in some stores.
        match self.get(LOCK) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            found => found.and_then(|_| self.delete(LOCK)).map(|()| true),
        }
    }

    fn create(&self, name: &str) -> io::Result<Box<dyn NewObject>> {
        let (remote, name) = (self.clone(), name.to_owned());
        Ok(Box::new(NewRemoteObject { remote, name, buffer: Vec::new(), upload: None }))
    }

    fn open(&self, name: &str) -> io::Result<Arc<dyn ReadFile>> {
        let location = self.location(name);
        let bytes = self.runtime.block_on(self.store.head(&location)).map_err(to_io)?.size;
        let (remote, read) = (self.clone(), Mutex::default());
        Ok(Arc::new(RemoteObject { remote, location, bytes, read }))
    }

    fn open_ranges(&self, name: &str) -> io::Result<Arc<dyn ReadFile>> {
        let (remote, location) = (self.clone(), self.location(name));
        Ok(Arc::new(RemoteRanges { remote, location }))
    }

    fn list(&self, directory: &str) -> io::Result<Vec<String>> {
        let prefix = self.location(directory);
        let listed = self.runtime.block_on(self.store.list_with_delimiter(Some(&prefix)));
        let objects = listed.map_err(to_io)?.objects.into_iter();
        let mut names: Vec<_> =
            objects.filter_map(|it| it.location.filename().map(str::to_owned)).collect();
        names.sort_unstable();
        Ok(names)
    }

    fn delete(&self, name: &str) -> io::Result<()> {
        let location = self.location(name);
        self.runtime.block_on(self.store.delete(&location)).map_err(to_io)
    }

    fn sync(&self, _directory: &str) -> io::Result<()> {
        // Objects are durable once they exist.
        Ok(())
    }
}

/// An object that is uploaded in parts if it is long.
struct NewRemoteObject {
    remote: Remote,
    name: String,
    /// Bytes that are not uploaded yet.
    buffer: Vec<u8>,
    upload: Option<Box<dyn MultipartUpload>>,
}

impl NewRemoteObject {
    /// Returns `true` if the object is a record, which only one writer may create.
    fn is_record(&self) -> bool {
        self.name.starts_with(BACKUPS)
    }

    fn upload_part(&mut self) -> io::Result<()> {
        let part = PutPayload::from(std::mem::take(&mut self.buffer));
        let runtime = &self.remote.runtime;
        if self.upload.is_none() {
            let location = self.remote.location(&self.name);
            let begun = runtime.block_on(self.remote.store.put_multipart(&location));
            self.upload = Some(begun.map_err(to_io)?);
        }
        let upload = self.upload.as_mut().expect("it was just begun");
        runtime.block_on(upload.put_part(part)).map_err(to_io)
    }
}

impl NewObject for NewRemoteObject {
    fn append(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            let room = if self.is_record() { usize::MAX } else { PART_BYTES - self.buffer.len() };
            let (now, rest) = bytes.split_at(bytes.len().min(room));
            self.buffer.extend_from_slice(now);
            bytes = rest;
            if !self.is_record() && self.buffer.len() >= PART_BYTES {
                self.upload_part()?;
            }
        }
        Ok(())
    }

    fn finish(mut self: Box<Self>) -> io::Result<()> {
        if self.upload.is_some() {
            if !self.buffer.is_empty() {
                self.upload_part()?;
            }
            let runtime = self.remote.runtime.clone();
            let upload = self.upload.as_mut().expect("it was begun");
            runtime.block_on(upload.complete()).map_err(to_io)?;
            self.upload = None;
            return Ok(());
        }
        let mode = if self.is_record() { PutMode::Create } else { PutMode::Overwrite };
        if self.is_record() {
            self.remote.check_lock()?;
        }
        let bytes = std::mem::take(&mut self.buffer).into();
        self.remote.put(&self.name, bytes, mode)
    }
}

impl Drop for NewRemoteObject {
    fn drop(&mut self) {
        if let Some(upload) = &mut self.upload {
            // An unfinished upload is invisible. Object stores can be configured to remove it by
            // age.
            let _ = self.remote.runtime.block_on(upload.abort());
        }
    }
}

/// Reads an object in long parts, and prefetches the next part.
struct RemoteObject {
    remote: Remote,
    location: Location,
    bytes: u64,
    read: Mutex<PartsRead>,
}

/// A request in flight.
type Request = JoinHandle<object_store::Result<Bytes>>;

/// The last part read, and the part after it.
#[derive(Default)]
struct PartsRead {
    start: u64,
    content: Bytes,
    /// Start of the next part, which is in flight.
    next: Option<(u64, Request)>,
}

impl Drop for PartsRead {
    fn drop(&mut self) {
        if let Some((_, request)) = &self.next {
            request.abort();
        }
    }
}

impl Debug for RemoteObject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("RemoteObject").field(&self.location).finish()
    }
}

impl RemoteObject {
    /// Requests the part that begins at `start`; `None` at the end.
    fn request(&self, start: u64) -> Option<Request> {
        let end = self.bytes.min(start.saturating_add(READ_BYTES));
        let (store, location) = (Arc::clone(&self.remote.store), self.location.clone());
        let read = async move { store.get_range(&location, start..end).await };
        (start < end).then(|| self.remote.runtime.spawn(read))
    }

    /// Reads the part that begins at `start`, and requests the one after it.
    fn read_part(&self, read: &mut PartsRead, start: u64) -> io::Result<()> {
        read.content = Bytes::new();
        let request = match read.next.take() {
            Some((next, request)) if next == start => Some(request),
            Some((_, request)) => {
                request.abort();
                self.request(start)
            }
            None => self.request(start),
        };
        let request = request.ok_or(io::ErrorKind::UnexpectedEof)?;
        let next = start.saturating_add(READ_BYTES);
        read.next = self.request(next).map(|request| (next, request));
        let content = self.remote.runtime.block_on(request).map_err(io::Error::other)?;
        (read.start, read.content) = (start, content.map_err(to_io)?);
        if read.content.is_empty() { Err(io::ErrorKind::UnexpectedEof.into()) } else { Ok(()) }
    }
}

impl ReadFile for RemoteObject {
    fn len(&self) -> io::Result<u64> {
        Ok(self.bytes)
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        let mut read = self.read.lock();
        let mut done = 0;
        while done < buf.len() {
            let at = offset + done as u64;
            let held = at.checked_sub(read.start).and_then(|skip| usize::try_from(skip).ok());
            let held = held.and_then(|skip| read.content.get(skip..)).unwrap_or_default();
            if held.is_empty() {
                self.read_part(&mut read, at)?;
                continue;
            }
            let bytes = held.len().min(buf.len() - done);
            buf[done..done + bytes].copy_from_slice(&held[..bytes]);
            done += bytes;
        }
        Ok(())
    }

    fn map(&self) -> io::Result<Bytes> {
        Err(io::ErrorKind::Unsupported.into())
    }
}

/// Reads ranges of an object, one request per read.
struct RemoteRanges {
    remote: Remote,
    location: Location,
}

impl Debug for RemoteRanges {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("RemoteRanges").field(&self.location).finish()
    }
}

impl ReadFile for RemoteRanges {
    fn len(&self) -> io::Result<u64> {
        let head = self.remote.store.head(&self.location);
        self.remote.runtime.block_on(head).map(|it| it.size).map_err(to_io)
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        if buf.is_empty() {
            return Ok(());
        }
        let end = offset.checked_add(buf.len() as u64).ok_or(io::ErrorKind::UnexpectedEof)?;
        let read = self.remote.store.get_range(&self.location, offset..end);
        let bytes = self.remote.runtime.block_on(read).map_err(to_io)?;
        if bytes.len() != buf.len() {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        buf.copy_from_slice(&bytes);
        Ok(())
    }

    fn map(&self) -> io::Result<Bytes> {
        Err(io::ErrorKind::Unsupported.into())
    }
}

fn to_io(error: Error) -> io::Error {
    let kind = match &error {
        Error::NotFound { .. } => io::ErrorKind::NotFound,
        Error::AlreadyExists { .. } | Error::Precondition { .. } => io::ErrorKind::AlreadyExists,
        Error::PermissionDenied { .. } | Error::Unauthenticated { .. } => {
            io::ErrorKind::PermissionDenied
        }
        _ => io::ErrorKind::Other,
    };
    io::Error::new(kind, error)
}
