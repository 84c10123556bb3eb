//! Kinds of anomalies.

use std::fmt;

use super::dependency::Kind;

/// An isolation level.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Isolation {
    /// Strict serializability: as if one after the other, in an order that agrees with real time.
    Serializable,
    /// Snapshot isolation: only cycles with two adjacent anti-dependencies are allowed.
    Snapshot,
}

/// A kind of anomaly, by the names of Adya and of Elle.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Anomaly {
    /// A read found a value that no transaction wrote to the key, or a scan returned a key twice,
    /// out of order or outside of its bounds.
    Garbage,
    /// A read did not find the write of its own transaction.
    Internal,
    /// A cycle of writes.
    G0,
    /// A read found a write of an aborted transaction.
    G1a,
    /// A read found a write that the same transaction overwrote.
    G1b,
    /// A cycle of writes and reads.
    G1c,
    /// A read found no value, though the key had one from before the transaction to its end.
    LostWrite,
    /// A transaction overwrote a version that it had not read, after it had read an older one.
    LostUpdate,
    /// A cycle with one anti-dependency.
    GSingle,
    /// A cycle with several anti-dependencies, no two of them adjacent.
    GNonadjacent,
    /// A cycle of two anti-dependencies.
    WriteSkew,
    /// A cycle of two anti-dependencies, at least one of them by a scan that found no key.
    PredicateWriteSkew,
    /// A cycle with several anti-dependencies, some of them adjacent.
    G2Item,
    /// The same, at least one of them by a scan that found no key.
    G2,
}

impl Anomaly {
    /// Returns whether `isolation` allows this anomaly.
    #[must_use]
    pub fn is_allowed(self, isolation: Isolation) -> bool {
        let is_g2 = self.is_write_skew() || matches!(self, Self::G2Item | Self::G2);
        isolation == Isolation::Snapshot && is_g2
    }

    /// Returns whether two transactions each read what the other one wrote.
    #[must_use]
    pub fn is_write_skew(self) -> bool {
        matches!(self, Self::WriteSkew | Self::PredicateWriteSkew)
    }

    /// Names a cycle of dependencies.
    pub(super) fn of_cycle(kinds: &[Kind], same_key: bool) -> Self {
        let anti = kinds.iter().filter(|kind| kind.is_anti()).count();
        let by_scan = kinds.contains(&Kind::PredicateRw);
        let mut pairs = kinds.iter().zip(kinds.iter().cycle().skip(1));
        let adjacent = pairs.any(|(left, right)| left.is_anti() && right.is_anti());
        match anti {
            0 if kinds.iter().all(|kind| matches!(kind, Kind::Ww | Kind::RealTime)) => Self::G0,
            0 => Self::G1c,
            1 if kinds.len() == 2 && kinds.contains(&Kind::Ww) && same_key => Self::LostUpdate,
            1 => Self::GSingle,
            _ if !adjacent => Self::GNonadjacent,
            2 if kinds.len() == 2 && by_scan => Self::PredicateWriteSkew,
            2 if kinds.len() == 2 => Self::WriteSkew,
            _ if by_scan => Self::G2,
            _ => Self::G2Item,
        }
    }
}

impl fmt::Display for Anomaly {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Garbage => "garbage read",
            Self::Internal => "internal",
            Self::G0 => "G0",
            Self::G1a => "G1a",
            Self::G1b => "G1b",
            Self::G1c => "G1c",
            Self::LostWrite => "lost write",
            Self::LostUpdate => "lost update",
            Self::GSingle => "G-single",
            Self::GNonadjacent => "G-nonadjacent",
            Self::WriteSkew => "G2-item, write skew",
            Self::PredicateWriteSkew => "G2, write skew",
            Self::G2Item => "G2-item",
            Self::G2 => "G2",
        })
    }
}
