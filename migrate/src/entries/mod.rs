//! The newest value of each key.

mod heads;
mod run;

use std::{cmp::Ordering, sync::Arc};

use self::heads::Heads;
pub(crate) use self::run::{Place, Run};
use crate::{
    decoder::Decoder,
    error::{Error, Result},
    internal_key::{Comparator, ValueType},
    tombstone::Tombstones,
    value::{BlobFiles, BlobIndex, DefaultColumn, MergeOperator, default_column},
};

/// Iterator over the entries of a column family: key and newest value, in the order of its
/// comparator.
///
/// Holds all range tombstones in memory. Also holds one data block and up to two index blocks for
/// each table of level 0 and for each other level. Ends after the first error.
#[derive(Debug)]
pub struct Entries {
    heads: Heads,
    tombstones: Tombstones,
    comparator: Comparator,
    merge: Merge,
    blobs: BlobFiles,
    key: Vec<u8>,
}

/// Method of folding merge operands.
#[derive(Debug, Clone)]
pub(crate) enum Merge {
    By(Arc<dyn MergeOperator>),
    /// The operator with this description is not known.
    Unknown(String),
}

/// Value of a key according to the versions read so far.
enum State {
    Open,
    Absent,
    Present(Vec<u8>),
}

impl Entries {
    pub(crate) fn new(
        runs: Vec<Run>,
        tombstones: Tombstones,
        comparator: Comparator,
        merge: Merge,
        blobs: BlobFiles,
    ) -> Self {
        let heads = Heads::new(runs, comparator);
        Self { heads, tombstones, comparator, merge, blobs, key: Vec::new() }
    }

    /// Reads all versions of the next key. Returns its value if it has one.
    fn next_key(&mut self) -> Result<Option<Option<Vec<u8>>>> {
        let Some(top) = self.heads.top() else { return Ok(None) };
        self.key.clear();
        self.key.extend_from_slice(top.key());
        let mut state = State::Open;
        // Newest operand first.
        let mut operands = Vec::new();
        let mut error_place = None;
        while let Some(top) = self.heads.top() {
            match self.comparator.compare(top.key(), &self.key) {
                Ordering::Equal => {}
                Ordering::Greater => break,
                Ordering::Less => {
                    return Err(Error::corrupt(top.path(), top.offset(), "keys are out of order"));
                }
            }
            if matches!(state, State::Open) {
                let sequence = top.sequence();
                if self.tombstones.covers(&self.key, sequence) {
                    state = State::Absent;
                } else if top.value_type() == ValueType::Merge {
                    operands.push(top.value().to_vec());
                    error_place.get_or_insert_with(|| top.path().to_owned());
                } else {
                    state = match value(top, &self.key, &mut self.blobs)? {
                        Some(value) => State::Present(value),
                        None => State::Absent,
                    };
                }
            }
            self.heads.advance()?;
        }
        let base = match state {
            State::Present(value) => Some(value),
            State::Open | State::Absent => None,
        };
        let Some(path) = error_place else { return Ok(Some(base)) };
        operands.reverse();
        let operands: Vec<_> = operands.iter().map(Vec::as_slice).collect();
        let refused = |feature: String| Error::unsupported(&path, feature);
        match &self.merge {
            Merge::By(operator) => {
                let merged = operator.merge(&self.key, base.as_deref(), &operands);
                let refusal = || refused("the merge operator refused operands".to_owned());
                merged.map(|value| Some(Some(value))).ok_or_else(refusal)
            }
            Merge::Unknown(operator) => {
                let advice = "compact the database with RocksDB, or pass the operator";
                Err(refused(format!("operands of {operator}; {advice}")))
            }
        }
    }
}

/// Returns the value of a version that is not a merge operand, or `None` for a deletion.
fn value(run: &Run, key: &[u8], blobs: &mut BlobFiles) -> Result<Option<Vec<u8>>> {
    let bytes = run.value();
    let decoder = Decoder::new(bytes, run.path(), run.offset());
    Ok(Some(match run.value_type() {
        ValueType::Deletion | ValueType::SingleDeletion | ValueType::Merge => return Ok(None),
        ValueType::Value => bytes.to_vec(),
        ValueType::BlobIndex => blobs.get(key, BlobIndex::decode(decoder)?)?,
        ValueType::WideColumns => match default_column(decoder)? {
            DefaultColumn::Inline(value) => value.to_vec(),
            DefaultColumn::Blob(index) => blobs.get(key, index)?,
        },
        ValueType::TimedValue => match bytes.split_last_chunk::<8>() {
            Some((value, _)) => value.to_vec(),
            None => return Err(decoder.corrupt("a timed value is shorter than 8 bytes")),
        },
    }))
}

impl Iterator for Entries {
    type Item = Result<(Vec<u8>, Vec<u8>)>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            match self.next_key() {
                Ok(None) => return None,
                Ok(Some(None)) => {}
                Ok(Some(Some(value))) => return Some(Ok((self.key.clone(), value))),
                Err(error) => {
                    self.heads.clear();
                    return Some(Err(error));
                }
            }
        }
    }
}
