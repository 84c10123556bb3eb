//! The merge operators of the crate, as the model applies them.

use std::{collections::BTreeSet, sync::Arc};

use bytes::Bytes;
use sievedb::{Append, Counter, Max, MergeOperator, Min, SetUnion};
use sievedb_tests::rng::Rng;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Operator {
    None,
    Counter,
    Max,
    Min,
    Append,
    AppendLines,
    Union,
}

impl Operator {
    pub(super) const ALL: [Self; 7] = [
        Self::None,
        Self::Counter,
        Self::Max,
        Self::Min,
        Self::Append,
        Self::AppendLines,
        Self::Union,
    ];

    /// Returns the operator to test.
    pub(super) fn of_engine(self) -> Option<Arc<dyn MergeOperator>> {
        Some(match self {
            Self::None => return None,
            Self::Counter => Arc::new(Counter),
            Self::Max => Arc::new(Max),
            Self::Min => Arc::new(Min),
            Self::Append => Arc::new(Append::new()),
            Self::AppendLines => Arc::new(Append::with_separator("\n")),
            Self::Union => Arc::new(SetUnion),
        })
    }

    /// Returns whether a value or an operand can be merged.
    pub(super) fn is_valid(self, value: &[u8]) -> bool {
        match self {
            Self::Counter => value.len() == 8,
            Self::Union => members(value).is_some(),
            _ => true,
        }
    }

    /// Returns the value for `old` with `operand`; `None` if the operator fails.
    pub(super) fn join(self, old: &[u8], operand: &[u8]) -> Option<Vec<u8>> {
        if !self.is_valid(old) || !self.is_valid(operand) {
            return None;
        }
        Some(match self {
            Self::None => unreachable!("no operand is written without an operator"),
            Self::Counter => {
                let number = |bytes: &[u8]| u64::from_be_bytes(bytes.try_into().expect("8 bytes"));
                number(old).wrapping_add(number(operand)).to_be_bytes().to_vec()
            }
            Self::Max => old.max(operand).to_vec(),
            Self::Min => old.min(operand).to_vec(),
            Self::Append => [old, operand].concat(),
            Self::AppendLines => [old, operand].join(&b'\n'),
            Self::Union => {
                let (mut all, more) = (members(old)?, members(operand)?);
                all.extend(more);
                encoded(&all)
            }
        })
    }

    /// Returns a value that can be merged: `plain`, or one of the form that the operator needs.
    pub(super) fn value(self, plain: Bytes, lots: &mut Rng) -> Bytes {
        match self {
            Self::Counter => lots.number().to_be_bytes().to_vec().into(),
            Self::Union => {
                let count = lots.below(4);
                let some: Vec<_> = (0..count).map(|_| vec![b'a' + lots.below(20) as u8]).collect();
                encoded(&some.iter().map(Vec::as_slice).collect()).into()
            }
            _ => plain,
        }
    }
}

fn members(set: &[u8]) -> Option<BTreeSet<&[u8]>> {
    let (mut all, mut rest) = (BTreeSet::new(), set);
    while !rest.is_empty() {
        let (length, behind) = rest.split_first_chunk::<4>()?;
        let (member, behind) = behind.split_at_checked(u32::from_be_bytes(*length) as usize)?;
        if all.last().is_some_and(|last| *last >= member) {
            return None;
        }
        all.insert(member);
        rest = behind;
    }
    Some(all)
}

fn encoded(members: &BTreeSet<&[u8]>) -> Vec<u8> {
    let mut set = Vec::new();
    for member in members {
        set.extend_from_slice(&(member.len() as u32).to_be_bytes());
        set.extend_from_slice(member);
    }
    set
}
