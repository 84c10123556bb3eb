//! What the integration tests share: a model of a store, a recorder of histories, and the checks of
//! what a crash may leave.
//!
//! | module          | for                                                                      |
//! |-----------------|--------------------------------------------------------------------------|
//! | [`model`]       | what a store should hold                                                 |
//! | [`history`]     | the writes so far, and which states a crash may leave                    |
//! | [`observe`]     | what a store does hold, read in every way                                |
//! | [`recorder`]    | writes to a store and to a history at once                               |
//! | [`workload`]    | scripted histories                                                       |
//! | [`enumerate`]   | every crash of a workload                                                |
//! | [`kill`]        | every kill of a workload, and power cuts after the restart               |
//! | [`check`]       | one state that a crash left                                              |
//! | [`fuzz`]        | random histories with several faults, crashes and failing recoveries      |
//! | [`no_sync`]     | a file system that skips all syncs                                        |
//! | [`case`]        | one crash, as text                                                       |
//! | [`folder_sync`] | a file system that leaves folder syncs out                               |
//! | [`hook_fs`]     | a file system that calls a function before it creates a file             |
//! | [`handles`]     | a file system with a limit of open files                                 |
//! | [`layer`]       | what these file systems have in common: calls that are passed on         |
//! | [`rng`]         | random numbers from a seed                                               |
//! | [`settings`]    | options that make a small store do what a large one does; environment    |

pub mod case;
pub mod check;
pub mod enumerate;
pub mod folder_sync;
pub mod fuzz;
pub mod handles;
pub mod history;
pub mod hook_fs;
pub mod kill;
pub mod layer;
pub mod model;
pub mod no_sync;
pub mod observe;
pub mod recorder;
pub mod rng;
pub mod settings;
pub mod workload;
