//! Unusable filters are rebuilt in filter files, and `verify` reports their problems.
//!
//! | module     | contents                                                  |
//! |------------|-----------------------------------------------------------|
//! | `fixture`  | a store of several tables, and its expected contents      |
//! | `forge`    | forged filters with valid checksums                       |
//! | `rebuild`  | damaged, missing and forged filters are rebuilt           |
//! | `of_scans` | prefix and range filters are rebuilt                      |
//! | `policy`   | filters of another policy are rebuilt                     |
//! | `failing`  | tables and disks that prevent building a filter           |
//! | `verify`   | each planted problem is reported, and none otherwise      |

#![expect(clippy::unwrap_used, reason = "a test fails by a panic")]

mod failing;
mod fixture;
mod forge;
mod of_scans;
mod policy;
mod rebuild;
mod verify;
