//! Many keys in one table.

use std::{ops::Range, sync::Arc};

use sievedb_format::{InternalKey, SequenceNumber, Trailer};

use crate::{
    block::{BlockInner, BlockRole, HeldBlock, ValueRef},
    cache::{BlockCounts, BlockObserver, BlockRequest, CacheUse},
    error::ReadError,
    handle::BlockHandle,
    table::Table,
};

/// Keys whose blocks are asked for together: at most so many reads are in flight at once, and so
/// many blocks in memory that the cache does not keep.
const TOGETHER: usize = 32;

/// A block that some of the keys lead to.
#[derive(Debug)]
struct Wanted {
    handle: BlockHandle,
    found: Found,
}

/// What is at hand of a block.
#[derive(Debug)]
enum Found {
    Block(HeldBlock),
    /// It has to be read, and belongs into this slot.
    Nothing(Arc<BlockInner>, usize),
}

impl Wanted {
    /// The block, once it is read.
    fn block(&self) -> Option<&HeldBlock> {
        match &self.found {
            Found::Block(block) => Some(block),
            Found::Nothing(..) => None,
        }
    }
}

impl Table {
    /// Calls `take` for each of `user_keys` that has a version at or below `sequence`, with its
    /// index and the newest such version. As [`get`](Self::get) for each key, but neighbours share
    /// the search for their index partition and the request of their block, and what the cache
    /// lacks of the blocks of 32 keys is announced to the source before the first of it is read.
    /// Allocates nothing itself.
    ///
    /// Keys should ascend: each run of keys with a block in common asks for it once.
    ///
    /// # Errors
    ///
    /// [`ReadError`] if a block cannot be read or is damaged: the rest of the keys is not looked
    /// up.
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
            let keys = user_keys.clone().skip(first).take(TOGETHER);
            let mut wanted: [Option<Wanted>; TOGETHER] = [const { None }; _];
            let mut wanted_of = [None; TOGETHER];
            let mut used = 0;
            for (key, of_key) in keys.clone().zip(&mut wanted_of) {
                let target = InternalKey::seek(key, sequence);
                let found = self.want(target, cache_use, &mut partition, counts)?;
                let Some(this) = found else { continue };
                let is_last = |wanted: &Wanted| wanted.handle == this.handle;
                if !(used > 0 && wanted[used - 1].as_ref().is_some_and(is_last)) {
                    let BlockHandle { offset, bytes } = this.handle;
                    counts.on_request(BlockRequest { offset, bytes, is_index: false });
                    wanted[used] = Some(this);
                    used += 1;
                }
                *of_key = Some(used - 1);
            }
            self.read_wanted(&mut wanted[..used], cache_use, counts)?;
            for (place, (key, of_key)) in keys.zip(wanted_of).enumerate() {
                let block = of_key.and_then(|at| wanted[at].as_ref()?.block());
                let target = InternalKey::seek(key, sequence);
                if let Some(block) = block {
                    block.get_with(target, |trailer, value| take(first + place, trailer, value));
                }
            }
            first += TOGETHER;
        }
        Ok(())
    }

    /// The block that may hold `target`, and where it lies. `partition` is the one used last, with
    /// its number.
    fn want(
        &self,
        target: InternalKey<'_>,
        cache_use: CacheUse,
        partition: &mut Option<(usize, HeldBlock)>,
        counts: &mut BlockCounts,
    ) -> Result<Option<Wanted>, ReadError> {
        let top = self.top_index().shared();
        let Some(at) = top.position(target) else { return Ok(None) };
        if !self.has_partitions() {
            return Ok(Some(self.wanted(top, at, cache_use)));
        }
        let index = match partition {
            Some((last, index)) if *last == at => index,
            _ => {
                let index = self.below(top, at, BlockRole::Index, cache_use, counts)?;
                &mut partition.insert((at, index)).1
            }
        };
        Ok(index.position(target).map(|at| self.wanted(index.shared(), at, cache_use)))
    }

    fn wanted(&self, index: &Arc<BlockInner>, at: usize, cache_use: CacheUse) -> Wanted {
        if let Some(block) = self.at_hand(index, at, BlockRole::Data, cache_use) {
            return Wanted { handle: block.handle(), found: Found::Block(block) };
        }
        let handle = index.handle_at(at);
        let found = match self.cached(handle, BlockRole::Data, cache_use) {
            Some(block) => {
                if cache_use == CacheUse::Fill {
                    block.place_in(index, at);
                }
                Found::Block(HeldBlock::Own(block))
            }
            None => Found::Nothing(Arc::clone(index), at),
        };
        Wanted { handle, found }
    }

    fn read_wanted(
        &self,
        wanted: &mut [Option<Wanted>],
        cache_use: CacheUse,
        counts: &mut BlockCounts,
    ) -> Result<(), ReadError> {
        let missing = wanted.iter().flatten().filter(|wanted| wanted.block().is_none());
        let mut places: [Range<u64>; TOGETHER] = [const { 0..0 }; _];
        let mut used = 0_usize;
        for place in missing.map(|wanted| wanted.handle.place()) {
            match used.checked_sub(1).map(|last| &mut places[last]) {
                Some(last) if last.end == place.start => last.end = place.end,
                _ => {
                    places[used] = place;
                    used += 1;
                }
            }
        }
        if used > 1 {
            self.advise_read(&places[..used]);
        }
        for wanted in wanted.iter_mut().flatten() {
            let Found::Nothing(index, at) = &wanted.found else { continue };
            let block = self.read_block(wanted.handle, BlockRole::Data, cache_use, counts)?;
            if cache_use == CacheUse::Fill {
                block.place_in(index, *at);
            }
            wanted.found = Found::Block(HeldBlock::Own(block));
        }
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
    fn blocks_of_a_batch_come_into_their_slots() {
        let identity = TableIdentity { store_id: 1, file_id: 2, salt: 3, hash_seed: 4 };
        let options = TableOptions::new().block_bytes(1 << 10);
        let mut writer = TableWriter::new(Vec::new(), identity, options).unwrap();
        let keys: Vec<_> = (0..40_u8).map(|key| [key; 8]).collect();
        for key in &keys {
            // Each in a block of its own.
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
        let in_slots = || (0..keys.len()).filter(|&at| table.top_index().below(at).is_some());
        assert_eq!(table.top_index().entries(), keys.len());
        assert_eq!(get_many(CacheUse::Bypass), (40, 40));
        assert_eq!(in_slots().count(), 0, "the cache has none of them");
        assert_eq!(get_many(CacheUse::Fill), (40, 40), "read");
        assert_eq!(in_slots().count(), 40);
        // Found by the cache alone: as if the index had been driven out and read again.
        let blocks: Vec<_> = in_slots().filter_map(|at| table.top_index().below(at)).collect();
        let other =
            table.blocks().read_block(table.top_index().handle(), BlockRole::Index).unwrap();
        for (at, block) in blocks.into_iter().enumerate() {
            block.into_block().place_in(other.shared(), at);
        }
        assert_eq!(in_slots().count(), 0);
        assert_eq!(get_many(CacheUse::Fill), (40, 0), "found in the cache");
        assert_eq!(in_slots().count(), 40);
    }
}
