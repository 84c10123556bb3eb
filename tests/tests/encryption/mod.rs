//! Encrypted stores.

#![expect(clippy::unwrap_used, reason = "a test fails by a panic")]

mod backups;
mod crash;
mod damage;
mod failing_keys;
mod ingest;
mod nonces;
mod opening;
mod repair;
mod replicas;
mod rotation;
mod secrecy;
mod stress;

use std::sync::Arc;

use sievedb::{KeyProvider, Options, RootKey, StaticKeys, fs::Fs};
use sievedb_doubles::MemoryFs;
use sievedb_tests::settings::{small_keyspace, small_options};

/// Returns the keys 1 to `keys`. The last one encrypts new files.
fn keys(keys: u8) -> Arc<dyn KeyProvider> {
    let first = StaticKeys::new(1, RootKey::new([1; 32]));
    Arc::new((2..=keys).fold(first, |all, id| all.with(id.into(), RootKey::new([id; 32]))))
}

fn encrypted(fs: Arc<dyn Fs>) -> Options {
    small_options(fs).keyspace(small_keyspace().blob_value_bytes(100)).encryption(keys(1))
}

fn on(disk: &Arc<MemoryFs>) -> Arc<dyn Fs> {
    Arc::clone(disk) as Arc<dyn Fs>
}
