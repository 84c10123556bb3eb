//! A part of the archived log: the batches of a store after one sequence number, up to another.
//!
//! The magic number of its [frame](super::frame) is `SvBackLg`. Its fields:
//!
//! | tag         | value                       | meaning                                         |
//! |-------------|-----------------------------|-------------------------------------------------|
//! | 1, required | three varints               | number of the backup, `after`, `upto`           |
//! | 2, required | u128                        | store id                                        |
//! | 3, required | varint; missing             | no later write was placed before this time      |
//! | 4, required | two varints; often          | time, last sequence number placed by then       |
//! | 5, required | varint, bytes; often        | first sequence number of a batch, its payload   |
//!
//! Times are those of the store clock, in milliseconds. The name of a part has its range.

use bytes::Bytes;
use sievedb_format::{Corruption, Encode, SEQUENCE_MAX, SequenceNumber};

use super::frame::Frame;
use crate::{
    log::fields::{EncodeFields, Fields, required, set_once},
    sequence_times::Sample,
    wal::batch::Batch,
};

const FRAME: Frame = Frame {
    magic: *b"SvBackLg",
    what: "part of an archived log",
    what_version: "version of an archived log",
};

const RANGE: u64 = required(1);
const STORE: u64 = required(2);
const WHOLE: u64 = required(3);
const SAMPLE: u64 = required(4);
const BATCH: u64 = required(5);

/// The range of a part. Parts of a backup sort by it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct PartRange {
    /// Number of the backup that the log follows.
    pub(super) backup: u64,
    pub(super) after: SequenceNumber,
    pub(super) upto: SequenceNumber,
}

impl PartRange {
    pub(super) fn name(&self) -> String {
        let Self { backup, after, upto } = self;
        format!("{backup:06}-{after:017}-{upto:017}")
    }

    pub(super) fn parse(name: &str) -> Option<Self> {
        let mut numbers = name.splitn(3, '-').map(|number| number.parse().ok());
        let mut next = || numbers.next().flatten();
        let range = Self { backup: next()?, after: next()?, upto: next()? };
        (range.name() == name && range.after <= range.upto).then_some(range)
    }
}

/// A decoded part.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct LogPart {
    pub(super) range: PartRange,
    pub(super) store_id: u128,
    /// Store clock. No write after the part was placed before it. `None` if another part follows.
    pub(super) whole_ms: Option<u64>,
    /// Samples in ascending order.
    pub(super) samples: Vec<Sample>,
    /// Batches in ascending order.
    pub(super) batches: Vec<ArchivedBatch>,
    /// Length of the encoded part.
    pub(super) bytes: u64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ArchivedBatch {
    pub(super) first: SequenceNumber,
    pub(super) last: SequenceNumber,
    pub(super) payload: Bytes,
}

/// Encodes a part.
#[derive(Debug)]
pub(super) struct PartEncoder(Vec<u8>);

impl PartEncoder {
    pub(super) fn new() -> Self {
        Self(FRAME.begin())
    }

    pub(super) const fn bytes(&self) -> usize {
        self.0.len()
    }

    pub(super) fn put_batch(&mut self, first: SequenceNumber, payload: &[u8]) {
        let mut head = Vec::with_capacity(10);
        head.put_varint(first);
        self.0.put_varint(BATCH);
        self.0.put_varint((head.len() + payload.len()) as u64);
        self.0.extend_from_slice(&head);
        self.0.extend_from_slice(payload);
    }

    pub(super) fn finish(
        mut self,
        range: PartRange,
        store_id: u128,
        whole_ms: Option<u64>,
        samples: &[Sample],
    ) -> Vec<u8> {
        self.0.put_varints_field(RANGE, &[range.backup, range.after, range.upto]);
        self.0.put_field(STORE, &store_id.to_le_bytes());
        if let Some(ms) = whole_ms {
            self.0.put_varint_field(WHOLE, ms);
        }
        for &(ms, sequence) in samples {
            self.0.put_varints_field(SAMPLE, &[ms, sequence]);
        }
        Frame::end(self.0)
    }
}

impl LogPart {
    /// # Errors
    ///
    /// [`Corruption`] if the bytes break the format above.
    pub(super) fn decode(bytes: &Bytes) -> Result<Self, Corruption> {
        let what = FRAME.what;
        let (mut range, mut store_id, mut whole_ms) = (None, None, None);
        let (mut samples, mut batches) = (Vec::new(), Vec::new());
        let mut fields = Fields::new(what, FRAME.fields(bytes)?);
        while let Some(field) = fields.next()? {
            match field.tag {
                RANGE => {
                    let [backup, after, upto] = field.varints(what)?;
                    set_once(&mut range, PartRange { backup, after, upto }, what)?;
                }
                STORE => set_once(&mut store_id, field.u128(what)?, what)?,
                WHOLE => set_once(&mut whole_ms, field.varint(what)?, what)?,
                SAMPLE => {
                    let [ms, sequence] = field.varints(what)?;
                    samples.push((ms, sequence));
                }
                BATCH => batches.push(field.read(what, |decoder| {
                    let first = decoder.varint(what)?;
                    let payload = decoder.rest();
                    let payload = decoder.take(what, payload.len())?;
                    decode_batch(first, bytes.slice_ref(payload))
                })?),
                _ => field.skip(what)?,
            }
        }
        let range = range.ok_or(Corruption::Missing { what: "range of an archived log" })?;
        let store_id = store_id.ok_or(Corruption::Missing { what: "store of an archived log" })?;
        let bytes = bytes.len() as u64;
        let part = Self { range, store_id, whole_ms, samples, batches, bytes };
        part.check()?;
        Ok(part)
    }

    /// Checks the order of all numbers.
    fn check(&self) -> Result<(), Corruption> {
        let PartRange { after, upto, .. } = self.range;
        let mut last = after;
        for batch in &self.batches {
            if batch.first <= last {
                return Err(Corruption::Order { what: "batches of an archived log" });
            }
            last = batch.last;
        }
        if last > upto || upto > SEQUENCE_MAX {
            return Err(Corruption::OutOfRange { what: "end of an archived log", value: last });
        }
        let ascends = |pair: &[Sample]| pair[0].0 < pair[1].0 && pair[0].1 <= pair[1].1;
        if !self.samples.windows(2).all(ascends) {
            return Err(Corruption::Order { what: "times of an archived log" });
        }
        Ok(())
    }
}

fn decode_batch(first: SequenceNumber, payload: Bytes) -> Result<ArchivedBatch, Corruption> {
    let entries = Batch::decode(payload.clone())?.entries();
    let last = entries.checked_sub(1).and_then(|further| first.checked_add(further));
    let last = last.filter(|_| first > 0);
    let what = "batch of an archived log";
    let last = last.ok_or(Corruption::OutOfRange { what, value: entries })?;
    Ok(ArchivedBatch { first, last, payload })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        tests::{check_golden, hex},
        wal::batch::BatchEncoder,
    };

    const RANGE: PartRange = PartRange { backup: 3, after: 10, upto: 14 };

    fn payload(entries: u8) -> Bytes {
        let mut batch = BatchEncoder::new();
        (0..entries).for_each(|key| batch.remove(1, &[key]));
        batch.finish()
    }

    fn part() -> Vec<u8> {
        let mut encoder = PartEncoder::new();
        encoder.put_batch(11, &payload(2));
        encoder.put_batch(14, &payload(1));
        encoder.finish(RANGE, 7 << 64 | 9, Some(5000), &[(3000, 10), (4000, 12)])
    }

    #[test]
    fn parts_return() {
        let part = LogPart::decode(&part().into()).expect("well formed");
        assert_eq!((part.range, part.store_id, part.whole_ms), (RANGE, 7 << 64 | 9, Some(5000)));
        assert_eq!(part.samples, [(3000, 10), (4000, 12)]);
        let batches: Vec<_> = part.batches.iter().map(|batch| (batch.first, batch.last)).collect();
        assert_eq!(batches, [(11, 12), (14, 14)]);
        assert_eq!(part.batches[0].payload, payload(2));
    }

    #[test]
    fn the_bytes_of_a_part_are_pinned() {
        check_golden("backup/log_part", &hex(&part()));
    }

    #[test]
    fn every_flipped_bit_and_every_cut_is_refused() {
        let good = part();
        for at in 0..good.len() {
            assert!(LogPart::decode(&Bytes::copy_from_slice(&good[..at])).is_err(), "cut at {at}");
            for bit in 0..8 {
                let mut bytes = good.clone();
                bytes[at] ^= 1 << bit;
                assert!(LogPart::decode(&bytes.into()).is_err(), "bit {bit} of byte {at}");
            }
        }
    }

    #[test]
    fn numbers_out_of_order_are_refused() {
        let decode = |batches: &[(u64, u8)], range, samples: &[Sample]| {
            let mut encoder = PartEncoder::new();
            batches
                .iter()
                .for_each(|&(first, entries)| encoder.put_batch(first, &payload(entries)));
            LogPart::decode(&encoder.finish(range, 1, None, samples).into())
        };
        assert!(decode(&[(11, 1)], RANGE, &[]).is_ok());
        assert!(decode(&[(10, 1)], RANGE, &[]).is_err(), "before the range");
        assert!(decode(&[(14, 2)], RANGE, &[]).is_err(), "after the range");
        assert!(decode(&[(11, 2), (12, 1)], RANGE, &[]).is_err(), "overlapping");
        assert!(decode(&[(11, 0)], RANGE, &[]).is_err(), "empty");
        assert!(decode(&[(u64::MAX, 2)], RANGE, &[]).is_err(), "too large");
        assert!(decode(&[], RANGE, &[(2, 11), (2, 12)]).is_err(), "a time twice");
    }

    #[test]
    fn names_hold_the_range() {
        assert_eq!(PartRange::parse(&RANGE.name()), Some(RANGE));
        assert!(RANGE.name() < PartRange { after: 11, ..RANGE }.name());
        for name in ["", "3-10-14", "000003-1-2", "../000003", "000003-00000000000000014-1"] {
            assert_eq!(PartRange::parse(name), None, "{name}");
        }
    }
}
