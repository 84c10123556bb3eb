//! Followers of encrypted stores: they read frames that are being appended.

use std::sync::Arc;

use sievedb::{Error, Options, RootKey, StaticKeys, fs::Fs, fs::RealFs};
use sievedb_doubles::MemoryFs;
use sievedb_tests::{
    enumerate::{on_two_threads, verdict},
    rng::mix,
    settings::{STORE_DIR, seed, small_options},
    workload::workload,
};

use super::{calls, following, threads};

/// Returns options with the keys 1 to `keys`. The last one encrypts new files.
fn encrypted(options: Options, keys: u8) -> Options {
    let first = StaticKeys::new(1, RootKey::new([1; 32]));
    let all = (2..=keys).fold(first, |all, id| all.with(id.into(), RootKey::new([id; 32])));
    options.encryption(Arc::new(all))
}

/// Every append is seen in part.
#[test]
fn follower_of_an_encrypted_store_shows_a_prefix_at_every_call() {
    let seed = seed("followed encrypted calls", 1);
    let names = ["reopen-continued", "log-rotation", "large-batch", "manifest-growth", "batches"];
    let results = on_two_threads(&names, |name| {
        let followed = calls::follow(workload(name), None, mix(seed), |it| encrypted(it, 1));
        followed.map_err(|text| format!("workload {name}: {text}"))
    });
    let states = verdict("followed encrypted calls", "states", results);
    assert!(states > 150, "only {states} states");
}

#[test]
fn followers_of_an_encrypted_store_see_prefixes_on_a_real_disk() {
    let (dir, fs) = (tempfile::tempdir().unwrap(), Arc::new(RealFs) as Arc<dyn Fs>);
    let seed = seed("followers of an encrypted store", 1);
    threads::run(encrypted(small_options(fs), 1), &dir.path().join("db"), seed, 2);
}

#[test]
fn follower_needs_the_keys_of_the_files_it_opens() {
    let disk = Arc::new(MemoryFs::new());
    let on = || Arc::clone(&disk) as Arc<dyn Fs>;
    let writer = encrypted(small_options(on()), 1).open(STORE_DIR).unwrap();
    writer.insert("a", "1").unwrap();
    let refused = following(on()).open(STORE_DIR);
    assert!(matches!(refused, Err(Error::Encrypted { .. })), "{refused:?}");
    let older = encrypted(following(on()), 1).open(STORE_DIR).unwrap();
    let newer = encrypted(following(on()), 2).open(STORE_DIR).unwrap();
    writer.flush().unwrap();
    writer.insert("a", "2").unwrap();
    writer.close().unwrap();

    let writer = encrypted(small_options(on()), 2).open(STORE_DIR).unwrap();
    assert_eq!(writer.reencrypt().unwrap().key_ids, [2]);
    writer.insert("a", "3").unwrap();
    let refused = older.refresh();
    assert!(matches!(refused, Err(Error::NoKey { key_id: 2, .. })), "{refused:?}");
    assert_eq!(older.get("a").unwrap().as_deref(), Some(&b"1"[..]), "it shows the same");
    assert!(newer.refresh().unwrap());
    assert_eq!(newer.get("a").unwrap().as_deref(), Some(&b"3"[..]));
    writer.compact().unwrap();
    assert!(newer.refresh().unwrap());
    assert_eq!(newer.get("a").unwrap().as_deref(), Some(&b"3"[..]));
}
