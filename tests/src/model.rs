//! Expected contents of a store.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::{self, Write},
    ops::{Bound, RangeBounds},
    sync::Arc,
};

use bytes::Bytes;
use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed, xxh3_128, xxh3_128_with_seed};

use crate::filtered::is_gone;

/// The name of a keyspace.
pub type Name = Arc<str>;

/// The entries of a keyspace.
pub type Entries = BTreeMap<Bytes, Bytes>;

/// The bounds of a range of keys.
pub type KeyRange = (Bound<Bytes>, Bound<Bytes>);

/// The keyspace that every store has.
pub const DEFAULT: &str = "default";

/// A change of a write.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(missing_docs, reason = "the fields are those of the methods of `Db`")]
pub enum Change {
    /// Stores a value.
    Put { keyspace: Name, key: Bytes, value: Bytes },
    /// Stores a value that expires: by its own expiry, or by the default TTL of the keyspace.
    PutExpiring { keyspace: Name, key: Bytes, value: Bytes, by_default: bool },
    /// Removes the values of a keyspace that expire, because time has passed.
    Expire { keyspace: Name },
    /// Removes a key, which may be absent.
    Remove { keyspace: Name, key: Bytes },
    /// Appends an operand to the value of a key, by the operator `Append` of the keyspace.
    Merge { keyspace: Name, key: Bytes, operand: Bytes },
    /// Removes the keys of a range.
    RemoveRange { keyspace: Name, range: KeyRange },
    /// Removes the keys with a prefix.
    RemovePrefix { keyspace: Name, prefix: Bytes },
    /// Creates a missing keyspace.
    Create { keyspace: Name },
    /// Removes all entries of an existing keyspace.
    Clear { keyspace: Name },
    /// Renames an existing keyspace.
    Rename { keyspace: Name, to: Name },
    /// Drops an existing keyspace with all its entries.
    Drop { keyspace: Name },
}

impl Change {
    /// Returns `true` if the store writes nothing for it: a range without keys.
    #[must_use]
    pub fn is_nothing(&self) -> bool {
        use Bound::{Excluded, Included, Unbounded};
        let Self::RemoveRange { range, .. } = self else { return false };
        match range {
            (Unbounded, Excluded(end)) => end.is_empty(),
            (Included(start), Included(end)) => start > end,
            (Included(start), Excluded(end)) => start >= end,
            (Excluded(start), Included(end)) => start >= end,
            // No key is between a key and the one with a zero byte more.
            (Excluded(start), Excluded(end)) => *end <= [start, &b"\0"[..]].concat(),
            (_, Unbounded) | (Unbounded, Included(_)) => false,
        }
    }

    /// Returns the changed keyspace.
    #[must_use]
    pub fn keyspace(&self) -> &Name {
        match self {
            Self::Put { keyspace, .. }
            | Self::PutExpiring { keyspace, .. }
            | Self::Expire { keyspace }
            | Self::Remove { keyspace, .. }
            | Self::Merge { keyspace, .. }
            | Self::RemoveRange { keyspace, .. }
            | Self::RemovePrefix { keyspace, .. }
            | Self::Create { keyspace }
            | Self::Clear { keyspace }
            | Self::Rename { keyspace, .. }
            | Self::Drop { keyspace } => keyspace,
        }
    }
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Put { keyspace, key, value } => {
                write!(f, "put {keyspace} {} = {}", shown(key), shown(value))
            }
            Self::PutExpiring { keyspace, key, value, by_default } => {
                let (key, value) = (shown(key), shown(value));
                write!(f, "put {keyspace} {key} = {value}, expiring, by default: {by_default}")
            }
            Self::Expire { keyspace } => write!(f, "expire {keyspace}"),
            Self::Remove { keyspace, key } => write!(f, "remove {keyspace} {}", shown(key)),
            Self::Merge { keyspace, key, operand } => {
                write!(f, "merge {keyspace} {} + {}", shown(key), shown(operand))
            }
            Self::RemoveRange { keyspace, range } => write!(f, "remove {keyspace} {range:?}"),
            Self::RemovePrefix { keyspace, prefix } => {
                write!(f, "remove {keyspace} prefix {}", shown(prefix))
            }
            Self::Create { keyspace } => write!(f, "create {keyspace}"),
            Self::Clear { keyspace } => write!(f, "clear {keyspace}"),
            Self::Rename { keyspace, to } => write!(f, "rename {keyspace} to {to}"),
            Self::Drop { keyspace } => write!(f, "drop {keyspace}"),
        }
    }
}

/// Returns the start of `bytes`, with the length if it is longer.
#[must_use]
pub fn shown(bytes: &[u8]) -> String {
    let start = &bytes[..bytes.len().min(16)];
    let more = if start.len() < bytes.len() { "..." } else { "" };
    let count = if more.is_empty() { String::new() } else { format!(" ({} bytes)", bytes.len()) };
    format!("\"{}{more}\"{count}", start.escape_ascii())
}

/// The keyspaces of a store with their entries.
#[derive(Debug, Clone)]
pub struct Model {
    keyspaces: BTreeMap<Name, Entries>,
    digest: u128,
    /// Values that expire. Each value is written once.
    expiring: BTreeSet<Bytes>,
}

impl Default for Model {
    /// A new store: the default keyspace, empty.
    fn default() -> Self {
        let mut model = Self::nothing();
        model.apply(&Change::Create { keyspace: DEFAULT.into() });
        model
    }
}

impl PartialEq for Model {
    fn eq(&self, other: &Self) -> bool {
        self.keyspaces == other.keyspaces
    }
}

impl Model {
    /// A model without any keyspace.
    #[must_use]
    pub fn nothing() -> Self {
        Self { keyspaces: BTreeMap::new(), digest: 0, expiring: BTreeSet::new() }
    }

    /// Returns the keyspaces by name.
    #[must_use]
    pub fn keyspaces(&self) -> &BTreeMap<Name, Entries> {
        &self.keyspaces
    }

    /// Returns the entries of a keyspace, if it exists.
    #[must_use]
    pub fn entries(&self, keyspace: &str) -> Option<&Entries> {
        self.keyspaces.get(keyspace)
    }

    /// Adds the values of `other` that expire.
    pub fn know_expiring_of(&mut self, other: &Self) {
        self.expiring.extend(other.expiring.iter().cloned());
    }

    /// Returns a digest: different models share one with probability 2^-64.
    #[must_use]
    pub fn digest(&self) -> u128 {
        self.digest
    }

    /// Applies a change. The time of puts and removals of single keys is independent of the model's
    /// size, so that the digest of each prefix of a history is cheap.
    ///
    /// A change of a missing keyspace has no effect.
    pub fn apply(&mut self, change: &Change) {
        let name = change.keyspace();
        match change {
            Change::Create { .. } => {
                if !self.keyspaces.contains_key(name) {
                    self.keyspaces.insert(name.clone(), Entries::new());
                    self.digest = self.digest.wrapping_add(xxh3_128(name.as_bytes()));
                }
            }
            Change::Drop { .. } => drop(self.remove_keyspace(name)),
            Change::Clear { .. } => {
                if self.remove_keyspace(name).is_some() {
                    self.apply(&Change::Create { keyspace: name.clone() });
                }
            }
            Change::Rename { to, .. } => {
                let Some(entries) = self.remove_keyspace(name) else { return };
                self.apply(&Change::Create { keyspace: to.clone() });
                for (key, value) in entries {
                    self.apply(&Change::Put { keyspace: to.clone(), key, value });
                }
            }
            // A compaction filter may remove it at any time.
            Change::Put { key, .. } if is_gone(key) => {}
            Change::Put { key, value, .. } => {
                let Some(entries) = self.keyspaces.get_mut(name) else { return };
                self.digest = self.digest.wrapping_add(entry_digest(name, key, value));
                if let Some(old) = entries.insert(key.clone(), value.clone()) {
                    self.digest = self.digest.wrapping_sub(entry_digest(name, key, &old));
                }
            }
            Change::PutExpiring { key, value, .. } => {
                self.expiring.insert(value.clone());
                let (keyspace, key, value) = (name.clone(), key.clone(), value.clone());
                self.apply(&Change::Put { keyspace, key, value });
            }
            Change::Expire { .. } => {
                let expiring = std::mem::take(&mut self.expiring);
                self.remove_each(name, |_, value| expiring.contains(value));
                self.expiring = expiring;
            }
            Change::Merge { key, operand, .. } => {
                let Some(entries) = self.keyspaces.get_mut(name) else { return };
                let old = entries.get(key).cloned();
                let value = [old.as_deref().unwrap_or_default(), operand].concat();
                let value = Bytes::from(value);
                self.digest = self.digest.wrapping_add(entry_digest(name, key, &value));
                if let Some(old) = old {
                    self.digest = self.digest.wrapping_sub(entry_digest(name, key, &old));
                }
                entries.insert(key.clone(), value);
            }
            Change::Remove { key, .. } => {
                let Some(entries) = self.keyspaces.get_mut(name) else { return };
                if let Some(old) = entries.remove(key) {
                    self.digest = self.digest.wrapping_sub(entry_digest(name, key, &old));
                }
            }
            Change::RemoveRange { range, .. } => {
                self.remove_each(name, |key, _| range.contains(key));
            }
            Change::RemovePrefix { prefix, .. } => {
                self.remove_each(name, |key, _| key.starts_with(prefix));
            }
        }
    }

    fn remove_each(&mut self, name: &Name, is_removed: impl Fn(&Bytes, &Bytes) -> bool) {
        let Some(entries) = self.keyspaces.get_mut(name) else { return };
        let removed = entries.extract_if(.., |key, value| is_removed(key, value));
        for (key, value) in removed {
            self.digest = self.digest.wrapping_sub(entry_digest(name, &key, &value));
        }
    }

    fn remove_keyspace(&mut self, name: &Name) -> Option<Entries> {
        let entries = self.keyspaces.remove(name)?;
        self.digest = self.digest.wrapping_sub(xxh3_128(name.as_bytes()));
        for (key, value) in &entries {
            self.digest = self.digest.wrapping_sub(entry_digest(name, key, value));
        }
        Some(entries)
    }

    /// Describes how `self`, read from a store, differs from `wanted`, in at most `lines_max`
    /// lines.
    #[must_use]
    pub fn difference(&self, wanted: &Self, lines_max: usize) -> String {
        let mut lines = Vec::new();
        for name in wanted.keyspaces.keys().filter(|name| !self.keyspaces.contains_key(*name)) {
            lines.push(format!("keyspace {name} is missing"));
        }
        for (name, entries) in &self.keyspaces {
            let Some(wanted) = wanted.keyspaces.get(name) else {
                lines.push(format!("keyspace {name} is there, which should not be"));
                continue;
            };
            for (key, value) in wanted.iter().filter(|(key, _)| !entries.contains_key(*key)) {
                lines.push(format!("{name} {} is missing: {}", shown(key), shown(value)));
            }
            for (key, value) in entries {
                let want = wanted.get(key);
                if want != Some(value) {
                    let want = want.map_or("nothing".to_owned(), |want| shown(want));
                    lines.push(format!("{name} {} is {}, not {want}", shown(key), shown(value)));
                }
            }
        }
        let mut text = String::new();
        let hidden = lines.len().saturating_sub(lines_max);
        for line in lines.into_iter().take(lines_max) {
            writeln!(text, "    {line}").expect("a string takes all");
        }
        if hidden > 0 {
            writeln!(text, "    and {hidden} more").expect("a string takes all");
        }
        text
    }
}

fn entry_digest(keyspace: &str, key: &[u8], value: &[u8]) -> u128 {
    xxh3_128_with_seed(value, xxh3_64_with_seed(key, xxh3_64(keyspace.as_bytes())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digest_depends_on_the_state_only() {
        let put = |keyspace: &str, key: &'static str, value: &'static str| Change::Put {
            keyspace: keyspace.into(),
            key: key.into(),
            value: value.into(),
        };
        let of = |changes: &[Change]| {
            let mut model = Model::default();
            changes.iter().for_each(|change| model.apply(change));
            model.digest()
        };
        let create = Change::Create { keyspace: "other".into() };
        let drop = Change::Drop { keyspace: "other".into() };
        let remove = Change::Remove { keyspace: DEFAULT.into(), key: "a".into() };
        let (a1, a2) = (put(DEFAULT, "a", "1"), put(DEFAULT, "a", "2"));
        let b1 = put(DEFAULT, "b", "1");
        assert_eq!(of(&[a1.clone(), a2.clone()]), of(std::slice::from_ref(&a2)));
        assert_eq!(of(&[a1.clone(), b1.clone()]), of(&[b1.clone(), a1.clone()]));
        assert_eq!(of(&[a1.clone(), remove]), of(&[]));
        assert_eq!(of(&[create.clone(), put("other", "a", "1"), drop]), of(&[]));
        let clear = Change::Clear { keyspace: "other".into() };
        let in_other = [create.clone(), put("other", "a", "1"), clear];
        assert_eq!(of(&in_other), of(std::slice::from_ref(&create)));
        let expiring = Change::PutExpiring {
            keyspace: DEFAULT.into(),
            key: "a".into(),
            value: "3".into(),
            by_default: false,
        };
        let expire = Change::Expire { keyspace: DEFAULT.into() };
        assert_eq!(of(&[a1.clone(), expiring.clone()]), of(&[put(DEFAULT, "a", "3")]));
        assert_eq!(of(&[a1.clone(), expiring.clone(), expire.clone()]), of(&[]));
        assert_eq!(of(&[expiring, a1.clone(), expire]), of(std::slice::from_ref(&a1)));
        let third = Change::Create { keyspace: "third".into() };
        let rename = Change::Rename { keyspace: "other".into(), to: "third".into() };
        assert_eq!(
            of(&[create.clone(), put("other", "a", "1"), rename]),
            of(&[third, put("third", "a", "1")])
        );
        let different = [
            of(&[]),
            of(std::slice::from_ref(&a1)),
            of(std::slice::from_ref(&a2)),
            of(&[b1]),
            of(std::slice::from_ref(&create)),
            of(&[create, put("other", "a", "1")]),
        ];
        for (at, left) in different.iter().enumerate() {
            assert!(!different[..at].contains(left), "state {at}");
        }
    }
}
