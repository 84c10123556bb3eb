//! Damage of every kind to every file: an error that names the place, a right answer, or, in the
//! tail of a log for which nothing vouches, a shorter history. Never a wrong answer, a panic, a
//! hang, or an allocation that the damaged bytes talked the engine into.
//!
//! | module       | what                                                                    |
//! |--------------|-------------------------------------------------------------------------|
//! | `sample`     | a small store with its history, as files in memory                      |
//! | `script`     | writes a sample                                                         |
//! | `log_record` | where the records of a log lie, and what they vouch for                 |
//! | `reading`    | all that a damaged store answers, compared with the history             |
//! | `forge`      | parts of files that have a checksum, and how to make it right again     |
//! | `cases`      | runs many cases, and names those that fail                              |
//! | `allocation` | the largest allocation of a thread                                      |
//! | others       | the tests, by file                                                      |

#![expect(clippy::unwrap_used, reason = "a test fails by a panic")]
#![expect(clippy::print_stdout, reason = "a test tells how many cases it ran")]

pub(crate) mod allocation;
mod cases;
mod closed;
mod current;
mod files;
mod filters;
pub(crate) mod forge;
mod forged;
mod log_record;
mod logs;
mod lost_manifest;
mod manifest;
mod next_release;
mod older_writer;
mod past_damage;
mod quarantine;
mod quarantine_pauses;
mod reading;
mod rebuilt;
mod repair;
mod repair_faults;
mod repaired_crash;
mod repaired_damage;
mod repaired_groups;
mod reserved;
mod retired_lists;
mod sample;
mod script;
mod tables;
mod torn_sectors;

/// The largest single allocation that damaged bytes may cause.
const ALLOCATION_BYTES_MAX: usize = 64 << 20;
