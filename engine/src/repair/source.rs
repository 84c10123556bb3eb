//! A table file with unreadable parts.

use std::{io, iter, ops::Range, sync::Arc};

use bytes::Bytes;
use sievedb_sstable::TableSource;

use crate::{error::is_of_file, sync::Mutex};

/// Granularity of unreadable parts.
const SECTOR_BYTES: u64 = 512;

/// A table file with zeros in place of unreadable sectors.
#[derive(Debug)]
pub(super) struct ZeroedSource(pub(super) Arc<dyn TableSource>);

impl TableSource for ZeroedSource {
    fn len(&self) -> u64 {
        self.0.len()
    }

    fn read_at(&self, offset: u64, bytes: usize) -> io::Result<Bytes> {
        let (mut read, end) = (vec![0; bytes], offset.saturating_add(bytes as u64));
        let mut places: Vec<_> = iter::once(offset..end).collect();
        while let Some(Range { start, end }) = places.pop() {
            // Both are within the read.
            let place = (start - offset) as usize..(end - offset) as usize;
            match self.0.read_at(start, place.len()) {
                Ok(there) if place.len() == bytes => return Ok(there),
                Ok(there) => read[place].copy_from_slice(&there),
                Err(error) if !is_of_file(&error) => return Err(error),
                Err(_) => {
                    let middle = (start + (end - start) / 2).next_multiple_of(SECTOR_BYTES);
                    let next = (start + 1).next_multiple_of(SECTOR_BYTES);
                    // The middle of a single byte is its start.
                    let border = if (next..end).contains(&middle) { middle } else { next };
                    if border < end {
                        places.extend([border..end, start..border]);
                    }
                }
            }
        }
        Ok(read.into())
    }
}

/// A table file that is read twice: block by block, then in larger reads.
///
/// Bytes that the first pass cannot read are reported, and read as zeros afterwards. No checksum
/// matches zeros, so the second pass loses exactly what the first one reported, even if the device
/// returns the bytes by then.
#[derive(Debug)]
pub(super) struct PatchedSource {
    inner: Arc<dyn TableSource>,
    unreadable: Mutex<Vec<Range<u64>>>,
}

impl PatchedSource {
    pub(super) fn new(inner: Arc<dyn TableSource>) -> Self {
        Self { inner, unreadable: Mutex::default() }
    }

    /// Returns the unreadable parts of `place`, ascending.
    fn gaps(&self, place: &Range<u64>) -> Vec<Range<u64>> {
        let unreadable = self.unreadable.lock();
        let within = |gap: &Range<u64>| gap.start.max(place.start)..gap.end.min(place.end);
        let mut gaps: Vec<_> =
            unreadable.iter().map(within).filter(|gap| !gap.is_empty()).collect();
        gaps.sort_unstable_by_key(|gap| gap.start);
        gaps
    }
}

impl TableSource for PatchedSource {
    fn len(&self) -> u64 {
        self.inner.len()
    }

    fn read_at(&self, offset: u64, bytes: usize) -> io::Result<Bytes> {
        let place = offset..offset.saturating_add(bytes as u64);
        let gaps = self.gaps(&place);
        if gaps.is_empty() {
            let read = self.inner.read_at(offset, bytes);
            return read.inspect_err(|_| self.unreadable.lock().push(place));
        }
        let mut patched = vec![0; bytes];
        let mut from = offset;
        for gap in gaps.into_iter().chain(iter::once(place.end..place.end)) {
            if from < gap.start {
                // Both are within the read.
                let good = (from - offset) as usize..(gap.start - offset) as usize;
                patched[good.clone()].copy_from_slice(&self.inner.read_at(from, good.len())?);
            }
            from = from.max(gap.end);
        }
        Ok(patched.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Ascending bytes, one of which is unreadable.
    #[derive(Debug)]
    struct Scratched {
        byte: u64,
        len: u64,
    }

    impl TableSource for Scratched {
        fn len(&self) -> u64 {
            self.len
        }

        fn read_at(&self, offset: u64, bytes: usize) -> io::Result<Bytes> {
            let place = offset..offset + bytes as u64;
            if place.contains(&self.byte) {
                return Err(rustix::io::Errno::IO.into());
            }
            Ok(place.map(|at| at as u8).collect())
        }
    }

    #[test]
    fn only_the_sector_that_cannot_be_read_is_zeros() {
        let long = |byte| ZeroedSource(Arc::new(Scratched { byte, len: 3_000 }));
        for (byte, lost) in [(0, 0..512), (700, 512..1024), (2_999, 2_560..3_000)] {
            for (from, to) in [(0, 3_000), (64, 3_000), (600, 2_999), (byte, byte + 1)] {
                let bytes = long(byte).read_at(from, (to - from) as usize).unwrap();
                let want = |at: &u64| if lost.contains(at) { 0 } else { *at as u8 };
                let is_hit = (from..to).contains(&byte);
                let want = (from..to).map(|at| if is_hit { want(&at) } else { at as u8 });
                assert!(bytes.iter().copied().eq(want), "{byte} in {from}..{to}");
            }
        }
    }

    #[test]
    fn reported_gaps_read_as_zeros() {
        let source = PatchedSource::new(Arc::new(Scratched { byte: 25, len: 100 }));
        assert!(source.read_at(20, 10).is_err());
        let read = |place: Range<u64>| {
            let bytes = (place.end - place.start) as usize;
            source.read_at(place.start, bytes).unwrap().to_vec()
        };
        let patched = |place: Range<u64>| {
            place.map(|at| if (20..30).contains(&at) { 0 } else { at as u8 }).collect::<Vec<_>>()
        };
        for place in [0..100, 20..30, 25..26, 22..40, 10..21, 30..40, 5..20] {
            assert_eq!(read(place.clone()), patched(place.clone()), "{place:?}");
        }
    }

    #[test]
    fn unreported_gaps_fail_first() {
        let source = PatchedSource::new(Arc::new(Scratched { byte: 50, len: 100 }));
        assert!(source.read_at(20, 40).is_err());
        assert!(source.read_at(20, 40).unwrap().iter().all(|&byte| byte == 0));
        assert_eq!(source.read_at(0, 61).unwrap()[60], 60);
        let source = PatchedSource::new(Arc::new(Scratched { byte: 50, len: 100 }));
        source.unreadable.lock().push(10..20);
        assert!(source.read_at(0, 100).is_err());
    }
}
