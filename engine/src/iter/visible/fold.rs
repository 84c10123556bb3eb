//! Values computed from merge operands.

use sievedb_format::{Corruption, InternalKey};

use super::{InBlobFile, State, VisibleCursor};
use crate::{
    Error, Result,
    fold::OPERANDS_FREE,
    iter::cursor::{Cursor, out_of_order},
    resolve::{self, Refused, Seen},
};

impl<C: Cursor> VisibleCursor<C> {
    /// Moves to the newest visible version of `user_key`, a merge operand, and folds it.
    #[cold]
    pub(super) fn fold_from_newest(&mut self) -> Result<()> {
        self.cursor.seek(InternalKey::seek(&self.user_key, self.at.sequence))?;
        match self.cursor.key() {
            Some(key) if key.user_key == self.user_key => self.fold(),
            Some(_) => Err(out_of_order(&self.cursor)),
            None => {
                let source = Corruption::Order { what: "an entry" };
                Err(Error::corrupt("a table or memtable", 0, source))
            }
        }
    }

    /// Moves forward over the merge operands of `user_key` under the cursor, up to the version that
    /// decides, and computes the value.
    #[cold]
    pub(super) fn fold(&mut self) -> Result<()> {
        if self.operator.get().is_none() {
            return Err(self.refused(Refused::OPERAND));
        }
        let (mut operands, mut base) = (Vec::new(), None);
        while let Some(key) = self.cursor.key()
            && key.user_key == self.user_key
        {
            let trailer = key.trailer;
            match self.seen(trailer)? {
                Seen::Operand => {
                    operands.push(self.cursor.value());
                    if operands.len() > OPERANDS_FREE {
                        self.cursor.note_tombstone();
                    }
                }
                Seen::Value => {
                    base = Some(match resolve::is_in_blob_file(trailer) {
                        true => self.cursor.blob()?.read()?,
                        false => self.present_value(),
                    });
                    break;
                }
                Seen::Nothing => break,
            }
            self.cursor.next()?;
        }
        debug_assert!(!operands.is_empty(), "an operand is under the cursor");
        let oldest_first: Vec<&[u8]> = operands.iter().rev().map(|operand| &**operand).collect();
        if let Some(folder) = self.operator.get() {
            self.value = folder.fold(&self.user_key, base.as_deref(), &oldest_first)?;
            self.in_blob_file = InBlobFile::No;
            self.state = State::Folded;
        }
        Ok(())
    }
}
