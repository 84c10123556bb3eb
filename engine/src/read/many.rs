//! Many keys by one call: cut into chunks that are looked up together.

use smallvec::SmallVec;

use crate::{
    Result,
    read::answer::Answer,
    read::filter_set::FilterSet,
    read::many_lookup::{CHUNK_KEYS, ManyLookup, ManyReader},
};

impl ManyReader<'_> {
    /// Looks `keys` up in chunks, and gives `take` what each of them has, in their order.
    ///
    /// Keeps no more keys than a chunk has.
    pub(crate) fn find_each<K: AsRef<[u8]>, A: Answer>(
        &self,
        keys: impl Iterator<Item = K>,
        mut take: impl FnMut(Option<A>),
    ) -> Result<()> {
        let Self { tree, view, .. } = *self;
        let mut lookup = ManyLookup::new(self);
        let mut keys = keys.fuse();
        let mut chunk = Vec::with_capacity(keys.size_hint().0.min(CHUNK_KEYS));
        let mut answers = Vec::with_capacity(chunk.capacity());
        loop {
            chunk.extend(keys.by_ref().take(CHUNK_KEYS));
            if chunk.is_empty() {
                return Ok(());
            }
            answers.resize_with(chunk.len(), || None);
            let bytes: SmallVec<[&[u8]; CHUNK_KEYS]> = chunk.iter().map(AsRef::as_ref).collect();
            let now = tree.view();
            if now.version.number() == view.version.number() {
                lookup.find(&now.filters, &bytes, &mut answers)?;
            } else {
                // Not the filters of another version, and not for the whole call those of the first
                // moment: a filter that was replaced meanwhile would stay in memory.
                drop(now);
                lookup.find(&FilterSet::of(&view.version), &bytes, &mut answers)?;
            }
            drop(bytes);
            chunk.clear();
            answers.drain(..).for_each(&mut take);
        }
    }
}
