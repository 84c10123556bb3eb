//! Entries of a table in order.

use std::{path::Path, sync::Arc};

use super::{Table, block::Block, footer::Handle};
use crate::{
    error::Result,
    internal_key::{ValueType, split_internal_key},
};

/// Cursor over the entries of a table. Holds one data block and one or two index blocks.
#[derive(Debug)]
pub(crate) struct TableCursor {
    table: Table,
    /// Index of partitions, if the index is partitioned.
    partitions: Option<IndexCursor>,
    index: Option<IndexCursor>,
    data: Option<Block>,
    sequence: u64,
    value_type: ValueType,
}

/// Handles of an index block in order.
#[derive(Debug)]
struct IndexCursor {
    block: Block,
    previous: Option<Handle>,
}

impl IndexCursor {
    fn next(&mut self, table: &Table) -> Result<Option<Handle>> {
        self.previous = self.block.advance_index(table.coding, self.previous)?;
        Ok(self.previous)
    }
}

impl TableCursor {
    /// Returns a cursor before the first entry.
    pub(crate) fn new(mut table: Table) -> Result<Self> {
        let top = IndexCursor { block: table.index_block(table.index)?, previous: None };
        let (partitions, index) = match table.is_partitioned {
            true => (Some(top), None),
            false => (None, Some(top)),
        };
        let value_type = ValueType::Deletion;
        Ok(Self { table, partitions, index, data: None, sequence: 0, value_type })
    }

    pub(crate) fn path(&self) -> &Arc<Path> {
        self.table.path()
    }

    /// Returns the user key of the current entry.
    pub(crate) fn key(&self) -> &[u8] {
        let key = self.data.as_ref().map(Block::key).unwrap_or_default();
        split_internal_key(key).map(|(user, ..)| user).unwrap_or_default()
    }

    pub(crate) fn sequence(&self) -> u64 {
        self.sequence
    }

    pub(crate) fn value_type(&self) -> ValueType {
        self.value_type
    }

    pub(crate) fn value(&self) -> &[u8] {
        self.data.as_ref().map(Block::value).unwrap_or_default()
    }

    /// Returns the offset of the current data block.
    pub(crate) fn offset(&self) -> u64 {
        self.data.as_ref().map_or(0, Block::offset)
    }

    /// Moves to the next entry. Returns `false` at the end.
    pub(crate) fn advance(&mut self) -> Result<bool> {
        loop {
            if let Some(block) = &mut self.data
                && block.advance()?
            {
                let (_, sequence, number) = split_internal_key(block.key())
                    .ok_or_else(|| block.corrupt("an internal key is shorter than 8 bytes"))?;
                self.sequence = self.table.global_sequence.unwrap_or(sequence);
                self.value_type = ValueType::from_number(number, self.table.path())?;
                return Ok(true);
            }
            let Some(handle) = self.next_handle()? else { return Ok(false) };
            self.data = Some(self.table.data_block(handle)?);
        }
    }

    /// Returns the handle of the next data block.
    fn next_handle(&mut self) -> Result<Option<Handle>> {
        loop {
            if let Some(index) = &mut self.index
                && let Some(handle) = index.next(&self.table)?
            {
                return Ok(Some(handle));
            }
            let Some(partitions) = &mut self.partitions else { return Ok(None) };
            let Some(handle) = partitions.next(&self.table)? else { return Ok(None) };
            let block = self.table.index_block(handle)?;
            self.index = Some(IndexCursor { block, previous: None });
        }
    }
}
