//! Checks histories of transactions for anomalies.
//!
//! A history has the reads and writes of transactions. Each write has a unique id, so a read shows
//! which write it found. The checker builds the graph of dependencies and searches it for cycles: a
//! history without a cycle is strictly serializable. The check takes linear time, besides sorting.
//!
//! * Adya, "Weak Consistency: A Generalized Theory and Optimistic Implementations for Distributed
//!   Transactions", MIT, 1999, defines the graph and the anomalies G0 to G2.
//! * Kingsbury and Alvaro, "Elle: Inferring Isolation Anomalies from Experimental Observations",
//!   VLDB 2020, finds them in observed histories, and names G-single, G-nonadjacent and internal.
//! * Cerone and Gotsman, "Analysing Snapshot Isolation", PODC 2016: snapshot isolation allows
//!   exactly those cycles that have two adjacent anti-dependencies.
//!
//! # Version order
//!
//! The commit order that the store reports orders the versions of a key. Elle derives the order
//! from values instead, which contain the id of the version before. That needs a read before each
//! write, and a trace of each removal. Both would hide faults here: if a transaction reads every
//! key that it writes, validation of the reads covers the writes. The reported order is not
//! trusted: a wrong order contradicts reads or real time, which is a cycle.
//!
//! | module         | contents                                                                |
//! |----------------|-------------------------------------------------------------------------|
//! | [`history`]    | recorded transactions                                                   |
//! | `versions`     | versions of each key, in commit order                                   |
//! | `dependency`   | dependencies between transactions, and anomalies of single reads        |
//! | `graph`        | strongly connected components, short cycles                             |
//! | [`anomaly`]    | kinds of anomalies, and which isolation allows them                     |
//! | [`check`]      | the checker                                                             |
//! | [`survivors`]  | check of the transactions that a crash left                             |
//! | [`target`]     | stores whose transactions can be checked                                |
//! | [`run`]        | random transactions on them                                             |
//! | [`mod@reference`]| a store in memory, with and without faults                              |

pub mod anomaly;
pub mod check;
mod dependency;
mod graph;
pub mod history;
pub mod reference;
pub mod run;
pub mod survivors;
pub mod target;
mod versions;
