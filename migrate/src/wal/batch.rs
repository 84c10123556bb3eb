//! Write batches.

use std::path::Path;

use crate::{
    decoder::Decoder,
    error::Result,
    internal_key::{SEQUENCE_MAX, ValueType},
};

/// A record of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Operation<'a> {
    Entry {
        family: u32,
        value_type: ValueType,
        key: &'a [u8],
        value: &'a [u8],
    },
    RangeDelete {
        family: u32,
        start: &'a [u8],
        end: &'a [u8],
    },
    /// The operations up to `EndPrepare` belong to a transaction.
    BeginPrepare,
    EndPrepare {
        transaction: &'a [u8],
    },
    Commit {
        transaction: &'a [u8],
    },
    Rollback {
        transaction: &'a [u8],
    },
    /// Changes nothing.
    Nothing,
}

/// A batch of a log.
#[derive(Debug)]
pub(crate) struct Batch<'a> {
    /// Sequence number of the first operation.
    pub(crate) sequence: u64,
    /// Number of operations that take a sequence number.
    pub(crate) count: u32,
    operations: Operations<'a>,
}

/// Operations of a batch, in order.
#[derive(Debug, Clone)]
pub(crate) struct Operations<'a> {
    decoder: Decoder<'a>,
}

impl<'a> Batch<'a> {
    /// Decodes the header of the batch in the record at `offset` of the log `path`.
    pub(crate) fn decode(record: &'a [u8], path: &'a Path, offset: u64) -> Result<Self> {
        let mut decoder = Decoder::new(record, path, offset);
        let sequence = decoder.u64("sequence number")?;
        let count = decoder.u32("number of operations")?;
        if sequence > SEQUENCE_MAX - u64::from(count) {
            return Err(decoder.corrupt("a sequence number is too large"));
        }
        Ok(Self { sequence, count, operations: Operations { decoder } })
    }

    /// Returns all operations.
    pub(crate) fn operations(&self) -> Result<Vec<Operation<'a>>> {
        let mut operations = self.operations.clone();
        // Grows with the record: the count may be wrong.
        let mut found = Vec::new();
        let mut numbered = 0_u32;
        while !operations.decoder.is_empty() {
            let operation = operations.next()?;
            numbered += u32::from(operation.takes_sequence());
            found.push(operation);
        }
        if numbered != self.count {
            let reason = format!("{numbered} operations in a batch of {}", self.count);
            return Err(operations.decoder.corrupt(reason));
        }
        Ok(found)
    }
}

impl Operation<'_> {
    /// Returns `true` if the operation has a sequence number of its own.
    pub(crate) fn takes_sequence(&self) -> bool {
        matches!(self, Self::Entry { .. } | Self::RangeDelete { .. })
    }
}

impl<'a> Operations<'a> {
    fn next(&mut self) -> Result<Operation<'a>> {
        let decoder = &mut self.decoder;
        let tag = decoder.u8("operation")?;
        let family = match tag {
            0x04 | 0x05 | 0x06 | 0x08 | 0x0e | 0x10 | 0x17 | 0x19 => {
                decoder.varint32("column family")?
            }
            _ => 0,
        };
        let (value_type, has_value) = match tag {
            0x00 | 0x04 => (ValueType::Deletion, false),
            0x07 | 0x08 => (ValueType::SingleDeletion, false),
            0x01 | 0x05 => (ValueType::Value, true),
            0x02 | 0x06 => (ValueType::Merge, true),
            0x10 | 0x11 => (ValueType::BlobIndex, true),
            0x16 | 0x17 => (ValueType::WideColumns, true),
            0x18 | 0x19 => (ValueType::TimedValue, true),
            0x0e | 0x0f => {
                let start = decoder.prefixed("start of a range")?;
                return Ok(Operation::RangeDelete {
                    family,
                    start,
                    end: decoder.prefixed("end of a range")?,
                });
            }
            0x03 => {
                decoder.prefixed("log data")?;
                return Ok(Operation::Nothing);
            }
            0x0d => return Ok(Operation::Nothing),
            0x09 => return Ok(Operation::BeginPrepare),
            0x0a => {
                return Ok(Operation::EndPrepare { transaction: decoder.prefixed("transaction")? });
            }
            0x0b => return Ok(Operation::Commit { transaction: decoder.prefixed("transaction")? }),
            0x0c => {
                return Ok(Operation::Rollback { transaction: decoder.prefixed("transaction")? });
            }
            0x12 | 0x13 => {
                let feature = "transactions with the policy WritePrepared or WriteUnprepared in \
                               the log; flush the database with RocksDB";
                return Err(decoder.unsupported(feature));
            }
            0x14 | 0x15 => return Err(decoder.unsupported("user-defined timestamps")),
            _ => return Err(decoder.unsupported(format!("operation {tag:#04x} in a batch"))),
        };
        let key = decoder.prefixed("key")?;
        let value = if has_value { decoder.prefixed("value")? } else { &[] };
        Ok(Operation::Entry { family, value_type, key, value })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decode(count: u8, operations: &[u8]) -> Result<Vec<Operation<'_>>> {
        let record = [[9, 0, 0, 0, 0, 0, 0, 0, count, 0, 0, 0].as_slice(), operations].concat();
        let record = record.leak();
        Batch::decode(record, Path::new("log"), 0)?.operations()
    }

    #[test]
    fn operations_of_each_kind() {
        let bytes = b"\x01\x01k\x01v\x08\x07\x01k\x0f\x01a\x01b\x0d\x03\x02xx\x0b\x01t";
        let want = [
            Operation::Entry { family: 0, value_type: ValueType::Value, key: b"k", value: b"v" },
            Operation::Entry {
                family: 7,
                value_type: ValueType::SingleDeletion,
                key: b"k",
                value: b"",
            },
            Operation::RangeDelete { family: 0, start: b"a", end: b"b" },
            Operation::Nothing,
            Operation::Nothing,
            Operation::Commit { transaction: b"t" },
        ];
        assert_eq!(decode(3, bytes).unwrap(), want);
        assert!(decode(2, bytes).unwrap_err().to_string().contains("3 operations in a batch of 2"));
    }

    #[test]
    fn unknown_operations_are_refused_by_number() {
        let refused = |bytes: &[u8]| decode(1, bytes).unwrap_err().to_string();
        assert!(refused(b"\x42").contains("operation 0x42"));
        assert!(refused(b"\x12").contains("WritePrepared"));
        assert!(refused(b"\x15").contains("timestamps"));
        assert!(refused(b"\x01\x05k").contains("key is truncated"));
    }
}
