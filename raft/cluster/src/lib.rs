//! A replicated store over HTTP, for a trial of `sievedb-raft`, and a check of its linearizability.
//!
//! | module              | contents                                                          |
//! |---------------------|-------------------------------------------------------------------|
//! | [`map`]             | the replicated map and its requests                               |
//! | `members`           | requests that change the members of the cluster                   |
//! | [`node`]            | one node: a store, openraft, and an HTTP server                   |
//! | [`storage`]         | the store of a node                                               |
//! | [`network`]         | requests between nodes                                            |
//! | [`client`]          | requests of a client                                              |
//! | [`processes`]       | nodes as processes: killed, paused, isolated                      |
//! | [`places`]          | addresses of nodes, on loopback or in network namespaces          |
//! | [`linearizability`] | a checker of histories                                            |
//! | [`check`]           | random histories with faults                                      |
//! | [`votes`]           | a schedule that shows lost votes                                  |
//! | [`measure`]         | speed of a cluster, and recovery by snapshot                      |
//!
//! It has no authentication and listens on loopback: it is not for production.

#![expect(clippy::disallowed_methods, reason = "waits, and directories outside of stores")]

pub mod check;
pub mod client;
pub mod linearizability;
pub mod map;
pub mod measure;
mod members;
pub mod network;
pub mod node;
pub mod places;
pub mod processes;
pub mod storage;
pub mod votes;

/// The result of a call of this crate.
pub type Result<T, E = Box<dyn std::error::Error + Send + Sync>> = std::result::Result<T, E>;
