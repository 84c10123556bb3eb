//! Which tables should get another filter than they have.
//!
//! Pure: the tables of a keyspace in, filters to build out. How bits are divided among tables,
//! [`filter_plan`](crate::filters::plan) tells.

use std::{borrow::Cow, collections::BTreeMap};

use sievedb_filter::{FilterKind, range_filter::POINTS_MAX};

use crate::{
    FilterRole,
    filter_policy::{FilterChoice, FilterPolicy, FilterPolicyKind},
    filters::plan::{self, Rebuild, Residence, StoreShape, StoredFilter},
    keyspace_options::KeyspaceOptions,
    listener::FilterRebuildReason,
    prefix_extractor::NamedExtractor,
    table::TableMeta,
};

/// The length of a filter may differ by this part of what was asked for, and by...
const ROUNDING_SHARE: f64 = 0.25;
/// ...so many bytes all the same.
const ROUNDING_BYTES: f64 = 512.0;

/// What a keyspace asks of the filters of its tables.
#[derive(Debug, Clone)]
pub(crate) struct FilterSettings {
    pub(crate) policy: FilterPolicy,
    pub(crate) extractor: NamedExtractor,
    /// Whether tables are to have range filters.
    pub(crate) ranges: bool,
}

/// What is known of a table and its filters.
#[derive(Debug, Clone)]
pub(crate) struct TableFacts<'a> {
    /// With the present level, run and places of the filters.
    pub(crate) meta: Cow<'a, TableMeta>,
    /// Keys that a filter has to know.
    pub(crate) user_keys: u64,
    /// Which filters there are that cannot be used.
    pub(crate) unusable: Vec<FilterRole>,
    /// The point filter as its file has it, if it can be used.
    pub(crate) stored: Option<StoredFilter>,
}

/// A table that should get another filter.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct DueFilter {
    pub(crate) table_id: u64,
    pub(crate) role: FilterRole,
    pub(crate) reason: FilterRebuildReason,
    /// Which one, if the plan of the point filters says so; else it is [`choice`] of what there is
    /// when it is built.
    pub(crate) planned: Option<FilterChoice>,
}

impl FilterSettings {
    pub(crate) fn of(options: &KeyspaceOptions) -> Self {
        Self {
            policy: options.filter_policy,
            extractor: options.prefix_extractor.clone(),
            ranges: options.range_filter_bits_per_key > 0.0,
        }
    }

    /// Whether tables are to have neither point nor prefix filters.
    fn wants_none(&self) -> bool {
        self.policy.kind == FilterPolicyKind::None || self.policy.bits_per_key == 0.0
    }

    /// Why the filter of a table for this role should be another one, but for how large it is.
    fn reason(&self, facts: &TableFacts<'_>, role: FilterRole) -> Option<FilterRebuildReason> {
        let is_wanted = match role {
            FilterRole::Point => !self.wants_none(),
            FilterRole::Prefix => match &self.extractor {
                // Nobody can build one, and what there is may be of use again.
                NamedExtractor::Missing(_) => return None,
                NamedExtractor::Present(_) => !self.wants_none(),
                NamedExtractor::None => false,
            },
            FilterRole::Range => self.ranges,
        };
        let is_there = facts.meta.filter_place(role).is_some();
        let can_be_built =
            facts.user_keys > 0 && (role != FilterRole::Range || facts.user_keys <= POINTS_MAX);
        match (is_there, is_wanted) {
            // Also if it is not wanted: whoever asks why it was dropped is told that.
            (true, _) if facts.unusable.contains(&role) => Some(FilterRebuildReason::Unusable),
            (true, false) => Some(FilterRebuildReason::OffPlan),
            (false, true) if can_be_built => Some(FilterRebuildReason::NoFilter),
            (true, true) if role == FilterRole::Prefix && self.is_of_another_extractor(facts) => {
                Some(FilterRebuildReason::OtherExtractor)
            }
            _ => None,
        }
    }

    fn is_of_another_extractor(&self, facts: &TableFacts<'_>) -> bool {
        let stored = facts.meta.prefix_filter.as_ref().map(|prefix| &*prefix.extractor);
        stored != self.extractor.name().as_deref()
    }

    /// Whether a filter for this role is to be built, not only dropped.
    pub(crate) fn is_built(&self, role: FilterRole) -> bool {
        match role {
            FilterRole::Point => !self.wants_none(),
            FilterRole::Prefix => !self.wants_none() && self.extractor.present().is_some(),
            FilterRole::Range => self.ranges,
        }
    }
}

/// The tables of a keyspace that should get another filter: first those of lookups that have none
/// of use, then those off the plan that cost the most reads first, then those that scans ask.
///
/// Costs about as much as the filter of a new table does: a few microseconds for each table.
pub(crate) fn due_filters(settings: &FilterSettings, tables: &[TableFacts<'_>]) -> Vec<DueFilter> {
    let without = |role| {
        tables.iter().filter_map(move |facts| {
            let reason = settings.reason(facts, role)?;
            Some(DueFilter { table_id: facts.meta.id, role, reason, planned: None })
        })
    };
    let mut due: Vec<_> = without(FilterRole::Point).collect();
    if !settings.wants_none() {
        due.extend(off_plan(&settings.policy, tables));
    }
    due.extend(without(FilterRole::Prefix).chain(without(FilterRole::Range)));
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
    let rebuilds = plan::rebuilds(&shape, &plan::plan(&shape));
    rebuilds.into_iter().filter_map(move |Rebuild { table_id, choice, .. }| {
        // The others are due anyway.
        let stored = stored.get(&table_id)?;
        let reason = FilterRebuildReason::OffPlan;
        let due = DueFilter { table_id, role: FilterRole::Point, reason, planned: Some(choice) };
        is_worth_it(stored, choice, keys[&table_id]).then_some(due)
    })
}

/// Whether a filter of so many keys comes nearer to `choice` when it is rebuilt. One that is not
/// made of columns is rounded up to lines, and would be off by as much again.
fn is_worth_it(stored: &StoredFilter, choice: FilterChoice, keys: u64) -> bool {
    let asked = choice.bits_per_key * keys as f64 / 8.0;
    let off = (stored.whole_bytes as f64 - asked).abs();
    stored.kind != choice.kind
        || stored.kind == FilterKind::Ribbon
        || off > (ROUNDING_SHARE * asked).max(ROUNDING_BYTES)
}

/// The point filter that the table `id` of `tables` should have.
pub(crate) fn choice(
    policy: &FilterPolicy,
    tables: &[Cow<'_, TableMeta>],
    id: u64,
) -> Option<FilterChoice> {
    let shape = StoreShape::of_tables(*policy, tables.iter().map(Cow::as_ref));
    plan::ideal_of(&shape, id)
}

#[cfg(test)]
mod tests {
    use sievedb_format::TableBounds;

    use super::*;
    use crate::table::{FilterPlace, PrefixFilterPlace};

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
            bounds: TableBounds::inclusive(*b"a", *b"z"),
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
        use FilterRebuildReason::{NoFilter, OffPlan, Unusable};
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
            ("none", Auto, 10.0, Nothing, Some((NoFilter, Columns))),
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
            let unusable =
                if matches!(found, Damaged) { vec![FilterRole::Point] } else { Vec::new() };
            let facts = TableFacts { meta: meta.clone(), user_keys: KEYS, unusable, stored };
            let due = due_filters(&settings(policy, NamedExtractor::None, false), &[facts]);
            let kind = |due: &DueFilter| {
                due.planned
                    .or_else(|| choice(&policy, std::slice::from_ref(&meta), 7))
                    .map(|choice| choice.kind)
            };
            assert!(due.iter().all(|due| due.role == FilterRole::Point), "{name}");
            let got = due.first().and_then(|due| Some((due.reason, kind(due)?)));
            assert_eq!((got, due.len()), (want, usize::from(want.is_some())), "{name}: {due:?}");
        }
    }

    #[test]
    fn a_table_without_points_needs_no_filter() {
        let meta = Cow::Owned(meta(false));
        let facts = TableFacts { meta, user_keys: 0, unusable: Vec::new(), stored: None };
        let settings = settings(FilterPolicy::default(), fixed(4), true);
        assert_eq!(due_filters(&settings, &[facts]), []);
    }

    /// What scans ask: by the name of the extractor that found the prefixes.
    #[test]
    fn filters_that_scans_ask_follow_the_options() {
        use FilterRebuildReason::{NoFilter, OffPlan, OtherExtractor, Unusable};
        use FilterRole::{Prefix, Range};
        let missing = || NamedExtractor::Missing("fixed:4".to_owned());
        let none = || NamedExtractor::None;
        let off = FilterPolicy::new(FilterPolicyKind::None);
        let on = FilterPolicy::default();
        type Stored = (Option<&'static str>, bool);
        type Case = (
            &'static str,
            (FilterPolicy, NamedExtractor, bool),
            Stored,
            &'static [FilterRole],
            &'static [(FilterRole, FilterRebuildReason)],
        );
        let both: Stored = (Some("fixed:4"), true);
        let cases: [Case; 14] = [
            ("as asked", (on, fixed(4), true), both, &[], &[]),
            ("no such options", (on, none(), false), (None, false), &[], &[]),
            (
                "damaged",
                (on, fixed(4), true),
                both,
                &[Prefix, Range],
                &[(Prefix, Unusable), (Range, Unusable)],
            ),
            ("one is damaged", (on, fixed(4), true), both, &[Range], &[(Range, Unusable)]),
            (
                "none yet",
                (on, fixed(4), true),
                (None, false),
                &[],
                &[(Prefix, NoFilter), (Range, NoFilter)],
            ),
            ("of another extractor", (on, fixed(5), true), both, &[], &[(Prefix, OtherExtractor)]),
            ("a function is missing", (on, missing(), true), both, &[], &[]),
            ("the same, and none yet", (on, missing(), false), (None, false), &[], &[]),
            (
                "not wanted any more",
                (on, none(), false),
                both,
                &[],
                &[(Prefix, OffPlan), (Range, OffPlan)],
            ),
            ("the policy wants none", (off, fixed(4), true), both, &[], &[(Prefix, OffPlan)]),
            ("the same, and none", (off, fixed(4), true), (None, true), &[], &[]),
            (
                "damaged, and not wanted",
                (off, none(), false),
                both,
                &[Prefix, Range],
                &[(Prefix, Unusable), (Range, Unusable)],
            ),
            ("only prefixes", (on, fixed(4), false), (None, false), &[], &[(Prefix, NoFilter)]),
            ("only ranges", (on, none(), true), (None, false), &[], &[(Range, NoFilter)]),
        ];
        for (name, (policy, extractor, ranges), (prefix, range), unusable, want) in cases {
            let place = FilterPlace { file_id: 7, offset: 64, bytes: 64, checksum: 0 };
            let mut meta = meta(policy.kind != FilterPolicyKind::None);
            meta.prefix_filter =
                prefix.map(|name| PrefixFilterPlace { place, extractor: name.into() });
            meta.range_filter = range.then_some(place);
            let kind = FilterKind::Ribbon;
            let stored = StoredFilter { kind, columns: 10.0, whole_bytes: KEYS * 10 / 8 };
            let stored = meta.filter.map(|_| stored);
            let (meta, unusable) = (Cow::Owned(meta), unusable.to_vec());
            let facts = TableFacts { meta, user_keys: KEYS, unusable, stored };
            let due = due_filters(&settings(policy, extractor, ranges), &[facts]);
            let got: Vec<_> = due.iter().map(|due| (due.role, due.reason)).collect();
            assert_eq!(got, want, "{name}");
        }
    }

    fn fixed(bytes: usize) -> NamedExtractor {
        NamedExtractor::Present(sievedb_sstable::PrefixExtractor::FixedLength(bytes))
    }

    fn settings(policy: FilterPolicy, extractor: NamedExtractor, ranges: bool) -> FilterSettings {
        FilterSettings { policy, extractor, ranges }
    }
}
