//! Which tables should get another filter than they have.
//!
//! Pure: the tables of a keyspace in, filters to build out. How bits are divided among new tables,
//! [`filter_plan`](crate::filter_plan) tells.

use sievedb_filter::FilterKind;

use crate::{
    filter_plan,
    filter_policy::{FilterChoice, FilterPolicy, FilterPolicyKind},
    listener::FilterRebuildReason,
    table::{TableMeta, store::TablePlace},
};

/// A filter whose length is off by more than this part of what the policy asks for is built anew...
const OFF_PLAN_SHARE: f64 = 0.25;
/// ...if that is more than so many bytes: small filters are rounded up.
const OFF_PLAN_BYTES_MIN: f64 = 1024.0;

/// What is known of a table and its filter.
#[derive(Debug, Clone)]
pub(crate) struct TableFacts<'a> {
    /// With the present level, run and place of the filter.
    pub(crate) meta: &'a TableMeta,
    /// Keys that a filter has to know.
    pub(crate) user_keys: u64,
    /// There is a filter, and it cannot be used.
    pub(crate) is_unusable: bool,
    /// Kind of the filter in memory.
    pub(crate) kind: Option<FilterKind>,
}

/// A filter to be built.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct DueFilter {
    pub(crate) table_id: u64,
    pub(crate) choice: FilterChoice,
    pub(crate) reason: FilterRebuildReason,
}

/// The filters to be built for the tables of a keyspace, those that cost the most reads first.
///
/// Costs time in proportion to the tables, and to their square for those without a usable filter.
pub(crate) fn due_filters(policy: &FilterPolicy, tables: &[TableFacts<'_>]) -> Vec<DueFilter> {
    let mut due: Vec<_> = tables
        .iter()
        .enumerate()
        .filter_map(|(at, facts)| {
            let reason = reason(policy, facts)?;
            let place = TablePlace { level: facts.meta.level, run: facts.meta.run };
            let others = tables.iter().enumerate().filter(|&(other, _)| other != at);
            let others = others.map(|(_, facts)| facts.meta);
            let choice = filter_plan::choose(policy, others, place, facts.meta.entries);
            let wants_one = choice.bits_per_key > 0.0 && facts.user_keys > 0;
            if !wants_one && facts.meta.filter.is_none() {
                return None;
            }
            let choice = if wants_one { choice } else { FilterChoice::NONE };
            Some(DueFilter { table_id: facts.meta.id, choice, reason })
        })
        .collect();
    // A table without a filter is read for every lookup in its range.
    due.sort_by_key(|due| due.reason == FilterRebuildReason::OffPlan);
    due
}

fn reason(policy: &FilterPolicy, facts: &TableFacts<'_>) -> Option<FilterRebuildReason> {
    if facts.is_unusable {
        return Some(FilterRebuildReason::Unusable);
    }
    if facts.meta.filter.is_none() {
        return Some(FilterRebuildReason::Missing);
    }
    is_off_plan(policy, facts).then_some(FilterRebuildReason::OffPlan)
}

/// Whether the filter is another one than a policy wants that treats all tables alike.
fn is_off_plan(policy: &FilterPolicy, facts: &TableFacts<'_>) -> bool {
    let bits = policy.bits_per_key;
    let wanted = match policy.kind {
        FilterPolicyKind::None => return true,
        _ if bits == 0.0 => return true,
        // What it has depends on all others, and changes with each flush.
        FilterPolicyKind::Auto => return false,
        FilterPolicyKind::Fuse => {
            return facts.kind.is_some_and(|kind| kind != FilterKind::BinaryFuse);
        }
        FilterPolicyKind::Bloom => FilterKind::BlockedBloom,
        FilterPolicyKind::Ribbon if bits < 1.0 => FilterKind::BlockedBloom,
        FilterPolicyKind::Ribbon => FilterKind::Ribbon,
    };
    if facts.kind.is_some_and(|kind| kind != wanted) {
        return true;
    }
    let found = facts.meta.filter.map_or(0, |place| place.bytes) as f64;
    let asked = bits * facts.user_keys as f64 / 8.0;
    (found - asked).abs() > (OFF_PLAN_SHARE * asked).max(OFF_PLAN_BYTES_MIN)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::FilterPlace;

    fn meta(filter_bytes: u64) -> TableMeta {
        let place = FilterPlace { file_id: 7, offset: 64, bytes: filter_bytes, checksum: 0 };
        TableMeta {
            id: 7,
            level: 0,
            run: 1,
            bytes: 1 << 20,
            checksum: 0,
            salt: 0,
            filter: (filter_bytes > 0).then_some(place),
            global_sequence: None,
            smallest: (*b"a").into(),
            largest: (*b"z").into(),
            entries: 8_000,
            tombstones: 0,
            smallest_sequence: 1,
            largest_sequence: 100,
            oldest_expiry_ms: None,
            blob_files: Vec::new(),
        }
    }

    #[test]
    fn each_table_gets_what_it_lacks() {
        use FilterKind::{BinaryFuse, BlockedBloom, Ribbon as Columns};
        use FilterPolicyKind::{Auto, Bloom, Fuse, None as Off, Ribbon};
        use FilterRebuildReason::{Missing, OffPlan, Unusable};
        let good = |kind| (10_000, false, Some(kind));
        let cases = [
            ("damaged", Auto, 10.0, (10_000, true, None), Some((Unusable, Columns))),
            ("damaged Bloom", Bloom, 10.0, (10_000, true, None), Some((Unusable, BlockedBloom))),
            ("good", Auto, 10.0, good(Columns), None),
            ("not resident", Auto, 10.0, (10_000, false, None), None),
            ("none", Auto, 10.0, (0, false, None), Some((Missing, Columns))),
            ("none, as it should be", Off, 10.0, (0, false, None), None),
            ("no bits, as it should be", Auto, 0.0, (0, false, None), None),
            (
                "damaged, and not wanted",
                Off,
                10.0,
                (10_000, true, None),
                Some((Unusable, BlockedBloom)),
            ),
            ("not wanted", Off, 10.0, good(Columns), Some((OffPlan, BlockedBloom))),
            ("not wanted, no bits", Auto, 0.0, good(Columns), Some((OffPlan, BlockedBloom))),
            ("Bloom", Bloom, 10.0, good(BlockedBloom), None),
            ("a little off", Bloom, 11.0, good(BlockedBloom), None),
            ("too small", Bloom, 14.0, good(BlockedBloom), Some((OffPlan, BlockedBloom))),
            ("too large", Bloom, 7.0, good(BlockedBloom), Some((OffPlan, BlockedBloom))),
            ("another kind", Ribbon, 10.0, good(BlockedBloom), Some((OffPlan, Columns))),
            ("less than a column", Ribbon, 0.9, (900, false, Some(BlockedBloom)), None),
            ("fuse", Fuse, 10.0, good(BinaryFuse), None),
            ("not fuse", Fuse, 10.0, good(Columns), Some((OffPlan, BinaryFuse))),
        ];
        for (name, kind, bits, (bytes, is_unusable, found), want) in cases {
            let policy = FilterPolicy::new(kind).bits_per_key(bits);
            let meta = meta(bytes);
            let facts = TableFacts { meta: &meta, user_keys: 8_000, is_unusable, kind: found };
            let due = due_filters(&policy, &[facts]);
            let got = due.first().map(|due| (due.reason, due.choice.kind));
            assert_eq!((got, due.len()), (want, usize::from(want.is_some())), "{name}");
        }
    }

    #[test]
    fn a_table_without_points_needs_no_filter() {
        let meta = meta(0);
        let facts = TableFacts { meta: &meta, user_keys: 0, is_unusable: false, kind: None };
        assert_eq!(due_filters(&FilterPolicy::default(), &[facts]), []);
    }
}
