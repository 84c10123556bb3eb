//! What a compaction merges, and what it keeps. Pure: no I/O, no locks, no clock.
//!
//! | module      | answers                                                              |
//! |-------------|----------------------------------------------------------------------|
//! | [`retain`]  | which versions a flush or a compaction keeps                         |

#![cfg_attr(not(test), expect(dead_code, reason = "the engine that runs compactions comes next"))]

pub(crate) mod retain;

#[cfg(test)]
mod tests;
