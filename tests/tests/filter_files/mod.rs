//! Filters that cannot be used are rebuilt, in files of their own, and `verify` finds what is
//! wrong with them.
//!
//! | module    | what                                                                       |
//! |-----------|----------------------------------------------------------------------------|
//! | `fixture` | a store of several tables, and what it should answer                       |
//! | `forge`   | filters with good checksums that are not what they should be               |
//! | `rebuild` | damaged, missing and forged filters are whole again afterwards             |
//! | `of_scans` | so are prefix and range filters, also those of another extractor          |
//! | `policy`  | so are those of another policy                                             |
//! | `failing` | a table or a disk that does not let a filter be built                      |
//! | `verify`  | each planted damage is found, and none in a good store                     |

#![expect(clippy::unwrap_used, reason = "a test fails by a panic")]

mod failing;
mod fixture;
mod forge;
mod of_scans;
mod policy;
mod rebuild;
mod verify;
