//! Batched lookups of many keys in one table.

use std::{ops::Range, sync::Arc};

use sievedb_format::{InternalKey, SequenceNumber, Trailer};

use crate::{
    block::{BlockHandle, BlockInner, BlockRef, BlockRole, ValueRef},
    cache::{BlockCounts, BlockObserver, BlockRequest, CacheUse},
    error::ReadError,
    table::Table,
};

/// Keys per batch. Bounds the reads in flight, and the blocks in memory that are not cached.
const BATCH_KEYS: usize = 32;

/// A data block that a batch needs.
#[derive(Debug)]
struct BatchBlock {
    handle: BlockHandle,
    state: BlockState,
}

#[derive(Debug)]
enum BlockState {
    Loaded(BlockRef),
    /// To be read, and published in this slot of this index.
    Missing(Arc<BlockInner>, usize),
}

impl BatchBlock {
    fn loaded(&self) -> Option<&BlockRef> {
        match &self.state {
            BlockState::Loaded(block) => Some(block),
            BlockState::Missing(..) => None,
        }
    }
}

impl Table {
    /// Calls `take` with the index and newest version of each of `user_keys` that has a version at
    /// or below `sequence`. Otherwise as [`get`](Self::get) for each key.
    ///
    /// Keys should be in ascending order: adjacent keys share the search for their partition and
    /// the request of their block. The source is advised of the missing blocks of 32 keys before
    /// the first of them is read. Allocates nothing itself.
    ///
    /// # Errors
    ///
    /// [`ReadError`] if a block cannot be read or is damaged. The remaining keys are not looked up.
    pub fn get_many_with<'k>(
        &self,
        user_keys: &(impl ExactSizeIterator<Item = &'k [u8]> + Clone),
        sequence: SequenceNumber,
        cache_use: CacheUse,
        counts: &mut BlockCounts,
        mut take: impl FnMut(usize, Trailer, ValueRef<'_>),
    ) -> Result<(), ReadError> {
        let mut partition = None;
        let mut first = 0;
        while first < user_keys.len() {
            let keys = user_keys.clone().skip(first).take(BATCH_KEYS);
            let mut blocks: [Option<BatchBlock>; BATCH_KEYS] = [const { None }; _];
            let mut block_of = [None; BATCH_KEYS];
            let mut used = 0;
            for (key, of_key) in keys.clone().zip(&mut block_of) {
                let target = InternalKey::seek(key, sequence);
                let found = self.batch_block(target, cache_use, &mut partition, counts)?;
                let Some(block) = found else { continue };
                let is_last = |last: &BatchBlock| last.handle == block.handle;
                if !(used > 0 && blocks[used - 1].as_ref().is_some_and(is_last)) {
                    let BlockHandle { offset, bytes } = block.handle;
                    counts.on_request(BlockRequest { offset, bytes, is_index: false });
                    blocks[used] = Some(block);
                    used += 1;
                }
                *of_key = Some(used - 1);
            }
            self.read_missing(&mut blocks[..used], cache_use, counts)?;
            for (at, (key, of_key)) in keys.zip(block_of).enumerate() {
                let block = of_key.and_then(|of_key| blocks[of_key].as_ref()?.loaded());
                let target = InternalKey::seek(key, sequence);
                if let Some(block) = block {
                    block.get_with(target, |trailer, value| take(first + at, trailer, value));
                }
            }
            first += BATCH_KEYS;
        }
        Ok(())
    }

    /// Returns the data block that may hold `target`. `partition` caches the last partition used,
    /// with its index.
    fn batch_block(
        &self,
        target: InternalKey<'_>,
        cache_use: CacheUse,
        partition: &mut Option<(usize, BlockRef)>,
        counts: &mut BlockCounts,
    ) -> Result<Option<BatchBlock>, ReadError> {
        let top = self.top_index().shared();
        let Some(at) = top.position(target) else { return Ok(None) };
        if !self.has_partitions() {
            return Ok(Some(self.load_batch_block(top, at, cache_use)));
        }
        let index = match partition {
            Some((last, index)) if *last == at => index,
            _ => {
                let index = self.child(top, at, BlockRole::Index, cache_use, counts)?;
                &mut partition.insert((at, index)).1
            }
        };
        Ok(index.position(target).map(|at| self.load_batch_block(index.shared(), at, cache_use)))
    }

    /// Loads the child of entry `at` of `index` from its slot or the cache.
    fn load_batch_block(
        &self,
        index: &Arc<BlockInner>,
        at: usize,
        cache_use: CacheUse,
    ) -> BatchBlock {
        if let Some(block) = self.child_in_slot(index, at, BlockRole::Data, cache_use) {
            return BatchBlock { handle: block.handle(), state: BlockState::Loaded(block) };
        }
        let handle = index.handle_at(at);
        let state = match self.cached(handle, BlockRole::Data, cache_use) {
            Some(block) => {
                if cache_use == CacheUse::Fill {
                    block.place_in(index, at);
                }
                BlockState::Loaded(BlockRef::Owned(block))
            }
            None => BlockState::Missing(Arc::clone(index), at),
        };
        BatchBlock { handle, state }
    }

    /// Advises the source of the missing blocks, adjacent ones merged, then reads them.
    fn read_missing(
        &self,
        blocks: &mut [Option<BatchBlock>],
        cache_use: CacheUse,
        counts: &mut BlockCounts,
    ) -> Result<(), ReadError> {
        let missing = blocks.iter().flatten().filter(|block| block.loaded().is_none());
        let mut ranges: [Range<u64>; BATCH_KEYS] = [const { 0..0 }; _];
        let mut used = 0_usize;
        for range in missing.map(|block| block.handle.range()) {
            match used.checked_sub(1).map(|last| &mut ranges[last]) {
                Some(last) if last.end == range.start => last.end = range.end,
                _ => {
                    ranges[used] = range;
                    used += 1;
                }
            }
        }
        if used > 1 {
            self.source().advise_read(&ranges[..used]);
        }
        for block in blocks.iter_mut().flatten() {
            let BlockState::Missing(index, at) = &block.state else { continue };
            let read = self.read_block(block.handle, BlockRole::Data, cache_use, counts)?;
            debug_assert_eq!(read.handle(), block.handle);
            if cache_use == CacheUse::Fill {
                read.place_in(index, *at);
            }
            block.state = BlockState::Loaded(BlockRef::Owned(read));
        }
        debug_assert!(blocks.iter().flatten().all(|block| block.loaded().is_some()));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use sievedb_format::{Kind, SEQUENCE_MAX};

    use super::*;
    use crate::{BlockCache, TableIdentity, TableOptions, TableWriter};

    #[test]
    fn a_batch_fills_slots() {
        let identity = TableIdentity { store_id: 1, file_id: 2, salt: 3, hash_seed: 4 };
        let options = TableOptions::new().block_bytes(1 << 10);
        let mut writer = TableWriter::new(Vec::new(), identity, options).unwrap();
        let keys: Vec<_> = (0..40_u8).map(|key| [key; 8]).collect();
        for key in &keys {
            // One block per key.
            let trailer = Trailer::new(5, Kind::Put);
            writer.add(InternalKey::new(key, trailer), &key.repeat(100)).unwrap();
        }
        let (bytes, summary) = writer.finish().unwrap();
        let source = Arc::new(Bytes::from(bytes));
        let cache = Arc::new(BlockCache::new(1 << 20));
        let table = Table::open(source, identity, summary.bytes, cache).unwrap();
        let get_many = |cache_use| {
            let (mut found, mut counts) = (0, BlockCounts::default());
            let keys = keys.iter().map(|key| &key[..]);
            let take = |_, _, _: ValueRef<'_>| found += 1;
            table.get_many_with(&keys, SEQUENCE_MAX, cache_use, &mut counts, take).unwrap();
            (found, counts.blocks_read)
        };
        let full_slots = || (0..keys.len()).filter(|&at| table.top_index().child(at).is_some());
        assert_eq!(table.top_index().entries(), keys.len());
        assert_eq!(get_many(CacheUse::Bypass), (40, 40));
        assert_eq!(full_slots().count(), 0, "the cache holds none of them");
        assert_eq!(get_many(CacheUse::Fill), (40, 40), "read");
        assert_eq!(full_slots().count(), 40);
        // Empties the slots as if the index had been evicted and read again.
        let blocks: Vec<_> = full_slots().filter_map(|at| table.top_index().child(at)).collect();
        let other =
            table.reader().read_block(table.top_index().handle(), BlockRole::Index).unwrap();
        for (at, block) in blocks.into_iter().enumerate() {
            block.into_block().place_in(other.shared(), at);
        }
        assert_eq!(full_slots().count(), 0);
        assert_eq!(get_many(CacheUse::Fill), (40, 0), "found in the cache");
        assert_eq!(full_slots().count(), 40);
    }
}
