//! Finds filters that should be rebuilt, by the options of the keyspace and the
//! [`plan`](super::plan). Pure.

use std::{borrow::Cow, collections::BTreeMap};

use sievedb_filter::{FilterKind, range_filter::POINTS_MAX};

use super::plan::{self, Rebuild, Residence, StoreShape, StoredFilter};
use crate::{
    FilterRole,
    filter_policy::{FilterChoice, FilterPolicy, FilterPolicyKind},
    keyspace_options::KeyspaceOptions,
    listener::FilterRebuildReason,
    prefix_extractor::NamedExtractor,
    table::TableMeta,
};

/// Share of its size by which a filter without columns may differ from its plan.
const ROUNDING_SHARE: f64 = 0.25;
/// Bytes by which such a filter may always differ.
const ROUNDING_BYTES: f64 = 512.0;

/// Options of a keyspace that determine its filters.
#[derive(Debug, Clone)]
pub(super) struct FilterSettings {
    pub(super) policy: FilterPolicy,
    pub(super) extractor: NamedExtractor,
    /// Tables have range filters.
    pub(super) ranges: bool,
    /// Most keys whose hashes fit into a worker's share. Filters of more keep their size and kind.
    pub(super) hashed_keys_max: u64,
}

/// A table and its filters.
#[derive(Debug, Clone)]
pub(super) struct TableFacts<'a> {
    /// Metadata with current level, run and locations of filters.
    pub(super) meta: Cow<'a, TableMeta>,
    /// Keys that a filter must contain.
    pub(super) user_keys: u64,
    /// Filters that are unusable.
    pub(super) unusable: Vec<FilterRole>,
    /// The point filter in its file, if usable.
    pub(super) stored: Option<StoredFilter>,
}

/// A filter that should be rebuilt.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct DueFilter {
    pub(super) table_id: u64,
    pub(super) role: FilterRole,
    pub(super) reason: FilterRebuildReason,
    /// The planned point filter; `None` for [`plan::ideal_of`] when it is built.
    pub(super) planned: Option<FilterChoice>,
}

impl FilterSettings {
    pub(super) fn of(options: &KeyspaceOptions, hashed_keys_max: u64) -> Self {
        Self {
            hashed_keys_max,
            policy: options.filter_policy,
            extractor: options.prefix_extractor.clone(),
            ranges: options.range_filter_bits_per_key > 0.0,
        }
    }

    /// Returns `true` if tables have neither point nor prefix filters.
    fn has_none(&self) -> bool {
        self.policy.kind == FilterPolicyKind::None || self.policy.bits_per_key == 0.0
    }

    /// Returns the reason, other than size, to rebuild the filter of a table for `role`.
    fn reason(&self, facts: &TableFacts<'_>, role: FilterRole) -> Option<FilterRebuildReason> {
        let is_required = match role {
            FilterRole::Point => !self.has_none(),
            FilterRole::Prefix => match &self.extractor {
                // The extractor is missing: no filter can be built, and the current one may become
                // usable again.
                NamedExtractor::Missing(_) => return None,
                NamedExtractor::Present(_) => !self.has_none(),
                NamedExtractor::None => false,
            },
            FilterRole::Range => self.ranges,
        };
        let exists = facts.meta.filter_place(role).is_some();
        let can_be_built =
            facts.user_keys > 0 && (role != FilterRole::Range || facts.user_keys <= POINTS_MAX);
        match (exists, is_required) {
            // Applies also to filters that are not required, which are dropped for this reason.
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

    /// Returns `true` if filters for `role` are built, not only dropped.
    pub(super) fn is_built(&self, role: FilterRole) -> bool {
        match role {
            FilterRole::Point => !self.has_none(),
            FilterRole::Prefix => !self.has_none() && self.extractor.present().is_some(),
            FilterRole::Range => self.ranges,
        }
    }
}

/// Returns the filters of a keyspace to rebuild. First missing and unusable point filters, then
/// those off the plan, the most false positives first, then prefix and range filters. Takes some
/// microseconds for each table.
pub(super) fn due_filters(settings: &FilterSettings, tables: &[TableFacts<'_>]) -> Vec<DueFilter> {
    let without = |role| {
        tables.iter().filter_map(move |facts| {
            let reason = settings.reason(facts, role)?;
            Some(DueFilter { table_id: facts.meta.id, role, reason, planned: None })
        })
    };
    let mut due: Vec<_> = without(FilterRole::Point).collect();
    if !settings.has_none() {
        due.extend(off_plan(settings, tables));
    }
    due.extend(without(FilterRole::Prefix).chain(without(FilterRole::Range)));
    due
}

/// Returns the point filters far off the plan.
fn off_plan<'a>(
    settings: &FilterSettings,
    tables: &'a [TableFacts<'a>],
) -> impl Iterator<Item = DueFilter> {
    let hashed_keys_max = settings.hashed_keys_max;
    let mut shape = StoreShape::of_tables(settings.policy, tables.iter().map(|facts| &*facts.meta));
    // Unusable filters are due anyway.
    let usable = tables.iter().filter(|facts| !facts.unusable.contains(&FilterRole::Point));
    let stored: BTreeMap<_, _> =
        usable.filter_map(|facts| Some((facts.meta.id, facts.stored?))).collect();
    // A filter has a user key once, and a table may have many entries of it.
    let keys: BTreeMap<_, _> =
        tables.iter().map(|facts| (facts.meta.id, facts.user_keys)).collect();
    for run in shape.keyspaces.iter_mut().flat_map(|keyspace| &mut keyspace.runs) {
        for table in &mut run.tables {
            table.stored = stored.get(&table.id).copied();
            table.resident = table.stored.map_or(Residence::Nothing, |_| Residence::Whole);
        }
    }
    let rebuilds = plan::rebuilds(&shape, &plan::plan(&shape));
    rebuilds.into_iter().filter_map(move |Rebuild { table_id, choice, .. }| {
        let stored = stored.get(&table_id)?;
        let reason = FilterRebuildReason::OffPlan;
        let due = DueFilter { table_id, role: FilterRole::Point, reason, planned: Some(choice) };
        let keys = keys[&table_id];
        (keys <= hashed_keys_max && is_worth_it(stored, choice, keys)).then_some(due)
    })
}

/// Returns `true` if a rebuilt filter of `keys` keys is nearer to `choice`. A filter without
/// columns is rounded to lines, and might be as far off again.
fn is_worth_it(stored: &StoredFilter, choice: FilterChoice, keys: u64) -> bool {
    let planned = choice.bits_per_key * keys as f64 / 8.0;
    let off = (stored.whole_bytes as f64 - planned).abs();
    stored.kind != choice.kind
        || stored.kind == FilterKind::Ribbon
        || off > (ROUNDING_SHARE * planned).max(ROUNDING_BYTES)
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
            range_tombstones: 0,
            smallest_sequence: 1,
            largest_sequence: 100,
            expiry: None,
            blob_files: Vec::new(),
            blob_depth: 0,
            written_ms: None,
        }
    }

    #[test]
    fn missing_and_wrong_point_filters_are_due() {
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
            ("damaged, not required", Off, 10.0, Damaged, Some((Unusable, BlockedBloom))),
            ("good", Auto, 10.0, Good(Columns), None),
            ("not in memory", Auto, 10.0, NotInMemory, None),
            ("none", Auto, 10.0, Nothing, Some((NoFilter, Columns))),
            ("none required", Off, 10.0, Nothing, None),
            ("no bits", Auto, 0.0, Nothing, None),
            ("not required", Off, 10.0, Good(Columns), Some((OffPlan, BlockedBloom))),
            ("not required, no bits", Auto, 0.0, Good(Columns), Some((OffPlan, BlockedBloom))),
            ("as required", Ribbon, 10.0, Good(Columns), None),
            ("a little too small", Ribbon, 10.5, Good(Columns), None),
            ("far too small", Ribbon, 14.0, Good(Columns), Some((OffPlan, Columns))),
            ("too large: drops columns", Ribbon, 5.0, Good(Columns), None),
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
                    .or_else(|| plan::ideal_of(&StoreShape::of_tables(policy, [&*meta]), 7))
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

    /// Each key was overwritten once, so the filter has half of the planned bits per entry.
    #[test]
    fn the_plan_of_a_filter_counts_user_keys() {
        let whole_bytes = KEYS / 2 * 10 / 8;
        let stored = StoredFilter { kind: FilterKind::BlockedBloom, columns: 0.0, whole_bytes };
        let meta = Cow::Owned(meta(true));
        let facts =
            TableFacts { meta, user_keys: KEYS / 2, unusable: Vec::new(), stored: Some(stored) };
        let settings =
            settings(FilterPolicy::new(FilterPolicyKind::Bloom), NamedExtractor::None, false);
        let due = due_filters(&settings, &[facts]);
        assert_eq!(due, []);
    }

    /// It was filled entry by entry, for lack of memory.
    #[test]
    fn a_filter_with_too_many_keys_for_another_build_stays() {
        let whole_bytes = KEYS * 10 / 8;
        let stored = StoredFilter { kind: FilterKind::BlockedBloom, columns: 0.0, whole_bytes };
        for (hashed_keys_max, want) in [(KEYS, 1), (KEYS - 1, 0)] {
            let meta = Cow::Owned(meta(true));
            let stored = Some(stored);
            let facts = TableFacts { meta, user_keys: KEYS, unusable: Vec::new(), stored };
            let policy = FilterPolicy::new(FilterPolicyKind::Ribbon);
            let settings =
                FilterSettings { hashed_keys_max, ..settings(policy, NamedExtractor::None, false) };
            assert_eq!(due_filters(&settings, &[facts]).len(), want, "{hashed_keys_max} keys");
        }
    }

    /// Prefix filters by the name of the extractor that found the prefixes.
    #[test]
    fn prefix_and_range_filters_follow_the_options() {
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
            ("as required", (on, fixed(4), true), both, &[], &[]),
            ("none required", (on, none(), false), (None, false), &[], &[]),
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
            ("without its function", (on, missing(), true), both, &[], &[]),
            ("none, without its function", (on, missing(), false), (None, false), &[], &[]),
            (
                "no longer required",
                (on, none(), false),
                both,
                &[],
                &[(Prefix, OffPlan), (Range, OffPlan)],
            ),
            ("excluded by the policy", (off, fixed(4), true), both, &[], &[(Prefix, OffPlan)]),
            ("excluded, and none", (off, fixed(4), true), (None, true), &[], &[]),
            (
                "damaged, not required",
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
        FilterSettings { policy, extractor, ranges, hashed_keys_max: KEYS }
    }
}
