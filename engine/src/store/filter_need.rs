//! Which tables should get another filter than they have.
//!
//! Pure: the tables of a keyspace in, filters to build out. How bits are divided among tables,
//! [`filter_plan`](crate::filter_plan) tells.

use std::{borrow::Cow, collections::BTreeMap};

use sievedb_filter::FilterKind;

use crate::{
    filter_plan::{self, Rebuild, Residence, StoreShape, StoredFilter},
    filter_policy::{FilterChoice, FilterPolicy, FilterPolicyKind},
    listener::FilterRebuildReason,
    table::{TableMeta, store::TablePlace},
};

/// The length of a filter may differ by this part of what was asked for, and by...
const ROUNDING_SHARE: f64 = 0.25;
/// ...so many bytes all the same.
const ROUNDING_BYTES: f64 = 512.0;

/// What is known of a table and its filter.
#[derive(Debug, Clone)]
pub(crate) struct TableFacts<'a> {
    /// With the present level, run and place of the filter.
    pub(crate) meta: Cow<'a, TableMeta>,
    /// Keys that a filter has to know.
    pub(crate) user_keys: u64,
    /// There is a filter, and it cannot be used.
    pub(crate) is_unusable: bool,
    /// The filter as its file has it, if it can be used.
    pub(crate) stored: Option<StoredFilter>,
}

/// A table that should get another filter.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct DueFilter {
    pub(crate) table_id: u64,
    pub(crate) reason: FilterRebuildReason,
    /// Which one, if the plan says so; else it is [`choice`] of what there is when it is built.
    pub(crate) planned: Option<FilterChoice>,
}

/// The tables of a keyspace that should get another filter, those that cost the most reads first.
///
/// Costs about as much as the filter of a new table does: a few microseconds for each table.
pub(crate) fn due_filters(policy: &FilterPolicy, tables: &[TableFacts<'_>]) -> Vec<DueFilter> {
    let wants_none = policy.kind == FilterPolicyKind::None || policy.bits_per_key == 0.0;
    let mut due: Vec<_> = tables
        .iter()
        .filter_map(|facts| {
            let reason = match facts.meta.filter {
                Some(_) if facts.is_unusable => FilterRebuildReason::Unusable,
                Some(_) if wants_none => FilterRebuildReason::OffPlan,
                None if !wants_none && facts.user_keys > 0 => FilterRebuildReason::Missing,
                _ => return None,
            };
            Some(DueFilter { table_id: facts.meta.id, reason, planned: None })
        })
        .collect();
    if !wants_none {
        due.extend(off_plan(policy, tables));
    }
    due
}

/// The tables whose filter is far off the plan.
fn off_plan<'a>(
    policy: &FilterPolicy,
    tables: &'a [TableFacts<'a>],
) -> impl Iterator<Item = DueFilter> {
    let mut shape = StoreShape::of_tables(*policy, tables.iter().map(|facts| &*facts.meta));
    let stored: BTreeMap<_, _> =
        tables.iter().filter_map(|facts| Some((facts.meta.id, facts.stored?))).collect();
    for run in shape.keyspaces.iter_mut().flat_map(|keyspace| &mut keyspace.runs) {
        for table in &mut run.tables {
            table.stored = stored.get(&table.id).copied();
            table.resident = table.stored.map_or(Residence::Nothing, |_| Residence::Whole);
        }
    }
    let keys: BTreeMap<_, _> =
        tables.iter().map(|facts| (facts.meta.id, facts.meta.entries)).collect();
    let rebuilds = filter_plan::rebuilds(&shape, &filter_plan::plan(&shape));
    rebuilds.into_iter().filter_map(move |Rebuild { table_id, choice, .. }| {
        // The others are due anyway.
        let stored = stored.get(&table_id)?;
        let reason = FilterRebuildReason::OffPlan;
        let due = DueFilter { table_id, reason, planned: Some(choice) };
        is_worth_it(stored, choice, keys[&table_id]).then_some(due)
    })
}

/// Whether a filter of so many keys comes nearer to `choice` when it is built anew. One that is not
/// made of columns is rounded up to lines, and would be off by as much again.
fn is_worth_it(stored: &StoredFilter, choice: FilterChoice, keys: u64) -> bool {
    let asked = choice.bits_per_key * keys as f64 / 8.0;
    let off = (stored.whole_bytes as f64 - asked).abs();
    stored.kind != choice.kind
        || stored.kind == FilterKind::Ribbon
        || off > (ROUNDING_SHARE * asked).max(ROUNDING_BYTES)
}

/// The filter that the table `id` of `tables` should have.
pub(crate) fn choice(
    policy: &FilterPolicy,
    tables: &[Cow<'_, TableMeta>],
    id: u64,
) -> Option<FilterChoice> {
    let table = tables.iter().find(|table| table.id == id)?;
    let all = StoreShape::of_tables(*policy, tables.iter().map(Cow::as_ref));
    // As if no table had a filter: it is then not far off the plan with what it gets.
    let rebuilds = filter_plan::rebuilds(&all, &filter_plan::plan(&all));
    if let Some(found) = rebuilds.iter().find(|rebuild| rebuild.table_id == id) {
        return Some(found.choice);
    }
    let place = TablePlace { level: table.level, run: table.run };
    let others = tables.iter().filter(|other| other.id != id).map(Cow::as_ref);
    Some(filter_plan::choose(StoreShape::of_tables(*policy, others), 0, place, table.entries))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::FilterPlace;

    const KEYS: u64 = 80_000;

    fn meta(has_filter: bool) -> TableMeta {
        let place = FilterPlace { file_id: 7, offset: 64, bytes: KEYS * 10 / 8, checksum: 0 };
        TableMeta {
            id: 7,
            level: 0,
            run: 1,
            bytes: 1 << 20,
            checksum: 0,
            salt: 0,
            filter: has_filter.then_some(place),
            prefix_filter: None,
            range_filter: None,
            global_sequence: None,
            smallest: (*b"a").into(),
            largest: (*b"z").into(),
            entries: KEYS,
            tombstones: 0,
            smallest_sequence: 1,
            largest_sequence: 100,
            oldest_expiry_ms: None,
            blob_files: Vec::new(),
        }
    }

    #[test]
    fn each_table_gets_what_it_lacks() {
        use FilterKind::{BlockedBloom, Ribbon as Columns};
        use FilterPolicyKind::{Auto, Bloom, None as Off, Ribbon};
        use FilterRebuildReason::{Missing, OffPlan, Unusable};
        #[derive(Debug, Clone, Copy)]
        enum Found {
            Nothing,
            Damaged,
            NotInMemory,
            Good(FilterKind),
        }
        use Found::{Damaged, Good, NotInMemory, Nothing};
        let cases = [
            ("damaged", Auto, 10.0, Damaged, Some((Unusable, Columns))),
            ("damaged, Bloom", Bloom, 10.0, Damaged, Some((Unusable, BlockedBloom))),
            ("damaged, and not wanted", Off, 10.0, Damaged, Some((Unusable, BlockedBloom))),
            ("good", Auto, 10.0, Good(Columns), None),
            ("not in memory", Auto, 10.0, NotInMemory, None),
            ("none", Auto, 10.0, Nothing, Some((Missing, Columns))),
            ("none, as it should be", Off, 10.0, Nothing, None),
            ("no bits, as it should be", Auto, 0.0, Nothing, None),
            ("not wanted", Off, 10.0, Good(Columns), Some((OffPlan, BlockedBloom))),
            ("not wanted, no bits", Auto, 0.0, Good(Columns), Some((OffPlan, BlockedBloom))),
            ("as asked", Ribbon, 10.0, Good(Columns), None),
            ("a little too small", Ribbon, 10.5, Good(Columns), None),
            ("far too small", Ribbon, 14.0, Good(Columns), Some((OffPlan, Columns))),
            ("too large: gives up columns", Ribbon, 5.0, Good(Columns), None),
            ("another kind", Bloom, 10.0, Good(Columns), Some((OffPlan, BlockedBloom))),
            ("the other kind", Ribbon, 10.0, Good(BlockedBloom), Some((OffPlan, Columns))),
        ];
        for (name, kind, bits, found, want) in cases {
            let policy = FilterPolicy::new(kind).bits_per_key(bits);
            let meta: Cow<'_, TableMeta> = Cow::Owned(meta(!matches!(found, Nothing)));
            let stored = match found {
                Good(kind) => {
                    Some(StoredFilter { kind, columns: 10.0, whole_bytes: KEYS * 10 / 8 })
                }
                _ => None,
            };
            let is_unusable = matches!(found, Damaged);
            let facts = TableFacts { meta: meta.clone(), user_keys: KEYS, is_unusable, stored };
            let due = due_filters(&policy, &[facts]);
            let kind = |due: &DueFilter| {
                due.planned
                    .or_else(|| choice(&policy, std::slice::from_ref(&meta), 7))
                    .map(|choice| choice.kind)
            };
            let got = due.first().and_then(|due| Some((due.reason, kind(due)?)));
            assert_eq!((got, due.len()), (want, usize::from(want.is_some())), "{name}: {due:?}");
        }
    }

    #[test]
    fn a_table_without_points_needs_no_filter() {
        let meta = Cow::Owned(meta(false));
        let facts = TableFacts { meta, user_keys: 0, is_unusable: false, stored: None };
        assert_eq!(due_filters(&FilterPolicy::default(), &[facts]), []);
    }
}
