//! Handles and iterators can be moved to other threads.

use sievedb_typed::{
    Entries, Error, Index, IndexEntries, IndexMatches, IndexSnapshot, Indexed, Keys, Schema,
    TypedKeyspace, TypedSnapshot,
};

const fn moves_to_threads<T: Send + 'static>() {}

const fn is_shared_by_threads<T: Send + Sync + 'static>() {}

/// The check is done by the compiler.
const _: () = {
    is_shared_by_threads::<TypedKeyspace<u64, String>>();
    is_shared_by_threads::<TypedSnapshot<u64, String>>();
    is_shared_by_threads::<Indexed<u64, String>>();
    is_shared_by_threads::<Index<String, u64, String>>();
    is_shared_by_threads::<IndexSnapshot<String, u64, String>>();
    is_shared_by_threads::<Error>();
    moves_to_threads::<Schema>();
    moves_to_threads::<Entries<u64, String>>();
    moves_to_threads::<Keys<u64>>();
    moves_to_threads::<IndexEntries<String, u64, String>>();
    moves_to_threads::<IndexMatches<String, u64, String>>();
};
