//! An object store in memory whose calls can fail.

#![expect(clippy::unwrap_used, reason = "a test fails by a panic")]

use std::{
    fmt, mem,
    sync::{
        Mutex, OnceLock,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::SeqCst},
    },
    time::Duration,
};

use async_trait::async_trait;
use futures_util::{StreamExt as _, stream, stream::BoxStream};
use object_store::{
    CopyOptions, Error, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta,
    ObjectStore, ObjectStoreExt as _, PutMultipartOptions, PutOptions, PutPayload, PutResult,
    Result, memory::InMemory, path::Path,
};
use sievedb::clock::{Clock as _, SystemClock};

/// Calls with these numbers fail, and do nothing or lose their response.
#[derive(Debug)]
pub(crate) struct Faulty {
    inner: InMemory,
    calls: AtomicUsize,
    first: AtomicUsize,
    count: AtomicUsize,
    failures: AtomicUsize,
    /// Failing calls are carried out.
    loses: AtomicBool,
    /// Requests of ranges, and their bytes.
    ranges: AtomicUsize,
    range_bytes: AtomicU64,
    gate: Mutex<Gate>,
    /// Taken by another writer at the next put of a file.
    lock: OnceLock<Path>,
}

/// Reads that wait for each other.
#[derive(Debug, Default)]
struct Gate {
    /// Shortest range, or length of an object, of such a read; `None` without a gate.
    bytes_min: Option<u64>,
    of_ranges: bool,
    wanted: usize,
    in_flight: usize,
    most: usize,
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
            loses: AtomicBool::new(false),
            ranges: zero(),
            range_bytes: AtomicU64::new(0),
            gate: Mutex::default(),
            lock: OnceLock::new(),
        }
    }

    /// Fails `count` calls after the next `after` ones.
    pub(crate) fn fail(&self, after: usize, count: usize) {
        self.first.store(self.calls.load(SeqCst) + after, SeqCst);
        self.count.store(count, SeqCst);
    }

    /// Loses the responses of `count` puts and deletes after the next `after` calls.
    pub(crate) fn lose(&self, after: usize, count: usize) {
        self.loses.store(true, SeqCst);
        self.fail(after, count);
    }

    /// Another writer takes this lock at the next put of a file.
    pub(crate) fn take_lock(&self, lock: Path) {
        self.lock.set(lock).expect("only once");
    }

    /// Reads of so many bytes, of ranges or of whole objects, wait until `wanted` are in flight.
    pub(crate) fn gate(&self, wanted: usize, bytes_min: u64, of_ranges: bool) {
        let bytes_min = Some(bytes_min);
        *self.gate.lock().unwrap() = Gate { wanted, bytes_min, of_ranges, ..Gate::default() };
    }

    /// Opens the gate. Returns how many of its reads were in flight at the same time.
    pub(crate) fn end_gate(&self) -> usize {
        mem::take(&mut *self.gate.lock().unwrap()).most
    }

    /// Waits at the gate, for at most 10 s.
    async fn pass(&self, bytes: u64, is_range: bool) {
        {
            let mut gate = self.gate.lock().unwrap();
            let is_gated = gate.bytes_min.is_some_and(|min| bytes >= min);
            if !is_gated || gate.of_ranges != is_range {
                return;
            }
            gate.in_flight += 1;
            gate.most = gate.most.max(gate.in_flight);
        }
        let clock = SystemClock::new();
        while self.is_shut() && clock.now() < Duration::from_secs(10) {
            tokio::task::yield_now().await;
        }
        let mut gate = self.gate.lock().unwrap();
        gate.in_flight = gate.in_flight.saturating_sub(1);
    }

    fn is_shut(&self) -> bool {
        let gate = self.gate.lock().unwrap();
        gate.most < gate.wanted
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

    /// Counts a call. Returns an error if it fails, or in its place the error of its response.
    fn call(&self) -> Result<Result<()>> {
        let call = self.calls.fetch_add(1, SeqCst);
        let passed = call.checked_sub(self.first.load(SeqCst));
        if passed.is_none_or(|passed| passed >= self.count.load(SeqCst)) {
            return Ok(Ok(()));
        }
        self.failures.fetch_add(1, SeqCst);
        let error = Error::Generic { store: "faulty", source: "the call fails".into() };
        if self.loses.load(SeqCst) { Ok(Err(error)) } else { Err(error) }
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
        let response = self.call()?;
        if let Some(lock) = self.lock.get().filter(|_| at.as_ref().contains("/objects/")) {
            self.inner.put(lock, "another".into()).await?;
        }
        let put = self.inner.put_opts(at, bytes, how).await;
        response.and(put)
    }

    async fn put_multipart_opts(
        &self,
        at: &Path,
        how: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        self.call()??;
        self.inner.put_multipart_opts(at, how).await
    }

    async fn get_opts(&self, at: &Path, options: GetOptions) -> Result<GetResult> {
        self.call()??;
        let is_range = options.range.is_some();
        let got = self.inner.get_opts(at, options).await?;
        let range_bytes = got.range.end - got.range.start;
        self.pass(if is_range { range_bytes } else { got.meta.size }, is_range).await;
        if is_range {
            self.ranges.fetch_add(1, SeqCst);
            self.range_bytes.fetch_add(range_bytes, SeqCst);
        }
        Ok(got)
    }

    fn delete_stream(
        &self,
        locations: BoxStream<'static, Result<Path>>,
    ) -> BoxStream<'static, Result<Path>> {
        match self.call() {
            Ok(Ok(())) => self.inner.delete_stream(locations),
            Ok(Err(error)) => {
                let deleted = self.inner.delete_stream(locations).collect::<Vec<_>>();
                stream::once(async {
                    drop(deleted.await);
                    Err(error)
                })
                .boxed()
            }
            Err(error) => stream::once(async { Err(error) }).boxed(),
        }
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        self.inner.list(prefix)
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.call()??;
        self.inner.list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.inner.copy_opts(from, to, options).await
    }
}
