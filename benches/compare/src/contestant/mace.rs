//! mace: pages in memory have half of the total, changed pages a quarter, values from files an
//! eighth. A read view is kept between lookups, as its example does.

use std::path::Path;

use mace::{Bucket, BucketOptions, Mace as Database, OpCode, Options, TxnKV, TxnView};

use super::{Engine, Order, Reader, Tuning, copy_value};
use crate::{
    failure::Result,
    keys::{Entry, Key, Value},
    settings::Settings,
};

const BUCKET: &str = "default";

/// An open store.
pub(crate) struct Mace {
    database: Database,
    bucket: Bucket,
}

/// Makes an error of `code`, which is none of std's kind.
fn failed(code: OpCode) -> String {
    format!("mace: {code}")
}

impl Mace {
    fn commit(
        &self,
        change: impl FnOnce(&TxnKV<'_>) -> std::result::Result<(), OpCode>,
    ) -> Result<()> {
        let transaction = self.bucket.begin().map_err(failed)?;
        change(&transaction).map_err(failed)?;
        Ok(transaction.commit().map_err(failed)?)
    }

    fn view(&self) -> Result<TxnView<'_>> {
        Ok(self.bucket.view().map_err(failed)?)
    }
}

impl Engine for Mace {
    type Reader<'a> = MaceReader<'a>;

    fn open(path: &Path, _: Tuning, settings: &Settings) -> Result<Self> {
        let total_bytes = usize::try_from(settings.total_bytes)?;
        let mut options = Options::new(path.join("mace"));
        options.sync_on_write = settings.sync_writes;
        options.lru_capacity = total_bytes / 8;
        let bucket_options = BucketOptions {
            cache_capacity: total_bytes / 2,
            pool_capacity: total_bytes / 4,
            checkpoint_size: total_bytes / 16,
            ..BucketOptions::new()
        };
        let database = Database::new(options.validate().map_err(failed)?).map_err(failed)?;
        let bucket = match database.open_bucket_with_options(BUCKET, bucket_options.clone()) {
            Err(OpCode::NotFound) => database.new_bucket(BUCKET, bucket_options),
            opened => opened,
        };
        Ok(Self { bucket: bucket.map_err(failed)?, database })
    }

    fn write(&self, entries: &[Entry]) -> Result<()> {
        self.commit(|transaction| {
            entries.iter().try_for_each(|(key, value)| transaction.upsert(key, value))
        })
    }

    fn write_synced(&self, entry: &Entry) -> Result<()> {
        self.write(std::slice::from_ref(entry))
    }

    fn remove(&self, keys: &[Key]) -> Result<()> {
        self.commit(|transaction| keys.iter().try_for_each(|key| transaction.del(key)))
    }

    fn flush(&self) -> Result<()> {
        self.bucket.checkpoint_and_wait();
        Ok(self.database.sync().map_err(failed)?)
    }

    fn reader(&self) -> Result<MaceReader<'_>> {
        Ok(MaceReader { store: self, view: None })
    }

    fn scan(&self, order: Order, mut visit: impl FnMut(&[u8], &[u8])) -> Result<()> {
        let view = self.view()?;
        let mut entries = view.range::<&[u8], _>(..);
        match order {
            Order::Ascending => entries.for_each(|entry| visit(entry.key(), entry.val())),
            Order::Descending => {
                while let Some(entry) = entries.next_back() {
                    visit(entry.key(), entry.val());
                }
            }
        }
        Ok(())
    }

    fn shape(&self) -> Result<String> {
        Ok("not reported".to_owned())
    }
}

/// Keeps a view for as long as nothing is written.
pub(crate) struct MaceReader<'a> {
    store: &'a Mace,
    view: Option<TxnView<'a>>,
}

impl<'a> MaceReader<'a> {
    fn view(&mut self) -> Result<&TxnView<'a>> {
        match &mut self.view {
            Some(view) => Ok(view),
            none => Ok(none.insert(self.store.view()?)),
        }
    }
}

impl Reader for MaceReader<'_> {
    fn get(&mut self, key: &Key, value: &mut Value) -> Result<bool> {
        match self.view()?.get(key) {
            Ok(found) => copy_value(found.slice(), value),
            Err(OpCode::NotFound) => return Ok(false),
            Err(code) => return Err(failed(code).into()),
        }
        Ok(true)
    }

    fn contains_many(&mut self, keys: &[Key], answers: &mut Vec<bool>) -> Result<()> {
        answers.clear();
        let mut value = [0; _];
        for key in keys {
            answers.push(self.get(key, &mut value)?);
        }
        Ok(())
    }

    fn scan_from(
        &mut self,
        key: &Key,
        entries: usize,
        mut visit: impl FnMut(&[u8], &[u8]),
    ) -> Result<()> {
        let found = self.view()?.range(&key[..]..).take(entries);
        found.for_each(|entry| visit(entry.key(), entry.val()));
        Ok(())
    }

    fn let_go(&mut self) {
        self.view = None;
    }
}
