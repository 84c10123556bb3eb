//! Damage of every kind to every file. The result is an error with file and offset, a correct
//! result, or a shorter history if the damage is in the unsynced tail of a log. It is never a wrong
//! result, a panic, a hang or a large allocation.
//!
//! | module       | contents                                                     |
//! |--------------|--------------------------------------------------------------|
//! | `sample`     | a small store with its history, as files in memory           |
//! | `script`     | creation of samples                                          |
//! | `log_record` | places of log records and their synced marks                 |
//! | `reading`    | all reads of a damaged store, compared with the history      |
//! | `forge`      | checksummed parts of files, and updating their checksums     |
//! | `cases`      | runner of many cases                                         |
//! | `allocation` | largest allocation of a thread                               |
//! | others       | the tests, by file                                           |

#![expect(clippy::unwrap_used, reason = "a test fails by a panic")]
#![expect(clippy::print_stdout, reason = "a test reports how many cases it ran")]

pub(crate) mod allocation;
mod cases;
mod closed;
mod current;
mod files;
mod filters;
pub(crate) mod forge;
mod forged;
mod forged_ingest;
mod log_record;
mod logs;
mod lost_manifest;
mod manifest;
mod next_release;
mod older_writer;
mod past_damage;
mod quarantine;
mod quarantine_pauses;
mod ranges;
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

/// Largest single allocation that damaged bytes may cause.
const ALLOCATION_BYTES_MAX: usize = 64 << 20;
