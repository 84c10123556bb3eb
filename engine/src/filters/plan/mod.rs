//! Which filter each table has: how much of it in memory, and how many bits a new one gets.
//!
//! A lookup of an absent key asks one table of every sorted run, so it reads in vain as often as
//! the rates of the runs add up to. A bit a key costs a run as many bits as it has keys, and saves
//! half of its rate: small runs take many bits a key, the largest one gives some up. At the best of
//! all divisions the rate of a run is proportional to its size (Dayan, Athanassoulis and Idreos,
//! "Monkey: Optimal Navigable Key-Value Store", SIGMOD 2017). The same holds within a run for
//! tables that are asked more or less often than their keys let expect, and among keyspaces.
//!
//! | question                                          | answer       |
//! |---------------------------------------------------|--------------|
//! | what should be in memory of the stored filters?   | [`plan`]     |
//! | which of them should be rebuilt?               | [`rebuilds`] |
//! | which filter do new tables get?                   | [`choose`]   |
//! | which one does a table get that has none of use?  | [`ideal_of`] |
//!
//! Three bounds hold together: [`StoreShape::filter_bytes_max`], the same of each keyspace, and,
//! with [`Auto`](crate::FilterPolicyKind::Auto), the bits per key of the policy as an average.
//! Bytes go where they save the most false positives per lookup, so with fewer of them the deep
//! tables that are asked seldom lose columns first, one at a time; at the end those that profit
//! least have no filter. Only ribbons give up columns; others stay, go, or are rebuilt.
//!
//! Pure functions: the store says what it has, and does what the plan says.
//!
//! | module       | holds                                            |
//! |--------------|--------------------------------------------------|
//! | [`shape`]    | what the planner is told                         |
//! | [`target`]   | what it answers                                  |
//! | [`weight`]   | how many of the lookups ask each table           |
//! | [`curve`]    | what a filter of each size costs and is good for |
//! | [`spend`]    | bytes go where they save the most                |
//! | [`division`] | the plan, and the best one with new filters      |
//! | [`rebuild`]  | which filters are far off that                   |
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
