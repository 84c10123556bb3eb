//! An object store in memory whose calls can fail.

use std::{
    fmt,
    sync::{
        OnceLock,
        atomic::{AtomicU64, AtomicUsize, Ordering::SeqCst},
    },
};

use async_trait::async_trait;
use futures_util::{StreamExt as _, stream, stream::BoxStream};
use object_store::{
    CopyOptions, Error, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta,
    ObjectStore, ObjectStoreExt as _, PutMultipartOptions, PutOptions, PutPayload, PutResult,
    Result, memory::InMemory, path::Path,
};

/// Calls with these numbers fail, and do nothing.
#[derive(Debug)]
pub(crate) struct Faulty {
    inner: InMemory,
    calls: AtomicUsize,
    first: AtomicUsize,
    count: AtomicUsize,
    failures: AtomicUsize,
    /// Requests of ranges, and their bytes.
    ranges: AtomicUsize,
    range_bytes: AtomicU64,
    /// Taken by another writer at the next put of a file.
    lock: OnceLock<Path>,
}

impl Faulty {
    pub(crate) fn new() -> Self {
        let zero = || AtomicUsize::new(0);
        Self {
            inner: InMemory::new(),
            calls: zero(),
            first: zero(),
            count: zero(),
            failures: zero(),
            ranges: zero(),
            range_bytes: AtomicU64::new(0),
            lock: OnceLock::new(),
        }
    }

    /// Fails `count` calls after the next `after` ones.
    pub(crate) fn fail(&self, after: usize, count: usize) {
        self.first.store(self.calls.load(SeqCst) + after, SeqCst);
        self.count.store(count, SeqCst);
    }

    /// Another writer takes this lock at the next put of a file.
    pub(crate) fn take_lock(&self, lock: Path) {
        self.lock.set(lock).expect("only once");
    }

    pub(crate) fn heal(&self) {
        self.count.store(0, SeqCst);
    }

    pub(crate) fn failures(&self) -> usize {
        self.failures.load(SeqCst)
    }

    /// Returns the number of calls so far.
    pub(crate) fn calls(&self) -> usize {
        self.calls.load(SeqCst)
    }

    /// Returns the number of requests of ranges so far, and the bytes that they returned.
    pub(crate) fn ranges(&self) -> (usize, u64) {
        (self.ranges.load(SeqCst), self.range_bytes.load(SeqCst))
    }

    fn call(&self) -> Result<()> {
        let call = self.calls.fetch_add(1, SeqCst);
        let passed = call.checked_sub(self.first.load(SeqCst));
        if passed.is_none_or(|passed| passed >= self.count.load(SeqCst)) {
            return Ok(());
        }
        self.failures.fetch_add(1, SeqCst);
        Err(Error::Generic { store: "faulty", source: "the call fails".into() })
    }
}

impl fmt::Display for Faulty {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("faulty")
    }
}

#[async_trait]
impl ObjectStore for Faulty {
    async fn put_opts(&self, at: &Path, bytes: PutPayload, how: PutOptions) -> Result<PutResult> {
        self.call()?;
        if let Some(lock) = self.lock.get().filter(|_| at.as_ref().contains("/objects/")) {
            self.inner.put(lock, "another".into()).await?;
        }
        self.inner.put_opts(at, bytes, how).await
    }

    async fn put_multipart_opts(
        &self,
        at: &Path,
        how: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        self.call()?;
        self.inner.put_multipart_opts(at, how).await
    }

    async fn get_opts(&self, at: &Path, options: GetOptions) -> Result<GetResult> {
        self.call()?;
        let is_range = options.range.is_some();
        let got = self.inner.get_opts(at, options).await?;
        if is_range {
            self.ranges.fetch_add(1, SeqCst);
            self.range_bytes.fetch_add(got.range.end - got.range.start, SeqCst);
        }
        Ok(got)
    }

    fn delete_stream(
        &self,
        locations: BoxStream<'static, Result<Path>>,
    ) -> BoxStream<'static, Result<Path>> {
        match self.call() {
            Ok(()) => self.inner.delete_stream(locations),
            Err(error) => stream::once(async { Err(error) }).boxed(),
        }
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        self.inner.list(prefix)
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.call()?;
        self.inner.list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.inner.copy_opts(from, to, options).await
    }
}
