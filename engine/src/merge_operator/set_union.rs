//! Merge operator that unites sets of byte strings.
//!
//! # Encoded form
//!
//! The members of a set, ascending and distinct.
//!
//! | bytes | field    | meaning                        |
//! |-------|----------|--------------------------------|
//! | 4     | `length` | length of `member`, big-endian |
//! | n     | `member` | a member                       |

use std::collections::BTreeSet;

use super::{MergeError, MergeOperator};

/// Merge operator that unites sets of byte strings. Value and operands are encoded sets: see
/// [`encode`](Self::encode). No operand removes a member.
///
/// The union of sets of `n` members in total takes `O(n log n)` time.
///
/// ```
/// use std::sync::Arc;
/// use sievedb::{Db, KeyspaceOptions, SetUnion};
///
/// # let dir = tempfile::tempdir().unwrap();
/// let db = Db::open(dir.path())?;
/// let options = KeyspaceOptions::new().merge_operator(Arc::new(SetUnion));
/// let tags = db.keyspace_with("tags", &options)?;
/// tags.merge("post", SetUnion::encode(["rust", "db"]))?;
/// tags.merge("post", SetUnion::encode(["lsm", "db"]))?;
/// let value = tags.get("post")?.expect("it was written");
/// assert_eq!(SetUnion::decode(&value).unwrap(), ["db", "lsm", "rust"].map(str::as_bytes));
/// # Ok::<(), sievedb::Error>(())
/// ```
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SetUnion;

pub(super) const NAME: &str = "sieve.set-union";

impl SetUnion {
    /// Returns the encoded set of `members`, in any order, duplicates allowed. The encoding has the
    /// distinct members, ascending: the length of each in 4 bytes, big-endian, then its bytes.
    ///
    /// # Panics
    ///
    /// If a member has 4 GiB or more.
    pub fn encode<M: AsRef<[u8]>>(members: impl IntoIterator<Item = M>) -> Vec<u8> {
        let members: Vec<M> = members.into_iter().collect();
        encode(&members.iter().map(AsRef::as_ref).collect())
    }

    /// Returns the members of an encoded set, ascending.
    ///
    /// # Errors
    ///
    /// [`MergeError`] if `set` is not an encoded set.
    pub fn decode(set: &[u8]) -> Result<Vec<&[u8]>, MergeError> {
        let malformed = || MergeError::new("not an encoded set");
        let (mut members, mut rest) = (Vec::new(), set);
        while let Some((length, behind)) = rest.split_first_chunk() {
            let length = u32::from_be_bytes(*length) as usize;
            let (member, behind) = behind.split_at_checked(length).ok_or_else(malformed)?;
            if members.last().is_some_and(|&last| last >= member) {
                return Err(malformed());
            }
            members.push(member);
            rest = behind;
        }
        if rest.is_empty() { Ok(members) } else { Err(malformed()) }
    }
}

fn encode(members: &BTreeSet<&[u8]>) -> Vec<u8> {
    let mut set = Vec::with_capacity(members.iter().map(|member| 4 + member.len()).sum());
    for member in members {
        let length = u32::try_from(member.len()).expect("a member is shorter than 4 GiB");
        set.extend_from_slice(&length.to_be_bytes());
        set.extend_from_slice(member);
    }
    set
}

impl MergeOperator for SetUnion {
    fn name(&self) -> &str {
        NAME
    }

    fn merge(
        &self,
        _: &[u8],
        base: Option<&[u8]>,
        operands: &[&[u8]],
    ) -> Result<Vec<u8>, MergeError> {
        let mut union = BTreeSet::new();
        for set in base.iter().chain(operands) {
            union.extend(Self::decode(set)?);
        }
        Ok(encode(&union))
    }

    fn partial_merge(&self, key: &[u8], older: &[u8], newer: &[u8]) -> Option<Vec<u8>> {
        self.merge(key, Some(older), &[newer]).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_has_these_bytes() {
        let set = SetUnion::encode(["b", "", "ab", "b"]);
        assert_eq!(set, b"\0\0\0\0\0\0\0\x02ab\0\0\0\x01b");
        assert_eq!(SetUnion::decode(&set), Ok(vec![&b""[..], b"ab", b"b"]));
        assert_eq!(SetUnion::decode(&[]), Ok(Vec::new()));
    }

    #[test]
    fn every_cut_and_disorder_is_refused() {
        let set = SetUnion::encode(["a", "b"]);
        for cut in (1..set.len()).filter(|cut| *cut != 5) {
            SetUnion::decode(&set[..cut]).expect_err("a cut set");
        }
        for disorder in [[&set[5..], &set[..5]].concat(), [&set[5..], &set[5..]].concat()] {
            SetUnion.merge(b"", None, &[&disorder]).expect_err("out of order");
            assert_eq!(SetUnion.partial_merge(b"", &set, &disorder), None);
        }
    }

    #[test]
    fn sets_are_joined() {
        let of = |members: &[&str]| SetUnion::encode(members);
        let merged = SetUnion.merge(b"", Some(&of(&["b"])), &[&of(&["c", "a"]), &of(&["b"])]);
        assert_eq!(merged, Ok(of(&["a", "b", "c"])));
    }
}
