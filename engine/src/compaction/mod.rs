//! Chooses compactions, and the versions that they keep. Pure: no I/O, no locks, no clock.
//!
//! | module         | content                                                            |
//! |----------------|--------------------------------------------------------------------|
//! | [`levels`]     | tables, bytes and targets of the levels                            |
//! | [`debt`]       | pending compactions                                                |
//! | [`picker`]     | next compaction                                                    |
//! | [`level0`]     | compactions of level 0, also beside quarantined tables             |
//! | [`tiered`]     | merges of sorted runs of similar size                              |
//! | [`fifo`]       | removal of the oldest tables                                       |
//! | [`tombstones`] | compactions that remove tombstones                                 |
//! | [`expired`]    | compactions that free expired entries                              |
//! | [`blob_depth`] | merges that rewrite values, so that few blob files alternate       |
//! | [`blob_garbage`] | blob files whose values are rewritten                            |
//! | [`idle`]       | compactions of an idle store                                       |
//! | [`crowded`]    | compactions of a store with too many tables for its memory         |
//! | [`choice`]     | a chosen compaction                                                |
//! | [`borders`]    | where the tables of a merge end                                    |
//! | [`readers`]    | readers that a flush or a compaction serves                        |
//! | [`stripes`]    | stripes into which readers cut the sequence numbers                |
//! | [`filtering`]  | values shown to the compaction filter                              |
//! | [`retain`]     | versions that a flush or a compaction keeps                        |
//! | [`deeper_levels`] | tables older than the output of a compaction                    |
//! | [`operands`]   | merge operands that a flush or a compaction makes fewer            |
//! | `simulation`   | simulated amplification, in tests and with the feature `simulation` |
//! | [`ranges`]     | range tombstones that a flush or a compaction keeps                |
//! | [`split`]      | ranges of keys that a compaction merges at the same time           |

pub(crate) mod blob_depth;
pub(crate) mod blob_garbage;
pub(crate) mod borders;
pub(crate) mod choice;
pub(crate) mod crowded;
pub(crate) mod debt;
pub(crate) mod deeper_levels;
pub(crate) mod expired;
mod fifo;
pub(crate) mod filtering;
mod idle;
mod level0;
pub(crate) mod levels;
mod operands;
pub(crate) mod picker;
pub(crate) mod ranges;
pub(crate) mod readers;
pub(crate) mod retain;
#[cfg(any(test, feature = "simulation"))]
pub(crate) mod simulation;
pub(crate) mod split;
mod stripes;
mod tiered;
pub(crate) mod tombstones;

#[cfg(test)]
mod tests;
