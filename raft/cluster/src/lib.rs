//! A replicated store over HTTP, for a trial of `sievedb-raft`, and a check of its linearizability.
//!
//! | module              | contents                                                          |
//! |---------------------|-------------------------------------------------------------------|
//! | [`map`]             | the replicated map and its requests                               |
//! | [`node`]            | one node: a store, openraft, and an HTTP server                   |
//! | `server`            | limits of the HTTP server                                         |
//! | `admission`         | places of connections                                             |
//! | `files`             | the limit of open files                                           |
//! | `stream`            | a timeout of writes to clients                                    |
//! | `clients`           | requests of clients                                               |
//! | `members`           | requests that change the members of the cluster                   |
//! | `majority`          | members that a change leaves                                      |
//! | `metrics`           | the state of a node                                               |
//! | [`network`]         | requests to other nodes                                           |
//! | `peers`             | requests of other nodes                                           |
//! | `forged`            | checks of requests that no node would send                        |
//! | [`identity`]        | which node, cluster and directory a process is                    |
//! | [`storage`]         | the store of a node                                               |
//! | [`client`]          | requests of a client                                              |
//! | [`processes`]       | nodes as processes: killed, paused, isolated                      |
//! | `directories`       | the directory of a cluster of processes                           |
//! | [`places`]          | addresses of nodes, on loopback or in network namespaces          |
//! | [`linearizability`] | a checker of histories                                            |
//! | [`check`]           | random histories with faults                                      |
//! | [`faults`]          | the faults of random histories                                    |
//! | [`votes`]           | a schedule that shows lost votes                                  |
//! | [`measure`]         | speed of a cluster, and recovery by snapshot                      |
//!
//! It has no authentication and listens on loopback: it is not for production.

#![expect(clippy::disallowed_methods, reason = "waits, and directories outside of stores")]

use std::{
    error::Error,
    fmt::Display,
    io::{self, Write as _},
};

mod admission;
pub mod check;
pub mod client;
mod clients;
mod directories;
pub mod faults;
mod files;
mod forged;
pub mod identity;
pub mod linearizability;
mod majority;
pub mod map;
pub mod measure;
mod members;
mod metrics;
pub mod network;
pub mod node;
mod peers;
pub mod places;
pub mod processes;
mod server;
pub mod storage;
mod stream;
pub mod votes;

use identity::REPLACEMENT;

/// The result of a call of this crate.
pub type Result<T, E = Box<dyn Error + Send + Sync>> = std::result::Result<T, E>;

/// Prints a line on standard error. A node serves also if that is closed.
pub fn report(line: impl Display) {
    let _ = io::stderr().write_all(format!("{line}\n").as_bytes());
}

/// Advice of the engine about damage. A node with a repaired store, or with a backup, would lack
/// its vote and acknowledged entries.
const STORE_ADVICE: &str = "run `sieve verify` to list all damage, then restore a backup or copy \
                            what can be read with `sieve repair`";

/// Returns the message of an error, and those of its causes in lines of their own. Replaces
/// the engine's advice about damage: errors of openraft contain only its text.
#[must_use]
pub fn describe(error: &(dyn Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let message = error.to_string();
        // Messages of openraft contain those of their causes.
        if !text.contains(&message) {
            text += &format!("\n  caused by: {message}");
        }
        cause = error.source();
    }
    text.replace(STORE_ADVICE, REPLACEMENT)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_error_advises_to_repair_the_store_of_a_node() {
        let (path, source) = ("000007.log".into(), sievedb::Corruption::Missing { what: "block" });
        let damage = sievedb::Error::Corrupt { path, offset: 64, source };
        let error = sievedb_raft::Error::Store(damage);
        let openraft = openraft::StorageIOError::<u64>::read(openraft::AnyError::new(&error));
        for text in [describe(&error), describe(&openraft)] {
            assert!(text.contains("000007.log is corrupt near byte 64"), "{text}");
            assert!(text.contains(REPLACEMENT) && !text.contains("repair"), "{text}");
        }
    }

    #[test]
    fn an_error_is_described_with_its_causes_once() {
        let io = io::Error::other("disk on fire");
        let path = "snapshots".into();
        let error = sievedb_raft::Error::Io { path, source: io };
        let text = describe(&error);
        assert_eq!(text, format!("{error}\n  caused by: disk on fire"));
        let repeated = openraft::StorageIOError::<u64>::write(openraft::AnyError::new(&error));
        let text = describe(&repeated);
        assert_eq!(text.matches("disk on fire").count(), 1, "{text}");
    }
}
