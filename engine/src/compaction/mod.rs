//! What a compaction merges, and what it keeps. Pure: no I/O, no locks, no clock.
//!
//! | module      | answers                                                              |
//! |-------------|----------------------------------------------------------------------|
//! | [`levels`]  | how full each level is and should be                                 |
//! | [`level0`]  | which tables of level 0, also beside quarantined ones                |
//! | [`picker`]  | which tables to compact next                                         |
//! | [`skipped`] | which because scans step over their tombstones                       |
//! | [`quiet`]   | which because the store rests                                        |
//! | [`crowded`] | which because the store has too many tables for its memory           |
//! | [`choice`]  | what is chosen, and what may run beside it                           |
//! | [`bottom`]  | whether an older table may still hold a key                          |
//! | [`retain`]  | which versions a flush or a compaction keeps                         |
//! | [`interruption`] | when a merge stops early                                        |

pub(crate) mod bottom;
pub(crate) mod choice;
pub(crate) mod crowded;
mod idle;
mod interruption;
mod level0;
pub(crate) mod levels;
pub(crate) mod picker;
pub(crate) mod retain;
pub(crate) mod skipped;

#[cfg(test)]
mod tests;
