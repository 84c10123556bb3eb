//! Many keys in one table.

use std::{ops::Range, sync::Arc};

use sievedb_format::{InternalKey, SequenceNumber, Trailer};

use crate::{
    block::{BlockInner, BlockRole, FoundValue, HeldBlock},
    cache::{BlockCounts, BlockRequest, BlockWatch, CacheUse},
    error::ReadError,
    handle::BlockHandle,
    table::Table,
};

/// Keys whose blocks are asked for together: at most so many reads are under way at once, and so many
/// blocks in memory that the cache does not keep.
const TOGETHER: usize = 32;

/// A block that some of the keys lead to.
#[derive(Debug)]
struct Wanted {
    handle: BlockHandle,
    /// `None` until it is read.
    block: Option<HeldBlock>,
}

impl Table {
    /// Calls `take` for each of `user_keys` that has a version at or below `sequence`, with its index and
    /// the newest such version. As [`get`](Self::get) for each key, but neighbours share the search for
    /// their index partition and the request of their block, and what the cache lacks of the blocks of 32
    /// keys is announced to the source before the first of it is read. Allocates nothing itself.
    ///
    /// Keys should ascend: each run of keys with a block in common asks for it once.
    ///
    /// # Errors
    ///
    /// [`ReadError`] if a block cannot be read or is damaged: the rest of the keys is not looked up.
    pub fn get_many_with<'k>(
        &self,
        user_keys: &(impl ExactSizeIterator<Item = &'k [u8]> + Clone),
        sequence: SequenceNumber,
        cache_use: CacheUse,
        counts: &mut BlockCounts,
        mut take: impl FnMut(usize, Trailer, FoundValue<'_>),
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
                    counts.requested(BlockRequest { offset, bytes, is_index: false });
                    wanted[used] = Some(this);
                    used += 1;
                }
                *of_key = Some(used - 1);
            }
            self.read_wanted(&mut wanted[..used], cache_use, counts)?;
            for (place, (key, of_key)) in keys.zip(wanted_of).enumerate() {
                let block = of_key.and_then(|at| wanted[at].as_ref()?.block.as_ref());
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
            return Wanted { handle: block.handle(), block: Some(block) };
        }
        let handle = index.handle_at(at);
        let block = self.cached(handle, BlockRole::Data, cache_use);
        Wanted { handle, block: block.map(HeldBlock::Own) }
    }

    fn read_wanted(
        &self,
        wanted: &mut [Option<Wanted>],
        cache_use: CacheUse,
        counts: &mut BlockCounts,
    ) -> Result<(), ReadError> {
        let missing = wanted.iter().flatten().filter(|wanted| wanted.block.is_none());
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
            self.will_read(&places[..used]);
        }
        for wanted in wanted.iter_mut().flatten().filter(|wanted| wanted.block.is_none()) {
            let block = self.read_block(wanted.handle, BlockRole::Data, cache_use, counts)?;
            wanted.block = Some(HeldBlock::Own(block));
        }
        Ok(())
    }
}
