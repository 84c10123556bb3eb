//! Builds the filter of a table from its keys, which are read again, and stores it in a file of its
//! own.

use std::sync::Arc;

use sievedb_filter::{RangeFilter, TableFilter};
use sievedb_format::Corruption;
use sievedb_sstable::{
    FilterKeys, FilterUnusable, PrefixFilter, StoredFilter, Table, TableIdentity, TableOptions,
    write_filter_file, write_range_filter_file,
};

use super::FilterHost;
use crate::{
    Error, FilterRole, Result,
    error::SYNC,
    file_name::FileName,
    filter_policy::FilterChoice,
    keyspace_options::KeyspaceOptions,
    read::tree::Tree,
    table::{
        FilterPlace, LiveTable, NewPlace, PrefixFilterPlace,
        cache_room::ShareTaken,
        read_buffers::{ReadBuffers, RunBuffers},
        room::{ENTRIES_CHARGED, ENTRY_BYTES, filter_bytes},
        scan_filters::StoredWhole,
        store::TableStore,
        unfinished::{FileSink, Unfinished},
    },
};

/// A built filter in memory.
#[derive(Debug)]
pub(super) enum BuiltFilter {
    Point(TableFilter),
    Prefix(PrefixFilter),
    Range(RangeFilter),
}

/// A built and written filter that is not in memory.
#[derive(Debug)]
pub(super) enum StoredFilterFile {
    Point(FilterPlace, StoredFilter),
    Prefix(PrefixFilterPlace, StoredWhole),
    Range(FilterPlace, StoredWhole),
}

impl StoredFilterFile {
    /// Returns its place in the manifest.
    pub(super) fn new_place(&self) -> NewPlace {
        match self {
            Self::Point(place, _) => NewPlace::Point(Some(*place)),
            Self::Prefix(place, _) => NewPlace::Prefix(Some(place.clone())),
            Self::Range(place, _) => NewPlace::Range(Some(*place)),
        }
    }
}

/// Builds the filter of all keys of a table for `role`, with memory from a worker's share. Returns
/// `None` if the filter is no longer needed.
///
/// If the share is too small for the hashes, the point filter is a blocked Bloom filter.
///
/// # Errors
///
/// Errors of reading the table; [`Error::FilterTooLarge`] before that.
pub(super) fn build(
    host: &impl FilterHost,
    tree: &Tree,
    live: &LiveTable,
    role: FilterRole,
    choice: FilterChoice,
) -> Result<Option<(BuiltFilter, ShareTaken)>> {
    let (store, properties) = (host.tables(), live.table.properties());
    let keys = properties.user_keys;
    let large_bytes = (role == FilterRole::Point).then(|| filter_bytes(choice, keys));
    let (mut taken, is_large) = take_share(store, keys, large_bytes)?;
    let mut options = one_filter(&tree.options(), role, choice);
    if is_large {
        options = options.filter_keys_max(keys);
    }
    let left = taken.share().bytes_max().saturating_sub(taken.bytes());
    let buffers = ReadBuffers::take(taken.share(), &[RunBuffers::of_tables([live])], left / 2);
    let mut keys = FilterKeys::new(&options, &store.identity(&live.meta));
    let mut cursor = Table::cursor(Arc::clone(&live.table), buffers.cursor_options());
    let (mut last, mut entries) = (None::<Vec<u8>>, 0_u64);
    cursor.seek_to_first().map_err(|error| live.error(error))?;
    while let Some(key) = cursor.key() {
        if entries.is_multiple_of(ENTRIES_CHARGED) && (host.is_ending() || tree.is_dropped()) {
            return Ok(None);
        }
        entries += 1;
        if last.as_deref() != Some(key.user_key) {
            keys.add(key.user_key);
            let last = last.get_or_insert_default();
            last.clear();
            last.extend_from_slice(key.user_key);
        }
        cursor.next().map_err(|error| live.error(error))?;
    }
    // A filter over a part of the keys would hide the others.
    let expected = properties.points();
    if entries != expected {
        let source =
            Corruption::Mismatch { what: "entries of the table", expected, found: entries };
        return Err(Error::corrupt(&*live.path, 0, source));
    }
    drop((cursor, buffers));
    let is_closing = || store.is_closing();
    let built = match role {
        FilterRole::Point => keys.build_points(&is_closing).map(BuiltFilter::Point),
        FilterRole::Prefix => keys.build_prefixes(&is_closing).map(BuiltFilter::Prefix),
        FilterRole::Range => {
            let bounds = &live.meta.bounds;
            keys.build_ranges(&bounds.smallest, &bounds.largest).map(BuiltFilter::Range)
        }
    };
    Ok(built.map(|filter| {
        let bytes = match &filter {
            BuiltFilter::Point(filter) => filter.memory_bytes(),
            BuiltFilter::Prefix(prefix) => prefix.filter.memory_bytes(),
            BuiltFilter::Range(filter) => filter.memory_bytes(),
        };
        // Includes the encoded form.
        taken.set(2 * bytes as u64);
        (filter, taken)
    }))
}

/// Takes the memory of a build over `keys` keys, which must fit into a worker's share. Returns
/// `true` if it suffices only for a filter of `large_bytes` bytes that is filled key by key.
fn take_share(
    store: &TableStore,
    keys: u64,
    large_bytes: Option<u64>,
) -> Result<(ShareTaken, bool)> {
    let share = store.worker_share();
    let (bytes, bytes_max) = (keys.saturating_mul(ENTRY_BYTES as u64), share.bytes_max());
    match large_bytes.filter(|&large| large <= bytes_max / 2) {
        _ if bytes <= bytes_max => Ok((share.take(bytes), false)),
        Some(large_bytes) => Ok((share.take(large_bytes), true)),
        None => Err(Error::FilterTooLarge { bytes, bytes_max }),
    }
}

/// Returns the most keys whose hashes fit into a worker's share.
pub(super) fn hashed_keys_max(store: &TableStore) -> u64 {
    store.writing_bytes_max() / ENTRY_BYTES as u64
}

/// Returns the options of a table with only this filter.
fn one_filter(options: &KeyspaceOptions, role: FilterRole, choice: FilterChoice) -> TableOptions {
    let none = TableOptions::default().filter_kind(choice.kind).filter_bits_per_key(0.0);
    match role {
        FilterRole::Point => none.filter_bits_per_key(choice.bits_per_key),
        FilterRole::Prefix => match options.prefix_extractor.present() {
            Some(extractor) => {
                none.prefix_filter(extractor.clone(), options.filter_policy.bits_per_key)
            }
            None => none,
        },
        FilterRole::Range => none.range_filter_bits_per_key(options.range_filter_bits_per_key),
    }
}

/// Writes the filter of `live` into a file of its own. With `sync`, its data are durable on return;
/// its directory entry is not.
///
/// # Errors
///
/// [`Error::Io`]. The file written so far is obsolete.
pub(super) fn write(
    store: &TableStore,
    live: &LiveTable,
    filter: &BuiltFilter,
    sync: bool,
) -> Result<NewPlace> {
    let file_id = store.new_file_id();
    let path = FileName::Filter(file_id).path(&store.folder);
    let file = store.fs.create(&path).map_err(|error| Error::io("create", &path, error))?;
    let mut unfinished = Unfinished::new(path, &store.obsolete_files);
    let path = &unfinished.path;
    let (mut sink, identity) = (FileSink(Arc::clone(&file)), store.identity(&live.meta));
    let written = match filter {
        BuiltFilter::Point(filter) => write_filter_file(&mut sink, &identity, file_id, filter),
        BuiltFilter::Prefix(PrefixFilter { filter, hash_seed, .. }) => {
            let identity = TableIdentity { hash_seed: *hash_seed, ..identity };
            write_filter_file(&mut sink, &identity, file_id, filter)
        }
        BuiltFilter::Range(filter) => {
            write_range_filter_file(&mut sink, &identity, file_id, filter)
        }
    };
    let place = written.map_err(|error| Error::io("write", path, error))?;
    if sync {
        file.sync_data().map_err(|error| Error::io(SYNC, path, error))?;
    }
    unfinished.finish();
    let place = FilterPlace::in_file(file_id, place);
    Ok(match filter {
        BuiltFilter::Point(_) => NewPlace::Point(Some(place)),
        BuiltFilter::Prefix(PrefixFilter { extractor, .. }) => {
            NewPlace::Prefix(Some(PrefixFilterPlace { place, extractor: extractor.clone() }))
        }
        BuiltFilter::Range(_) => NewPlace::Range(Some(place)),
    })
}

/// Reads back and verifies the filter at `place`, just written. A prefix filter has hashes of
/// `prefix_seed`. `None` for no place.
///
/// # Errors
///
/// [`FilterUnusable`].
pub(super) fn read_back(
    store: &TableStore,
    live: &LiveTable,
    place: NewPlace,
    prefix_seed: u64,
) -> Result<Option<StoredFilterFile>, FilterUnusable> {
    let (meta, source) = (&live.meta, live.table.source());
    Ok(match place {
        NewPlace::Point(Some(place)) => {
            let stored = store.open_filter_file(meta, place)?;
            stored.check()?;
            Some(StoredFilterFile::Point(place, stored))
        }
        NewPlace::Prefix(Some(prefix)) => {
            let stored = store.scan_file(source, meta, prefix.place, Some(prefix_seed))?;
            stored.check_prefix()?;
            Some(StoredFilterFile::Prefix(prefix, stored))
        }
        NewPlace::Range(Some(place)) => {
            let stored = store.scan_file(source, meta, place, None)?;
            stored.check_range(meta)?;
            Some(StoredFilterFile::Range(place, stored))
        }
        NewPlace::Point(None) | NewPlace::Prefix(None) | NewPlace::Range(None) => None,
    })
}
