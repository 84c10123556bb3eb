//! Filter planner: the part of each filter in memory, and the bits per key of new filters.
//!
//! A lookup of an absent key probes one table of every sorted run. The rates of the runs add up to
//! its expected false positives. One more bit per key costs a run as many bits as it has keys, and
//! halves its rate. So small runs get many bits per key, and the largest gets fewer. At the best
//! division the rate of a run is proportional to its size (Dayan, Athanassoulis and Idreos,
//! "Monkey: Optimal Navigable Key-Value Store", SIGMOD 2017). The same holds within a run for
//! tables that are probed more or less often than their keys suggest, and among keyspaces.
//!
//! | result                                        | function     |
//! |-----------------------------------------------|--------------|
//! | part of each stored filter in memory          | [`plan`]     |
//! | stored filters to rebuild                     | [`rebuilds`] |
//! | filter of new tables                          | [`choose`]   |
//! | filter of a table that has no usable one      | [`ideal_of`] |
//!
//! Three bounds hold together: [`StoreShape::filter_bytes_max`], the same of each keyspace, and,
//! with [`Auto`](crate::FilterPolicyKind::Auto), the bits per key of the policy as an average.
//! Bytes go where they save the most false positives per lookup. With fewer bytes, deep tables that
//! are rarely probed drop columns first, one at a time. In the end the least useful filters are
//! dropped whole. Only ribbons drop columns; other filters stay, are dropped, or are rebuilt.
//!
//! Pure functions: the store provides its shape and carries out the plan.
//!
//! | module       | content                                          |
//! |--------------|--------------------------------------------------|
//! | [`shape`]    | input                                            |
//! | [`target`]   | output                                           |
//! | [`weight`]   | share of the lookups that probe each table       |
//! | [`curve`]    | memory and false-positive rate of each size      |
//! | [`spend`]    | division of bytes by benefit                     |
//! | [`division`] | the plan, and the best one with new filters      |
//! | [`rebuild`]  | filters that are far off the best one            |
//! | [`choice`]   | the filter of new tables                         |

mod choice;
mod curve;
mod division;
mod rebuild;
mod shape;
mod spend;
mod target;
#[cfg(test)]
mod tests;
mod weight;

pub(crate) use choice::{choose, ideal_of};
pub(crate) use division::plan;
pub(crate) use rebuild::rebuilds;
pub(crate) use shape::{
    KeyspaceShape, Residence, RunShape, StoreShape, StoredFilter, TableShape, TableUse,
};
pub(crate) use target::{FilterPlan, Rebuild};
pub(crate) use weight::keyspace_shares;
