//! The engines, each with the same total memory and with optimistic transactions where it has them.

use std::path::Path;

use crate::{Key, Result, incremented};

/// The memory of each engine, in bytes.
const TOTAL_BYTES: usize = 256 << 20;

/// An open store.
pub(crate) trait Store: Sync {
    fn name(&self) -> &'static str;

    fn get(&self, key: &Key) -> Result<Option<Vec<u8>>>;

    /// Inserts outside of a transaction, if the engine has such writes.
    fn insert(&self, key: &Key, value: &[u8]) -> Result<()>;

    /// Increments the counter of `key` in a transaction, again and again until it commits.
    fn increment(&self, key: &Key) -> Result<()>;
}

/// Opens a new store of each compiled engine below `dir`.
pub(crate) fn open_all(dir: &Path) -> Result<Vec<Box<dyn Store>>> {
    Ok(vec![
        Box::new(sievedb::SieveDb::open(dir)?),
        #[cfg(feature = "fjall")]
        Box::new(fjall::Fjall::open(dir)?),
        #[cfg(feature = "redb")]
        Box::new(redb::Redb::open(dir)?),
        #[cfg(feature = "rocksdb")]
        Box::new(rocksdb::RocksDb::open(dir)?),
        #[cfg(feature = "surrealkv")]
        Box::new(surrealkv::SurrealKv::open(dir)?),
    ])
}

fn present<T>(value: Option<T>) -> Result<T> {
    value.ok_or_else(|| "a key is lost".into())
}

mod sievedb {
    use super::{Key, Path, Result, Store, TOTAL_BYTES, incremented};
    use ::sievedb::{Db, Error, Options};

    pub(super) struct SieveDb(Db);

    impl SieveDb {
        pub(super) fn open(dir: &Path) -> Result<Self> {
            Ok(Self(Options::new().memory_budget(TOTAL_BYTES as u64).open(dir.join("sievedb"))?))
        }
    }

    impl Store for SieveDb {
        fn name(&self) -> &'static str {
            crate::SIEVEDB
        }

        fn get(&self, key: &Key) -> Result<Option<Vec<u8>>> {
            Ok(self.0.get_with(key, <[u8]>::to_vec)?)
        }

        fn insert(&self, key: &Key, value: &[u8]) -> Result<()> {
            Ok(self.0.insert(key, value)?)
        }

        fn increment(&self, key: &Key) -> Result<()> {
            loop {
                let mut transaction = self.0.begin();
                let value = super::present(transaction.get(&self.0, key)?)?;
                transaction.insert(&self.0, key, incremented(&value)?)?;
                match transaction.commit(None) {
                    Err(Error::Conflict { .. }) => {}
                    committed => return Ok(committed.map(drop)?),
                }
            }
        }
    }
}

#[cfg(feature = "fjall")]
mod fjall {
    use super::{Key, Path, Result, Store, TOTAL_BYTES, incremented};
    use ::fjall::{
        KeyspaceCreateOptions, OptimisticTxDatabase, OptimisticTxKeyspace, Readable as _,
    };

    /// A 16th of the total, as elsewhere in this comparison.
    const MEMTABLE_BYTES: u64 = TOTAL_BYTES as u64 / 16;

    pub(super) struct Fjall {
        database: OptimisticTxDatabase,
        keyspace: OptimisticTxKeyspace,
    }

    impl Fjall {
        pub(super) fn open(dir: &Path) -> Result<Self> {
            let database = OptimisticTxDatabase::builder(dir.join("fjall"))
                .cache_size(TOTAL_BYTES as u64 - MEMTABLE_BYTES)
                .open()?;
            let keyspace = database.keyspace("default", || {
                KeyspaceCreateOptions::default().max_memtable_size(MEMTABLE_BYTES)
            })?;
            Ok(Self { database, keyspace })
        }
    }

    impl Store for Fjall {
        fn name(&self) -> &'static str {
            "fjall"
        }

        fn get(&self, key: &Key) -> Result<Option<Vec<u8>>> {
            Ok(self.keyspace.get(key)?.map(|value| value.to_vec()))
        }

        fn insert(&self, key: &Key, value: &[u8]) -> Result<()> {
            Ok(self.keyspace.insert(&key[..], value)?)
        }

        fn increment(&self, key: &Key) -> Result<()> {
            loop {
                let mut transaction = self.database.write_tx()?;
                let value = super::present(transaction.get(&self.keyspace, key)?)?;
                transaction.insert(&self.keyspace, &key[..], incremented(&value)?);
                if transaction.commit()?.is_ok() {
                    return Ok(());
                }
            }
        }
    }
}

#[cfg(feature = "redb")]
mod redb {
    use super::{Key, Path, Result, Store, TOTAL_BYTES, incremented};
    use ::redb::{
        Database, Durability, ReadableDatabase as _, ReadableTable as _, TableDefinition,
    };

    const TABLE: TableDefinition<'_, &[u8; 16], &[u8]> = TableDefinition::new("default");

    /// One writer at a time: its transactions never conflict.
    pub(super) struct Redb(Database);

    impl Redb {
        pub(super) fn open(dir: &Path) -> Result<Self> {
            let mut builder = Database::builder();
            builder.set_cache_size(TOTAL_BYTES);
            Ok(Self(builder.create(dir.join("redb"))?))
        }

        fn change(
            &self,
            key: &Key,
            new: impl FnOnce(Option<&[u8]>) -> Result<Vec<u8>>,
        ) -> Result<()> {
            let mut transaction = self.0.begin_write()?;
            transaction.set_durability(Durability::None)?;
            let mut table = transaction.open_table(TABLE)?;
            let value = new(table.get(key)?.as_ref().map(|value| value.value()))?;
            table.insert(key, &value[..])?;
            drop(table);
            Ok(transaction.commit()?)
        }
    }

    impl Store for Redb {
        fn name(&self) -> &'static str {
            "redb"
        }

        fn get(&self, key: &Key) -> Result<Option<Vec<u8>>> {
            let table = self.0.begin_read()?.open_table(TABLE)?;
            Ok(table.get(key)?.map(|value| value.value().to_vec()))
        }

        fn insert(&self, key: &Key, value: &[u8]) -> Result<()> {
            self.change(key, |_| Ok(value.to_vec()))
        }

        fn increment(&self, key: &Key) -> Result<()> {
            self.change(key, |value| incremented(super::present(value)?))
        }
    }
}

#[cfg(feature = "rocksdb")]
mod rocksdb {
    use super::{Key, Path, Result, Store, TOTAL_BYTES, incremented};
    use ::rocksdb::{
        BlockBasedOptions, Cache, DBCompressionType, ErrorKind, OptimisticTransactionDB, Options,
    };

    pub(super) struct RocksDb(OptimisticTransactionDB);

    impl RocksDb {
        pub(super) fn open(dir: &Path) -> Result<Self> {
            let mut table = BlockBasedOptions::default();
            table.set_bloom_filter(10.0, false);
            // Two write buffers of the default size, the cache has the rest.
            let mut options = Options::default();
            options.create_if_missing(true);
            let write_buffer_bytes = TOTAL_BYTES / 8;
            options.set_write_buffer_size(write_buffer_bytes);
            let cache_bytes = TOTAL_BYTES - 2 * write_buffer_bytes;
            table.set_block_cache(&Cache::new_hyper_clock_cache(cache_bytes, 0));
            options.set_block_based_table_factory(&table);
            options.set_compression_type(DBCompressionType::Lz4);
            Ok(Self(OptimisticTransactionDB::open(&options, dir.join("rocksdb"))?))
        }
    }

    impl Store for RocksDb {
        fn name(&self) -> &'static str {
            "RocksDB"
        }

        fn get(&self, key: &Key) -> Result<Option<Vec<u8>>> {
            Ok(self.0.get(key)?)
        }

        fn insert(&self, key: &Key, value: &[u8]) -> Result<()> {
            Ok(self.0.put(key, value)?)
        }

        fn increment(&self, key: &Key) -> Result<()> {
            loop {
                let transaction = self.0.transaction();
                let value = transaction.get_pinned_for_update(key, true)?;
                let value = incremented(&super::present(value)?)?;
                transaction.put(key, value)?;
                match transaction.commit() {
                    Err(error) if matches!(error.kind(), ErrorKind::Busy | ErrorKind::TryAgain) => {
                    }
                    committed => return Ok(committed?),
                }
            }
        }
    }
}

#[cfg(feature = "surrealkv")]
mod surrealkv {
    use super::{Key, Path, Result, Store, TOTAL_BYTES, incremented};
    use ::surrealkv::{Error, Tree, TreeBuilder};
    use tokio::runtime::{Builder, Runtime};

    /// The runtime runs the background work; a commit runs on the calling thread.
    pub(super) struct SurrealKv {
        tree: Tree,
        runtime: Runtime,
    }

    impl SurrealKv {
        pub(super) fn open(dir: &Path) -> Result<Self> {
            let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
            let memtable_bytes = TOTAL_BYTES / 8;
            let builder = TreeBuilder::new()
                .with_path(dir.join("surrealkv"))
                .with_max_memtable_size(memtable_bytes)
                .with_block_cache_capacity((TOTAL_BYTES - 2 * memtable_bytes) as u64);
            let tree = runtime.block_on(async { builder.build() })?;
            Ok(Self { tree, runtime })
        }
    }

    impl Store for SurrealKv {
        fn name(&self) -> &'static str {
            "SurrealKV"
        }

        fn get(&self, key: &Key) -> Result<Option<Vec<u8>>> {
            Ok(self.tree.begin()?.get(&key[..])?.map(|value| value.to_vec()))
        }

        fn insert(&self, key: &Key, value: &[u8]) -> Result<()> {
            let mut transaction = self.tree.begin()?;
            transaction.set(&key[..], value)?;
            Ok(self.runtime.block_on(transaction.commit())?)
        }

        fn increment(&self, key: &Key) -> Result<()> {
            loop {
                let mut transaction = self.tree.begin()?;
                let value = super::present(transaction.get_for_update(&key[..])?)?;
                transaction.set(&key[..], incremented(&value)?)?;
                match self.runtime.block_on(transaction.commit()) {
                    Err(Error::TransactionWriteConflict | Error::TransactionRetry) => {}
                    committed => return Ok(committed?),
                }
            }
        }
    }
}
