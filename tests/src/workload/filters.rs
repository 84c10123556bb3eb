//! Workloads with rebuilt filters in filter files.

use sievedb::{
    Durability::{Disk, OsBuffer},
    FilterPolicy, FilterPolicyKind, KeyspaceOptions, PrefixExtractor,
};

use super::key;
use crate::{model::DEFAULT, recorder::Recorder, settings::small_keyspace};

fn table(r: &mut Recorder, from: usize) {
    for number in from..from + 4 {
        r.insert_with(DEFAULT, key(number * 2), 60, OsBuffer);
    }
    r.flush();
}

fn reopen_with(r: &mut Recorder, kind: FilterPolicyKind, bits_per_key: f64) {
    r.set_filter_policy(FilterPolicy::new(kind).bits_per_key(bits_per_key));
    r.reopen();
    r.wait_for_background();
}

/// A filter replaces none, one in its table, and one in a filter file; at the end it is removed.
pub(super) fn rebuilt(r: &mut Recorder) {
    r.set_filter_policy(FilterPolicy::new(FilterPolicyKind::None));
    r.reopen();
    table(r, 0);
    reopen_with(r, FilterPolicyKind::Bloom, 10.0);
    table(r, 2);
    reopen_with(r, FilterPolicyKind::Ribbon, 12.0);
    r.check();
    r.insert_with(DEFAULT, key(3), 60, Disk);
    reopen_with(r, FilterPolicyKind::Fuse, 9.0);
    reopen_with(r, FilterPolicyKind::None, 0.0);
    r.insert_with(DEFAULT, key(5), 60, Disk);
}

/// Tables with filter files are compacted, and dropped with their keyspace.
pub(super) fn rebuilt_and_compacted(r: &mut Recorder) {
    r.set_filter_policy(FilterPolicy::new(FilterPolicyKind::None));
    r.reopen();
    r.create("other");
    table(r, 0);
    r.insert("other", key(1), 60);
    r.flush();
    reopen_with(r, FilterPolicyKind::Bloom, 10.0);
    r.compact();
    table(r, 1);
    reopen_with(r, FilterPolicyKind::Ribbon, 10.0);
    r.drop_keyspace("other");
    r.compact();
    r.insert_with(DEFAULT, key(3), 60, Disk);
}

fn reopen_as(r: &mut Recorder, keyspace: KeyspaceOptions) {
    r.set_keyspace(keyspace);
    r.reopen();
    r.wait_for_background();
}

/// Prefix and range filters replace none, those in tables, and those in filter files. At the end
/// they are removed, and their tables are compacted.
pub(super) fn of_scans_rebuilt(r: &mut Recorder) {
    let prefixes = |bytes| small_keyspace().prefix_extractor(PrefixExtractor::FixedLength(bytes));
    r.set_keyspace(small_keyspace());
    r.reopen();
    table(r, 0);
    reopen_as(r, prefixes(4).range_filter_bits_per_key(8.0));
    table(r, 2);
    reopen_as(r, prefixes(3).range_filter_bits_per_key(8.0));
    r.check();
    reopen_as(r, prefixes(4));
    r.insert_with(DEFAULT, key(3), 60, Disk);
    reopen_as(r, small_keyspace().range_filter_bits_per_key(8.0));
    reopen_as(r, prefixes(4).range_filter_bits_per_key(8.0));
    r.compact();
    r.insert_with(DEFAULT, key(5), 60, Disk);
}
