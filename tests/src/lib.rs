//! Shared parts of the integration tests: a model of a store, a recorder of histories, and checks
//! of states after a crash.
//!
//! | module          | contents                                                              |
//! |-----------------|-----------------------------------------------------------------------|
//! | [`model`]       | expected contents of a store                                          |
//! | [`history`]     | the writes of a test, and the legal states after a crash              |
//! | [`observe`]     | actual contents of a store, read in every way                         |
//! | [`recorder`]    | writes to a store and to a history                                    |
//! | [`workload`]    | scripted histories                                                    |
//! | [`enumerate`]   | all crashes of a workload                                             |
//! | [`cuts`]        | power cuts after each operation of a disk                             |
//! | [`isolation`]   | check of transactions for anomalies                                   |
//! | [`kill`]        | all kills of a workload, with power cuts after the restart            |
//! | [`check`]       | check of a state after a crash                                        |
//! | [`filtered`]    | a compaction filter whose removals a model need not follow            |
//! | [`fuzz`]        | random histories with several faults, crashes and failed recoveries   |
//! | [`no_sync`]     | a file system that skips all syncs                                    |
//! | [`case`]        | a crash as text                                                       |
//! | [`dir_sync`]    | a file system that skips directory syncs                              |
//! | [`hook_fs`]     | a file system that calls a function before it creates a file          |
//! | [`handles`]     | a file system with a limit on open files                              |
//! | [`layer`]       | base of these file systems: passes calls through                      |
//! | [`yielding`]    | a file system that lets other threads run during writes               |
//! | [`rng`]         | random numbers from a seed                                            |
//! | [`stream`]      | a reader of the change stream                                         |
//! | [`settings`]    | options for small stores with many files; environment variables       |

pub mod case;
pub mod check;
pub mod cuts;
pub mod dir_sync;
pub mod enumerate;
pub mod filtered;
pub mod fuzz;
pub mod handles;
pub mod history;
pub mod hook_fs;
pub mod isolation;
pub mod kill;
pub mod layer;
pub mod model;
pub mod no_sync;
pub mod observe;
pub mod recorder;
pub mod rng;
pub mod settings;
pub mod stream;
pub mod table_files;
pub mod workload;
pub mod yielding;
