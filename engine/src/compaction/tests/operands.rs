//! Keys with many bytes of merge operands.

use std::{
    collections::BTreeMap,
    rc::Rc,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use sievedb_format::{Kind, Trailer};

use crate::{
    MergeError, MergeOperator, Options,
    compaction::{readers::Readers, retain::RetainStream},
    fold::OperatorCell,
    iter::tests::model::{Entry, VecCursor},
    merge_operator::NamedOperator,
    table::cache_room::{CacheRoom, WorkerShare},
};

const OPERANDS: u64 = 8000;
const OPERAND_BYTES: u64 = 1 << 10;
const BYTES: u64 = OPERANDS * OPERAND_BYTES;
/// Joined bytes per byte of the operands: about 15 for each of the last few doublings.
const JOINED_MAX: u64 = 64;

/// Joins operands, until that has cost too much.
#[derive(Debug, Default)]
struct Joins {
    has_partial: bool,
    joined_bytes: AtomicU64,
    /// Observed by each merge into a value.
    share: Option<Arc<WorkerShare>>,
    share_bytes: AtomicU64,
}

impl MergeOperator for Joins {
    fn name(&self) -> &str {
        "joins"
    }

    fn merge(
        &self,
        _: &[u8],
        base: Option<&[u8]>,
        operands: &[&[u8]],
    ) -> Result<Vec<u8>, MergeError> {
        self.share_bytes.store(self.share.as_ref().map_or(0, |share| share.bytes()), Relaxed);
        Ok([&[base.unwrap_or_default()], operands].concat().concat())
    }

    fn partial_merge(&self, _: &[u8], older: &[u8], newer: &[u8]) -> Option<Vec<u8>> {
        let bytes = (older.len() + newer.len()) as u64;
        let joined = self.joined_bytes.fetch_add(bytes, Relaxed) + bytes;
        (self.has_partial && joined <= JOINED_MAX * BYTES).then(|| [older, newer].concat())
    }
}

/// Merges one key with [`OPERANDS`]. Returns the number of entries that are kept, by kind, and the
/// bytes of their values.
fn kept(
    operator: &Arc<Joins>,
    share: &Arc<WorkerShare>,
    is_bottom: bool,
) -> (BTreeMap<Kind, u64>, u64) {
    let entry = |sequence| Entry {
        user_key: b"key".to_vec(),
        trailer: Trailer::new(sequence, Kind::Merge),
        value: vec![b'a'; OPERAND_BYTES as usize].into(),
    };
    let entries: Vec<_> = (1..=OPERANDS).rev().map(entry).collect();
    let cursor = VecCursor::new(entries, &Rc::default());
    let readers = Readers::new([], None, 0);
    let operators = OperatorCell::default();
    operators.set(&Arc::default(), &NamedOperator::new(Arc::clone(operator) as _));
    let stream = RetainStream::new(cursor, readers, |_: &[u8]| is_bottom, || false);
    let mut stream = stream.folding(operators).charging(share);
    let (mut kinds, mut bytes) = (BTreeMap::new(), 0);
    stream.seek_to_first().expect("no error");
    while let Some(key) = stream.key() {
        *kinds.entry(key.trailer.kind()).or_default() += 1;
        bytes += stream.value().len() as u64;
        stream.next().expect("no error");
    }
    assert_eq!(share.bytes(), 0, "all is released");
    (kinds, bytes)
}

fn share() -> Arc<WorkerShare> {
    let room = CacheRoom::of(&Options::new()).expect("a valid budget");
    WorkerShare::new(room, 1 << 20, false)
}

#[test]
fn joining_many_operands_copies_each_byte_a_few_times() {
    let operator = Arc::new(Joins { has_partial: true, ..Joins::default() });
    assert_eq!(kept(&operator, &share(), false), ([(Kind::Merge, 1)].into(), BYTES));
    let joined = operator.joined_bytes.load(Relaxed);
    assert!(joined <= JOINED_MAX * BYTES, "{} per byte", joined / BYTES);
}

#[test]
fn operands_that_cannot_be_joined_are_folded_at_once_and_charged() {
    let share = share();
    let operator = Arc::new(Joins { share: Some(Arc::clone(&share)), ..Joins::default() });
    assert_eq!(kept(&operator, &share, true), ([(Kind::Put, 1)].into(), BYTES));
    let charged = operator.share_bytes.load(Relaxed);
    assert!((2 * BYTES..5 * BYTES).contains(&charged), "{charged}");
    assert_eq!(kept(&operator, &share, false), ([(Kind::Merge, OPERANDS)].into(), BYTES));
}
