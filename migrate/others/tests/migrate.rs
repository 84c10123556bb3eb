//! Databases of other engines, written by their crates, become stores.

#![expect(clippy::unwrap_used, reason = "a test fails by a panic")]
#![expect(clippy::disallowed_methods, reason = "prepares and lists directories")]
#![expect(clippy::print_stdout, reason = "prints its seed")]

use std::{
    collections::BTreeMap,
    env,
    fmt::Debug,
    fs,
    path::Path,
    thread,
    time::{Duration, SystemTime},
};

use sievedb_migrate_others::{Engine, Error, migrate, open};

type Entries = BTreeMap<Vec<u8>, Vec<u8>>;
type Keyspaces = BTreeMap<String, Entries>;

/// xorshift64*.
struct Random(u64);

impl Random {
    /// The seed is `SIEVE_SEED`, or the time.
    fn new() -> Self {
        let now = || SystemTime::UNIX_EPOCH.elapsed().unwrap().as_nanos() as u64;
        let seed = env::var("SIEVE_SEED").map_or_else(|_| now(), |seed| seed.parse().unwrap());
        println!("SIEVE_SEED={seed}");
        Self(seed | 1)
    }

    fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 16) % end
    }

    fn bytes(&mut self, len: u64) -> Vec<u8> {
        (0..len).map(|_| self.below(256) as u8).collect()
    }

    /// Returns entries with keys of 1 to 40 bytes, empty values, and a large one.
    fn entries(&mut self) -> Entries {
        let mut entries = Entries::new();
        for _ in 0..600 {
            let (key, value) = (1 + self.below(40), self.below(200).saturating_sub(50));
            entries.insert(self.bytes(key), self.bytes(value));
        }
        let large = self.bytes(300 << 10);
        entries.insert(b"large".to_vec(), large);
        entries
    }

    fn keyspaces(&mut self, names: &[&str]) -> Keyspaces {
        names.iter().map(|name| ((*name).to_owned(), self.entries())).collect()
    }
}

/// Opens a database that was closed. sled's threads hold its lock for a while after the last handle
/// is dropped.
fn reopen<T, E: Debug>(open: impl Fn() -> Result<T, E>) -> T {
    for _ in 0..1000 {
        match open() {
            Err(error) if format!("{error:?}").contains("could not acquire lock") => {
                thread::sleep(Duration::from_millis(10));
            }
            opened => return opened.unwrap(),
        }
    }
    panic!("the lock is held for ten seconds");
}

/// Migrates, and compares the store with what was written.
fn check(engine: Engine, source: &Path, want: &Keyspaces) {
    let dir = tempfile::tempdir().unwrap();
    let store = dir.path().join("store");
    let copied = migrate(&*reopen(|| open(engine, source)), &store).unwrap();
    let names = |dir: &Path| {
        let names = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name());
        names.collect::<Vec<_>>()
    };
    assert_eq!(names(dir.path()), ["store"]);
    let db = sievedb::Options::new().create_if_missing(false).open(&store).unwrap();
    for (name, entries) in want {
        let found = db.open_keyspace(name).unwrap().range::<&[u8]>(..);
        let found = found.map(|entry| entry.map(|(key, value)| (key.to_vec(), value.to_vec())));
        assert!(found.collect::<Result<Entries, _>>().unwrap() == *entries, "{engine:?}: {name}");
        let copied = copied.iter().find(|copied| copied.name == *name).unwrap();
        let bytes: usize = entries.iter().map(|(key, value)| key.len() + value.len()).sum();
        assert_eq!(copied.digest.entries(), entries.len() as u64);
        assert_eq!(copied.bytes, bytes as u64);
    }
    assert_eq!(copied.len(), want.len());
    drop(db);

    // A store with files and an unfinished store of an interrupted migration are kept.
    let again = migrate(&*reopen(|| open(engine, source)), &store);
    assert!(matches!(again, Err(Error::Output(_))), "{again:?}");
    let other = dir.path().join("other");
    fs::create_dir(dir.path().join("other.partial")).unwrap();
    let again = migrate(&*reopen(|| open(engine, source)), &other);
    assert!(matches!(again, Err(Error::Output(_))) && !other.exists(), "{again:?}");
}

/// Checks that a missing database is not created.
fn check_absent(engine: Engine) {
    let dir = tempfile::tempdir().unwrap();
    for path in [dir.path().to_owned(), dir.path().join("none")] {
        assert!(open(engine, &path).is_err());
    }
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
}

#[cfg(feature = "fjall")]
#[test]
fn keyspaces_of_fjall() {
    use fjall::{Database, KeyspaceCreateOptions, PersistMode};

    let dir = tempfile::tempdir().unwrap();
    let mut keyspaces = Random::new().keyspaces(&["default", "users", "a-b"]);
    let db = Database::builder(dir.path()).open().unwrap();
    for (name, entries) in &keyspaces {
        let keyspace = db.keyspace(name, KeyspaceCreateOptions::default).unwrap();
        keyspace.insert("removed", "").unwrap();
        for (at, (key, value)) in entries.iter().enumerate() {
            keyspace.insert(key, value).unwrap();
            if at == 300 {
                // Half of the entries are in a table, half in the journal.
                keyspace.rotate_memtable_and_wait().unwrap();
            }
        }
        keyspace.remove("removed").unwrap();
    }
    db.keyspace("empty", KeyspaceCreateOptions::default).unwrap();
    keyspaces.insert("empty".to_owned(), Entries::new());
    db.persist(PersistMode::SyncAll).unwrap();
    drop(db);
    check(Engine::Fjall, dir.path(), &keyspaces);
    check_absent(Engine::Fjall);
}

#[cfg(feature = "sled")]
#[test]
fn trees_of_sled() {
    let dir = tempfile::tempdir().unwrap();
    let keyspaces = Random::new().keyspaces(&["default", "users"]);
    let db = sled::open(dir.path()).unwrap();
    for (key, value) in &keyspaces["default"] {
        db.insert(key, &value[..]).unwrap();
    }
    let users = db.open_tree("users").unwrap();
    for (key, value) in &keyspaces["users"] {
        users.insert(key, &value[..]).unwrap();
    }
    drop((users, db));
    check(Engine::Sled, dir.path(), &keyspaces);
    check_absent(Engine::Sled);

    let db = reopen(|| sled::open(dir.path()));
    db.open_tree("default").unwrap();
    drop(db);
    let store = tempfile::tempdir().unwrap();
    let refused = migrate(&*reopen(|| open(Engine::Sled, dir.path())), store.path());
    assert!(matches!(refused, Err(Error::Unsupported { .. })), "{refused:?}");
}

#[cfg(feature = "redb")]
#[test]
fn tables_of_redb() {
    use redb::{Database, MultimapTableDefinition, TableDefinition};

    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("redb");
    let mut keyspaces = Random::new().keyspaces(&["default", "users"]);
    let db = Database::create(&path).unwrap();
    let transaction = db.begin_write().unwrap();
    for (name, entries) in &keyspaces {
        let table = TableDefinition::<&[u8], &[u8]>::new(name);
        let mut table = transaction.open_table(table).unwrap();
        for (key, value) in entries {
            table.insert(&key[..], &value[..]).unwrap();
        }
    }
    let mut numbers = Entries::new();
    let table = TableDefinition::<u64, &str>::new("numbers");
    let mut table = transaction.open_table(table).unwrap();
    for number in [0, 1, 255, 256, u64::MAX] {
        table.insert(number, "ä").unwrap();
        numbers.insert(number.to_be_bytes().to_vec(), "ä".into());
    }
    drop(table);
    let table = TableDefinition::<&str, u64>::new("texts");
    transaction.open_table(table).unwrap().insert("ä", 258).unwrap();
    keyspaces.insert("numbers".to_owned(), numbers);
    let texts = Entries::from([("ä".into(), vec![0, 0, 0, 0, 0, 0, 1, 2])]);
    keyspaces.insert("texts".to_owned(), texts);
    transaction.commit().unwrap();
    drop(db);
    let before = fs::read(&path).unwrap();
    check(Engine::Redb, &path, &keyspaces);
    assert!(fs::read(&path).unwrap() == before, "the source was changed");
    check_absent(Engine::Redb);

    // Other types are refused by name.
    let store = dir.path().join("store");
    let refuse = |wanted: &[&str]| {
        let refused = migrate(&*open(Engine::Redb, &path).unwrap(), &store).unwrap_err();
        let text = refused.to_string();
        assert!(wanted.iter().all(|wanted| text.contains(wanted)), "{text}");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    };
    let db = Database::create(&path).unwrap();
    let transaction = db.begin_write().unwrap();
    let table = TableDefinition::<i32, &[u8]>::new("signed");
    transaction.open_table(table).unwrap().insert(-1, &b""[..]).unwrap();
    transaction.commit().unwrap();
    drop(db);
    refuse(&["\"signed\"", "i32", "&[u8]"]);
    let db = Database::create(&path).unwrap();
    let transaction = db.begin_write().unwrap();
    transaction.delete_table(TableDefinition::<i32, &[u8]>::new("signed")).unwrap();
    let table = MultimapTableDefinition::<&[u8], &[u8]>::new("many");
    transaction.open_multimap_table(table).unwrap().insert(&b""[..], &b""[..]).unwrap();
    transaction.commit().unwrap();
    drop(db);
    refuse(&["\"many\"", "multimap"]);
}

#[cfg(feature = "lmdb")]
#[test]
fn databases_of_lmdb() {
    use heed::{CommitOrAbort, Database, DatabaseFlags, EnvOpenOptions, types::Bytes};

    let write =
        |path: &Path, name: Option<&str>, flags: DatabaseFlags, entries: &[(&[u8], &[u8])]| {
            let mut options = EnvOpenOptions::new();
            options.max_dbs(9).map_size(64 << 20);
            // SAFETY: the directory is private to this test.
            let env = unsafe { options.open(path).unwrap() };
            let created =
                env.create_databases_and_commit(env.write_txn().unwrap(), |opener, transaction| {
                    let mut options = opener.database_options().types::<Bytes, Bytes>();
                    options.flags(flags);
                    if let Some(name) = name {
                        options.name(name);
                    }
                    options.create(transaction).map(CommitOrAbort::<_, ()>::Commit)
                });
            let database: Database<'_, Bytes, Bytes> = created.unwrap().commit().unwrap();
            let mut transaction = env.write_txn().unwrap();
            for (key, value) in entries {
                database.put(&mut transaction, key, value).unwrap();
            }
            transaction.commit().unwrap();
        };
    let slices = |entries: &Entries| -> Vec<(Vec<u8>, Vec<u8>)> {
        entries.iter().map(|(key, value)| (key.clone(), value.clone())).collect()
    };
    let dir = tempfile::tempdir().unwrap();
    let keyspaces = Random::new().keyspaces(&["default", "users"]);
    for (name, entries) in &keyspaces {
        let entries = slices(entries);
        let entries: Vec<_> = entries.iter().map(|(key, value)| (&key[..], &value[..])).collect();
        let name = Some(&name[..]).filter(|name| *name != "default");
        write(dir.path(), name, DatabaseFlags::empty(), &entries);
    }
    check(Engine::Lmdb, dir.path(), &keyspaces);
    check_absent(Engine::Lmdb);

    // heed cannot create a database with such a name: this is the record of one.
    let odd = tempfile::tempdir().unwrap();
    write(odd.path(), Some("users"), DatabaseFlags::empty(), &[(b"a", b"1")]);
    let mut record = [0; 48];
    record[6] = 1; // depth
    record[16] = 1; // leaf pages
    record[32] = 1; // entries
    record[40] = 2; // root
    let not_a_database = [7; 48];
    for (value, is_refused) in [(&record, true), (&not_a_database, false)] {
        write(odd.path(), None, DatabaseFlags::empty(), &[(b"\xff", value)]);
        let store = tempfile::tempdir().unwrap();
        let migrated = migrate(&*open(Engine::Lmdb, odd.path()).unwrap(), &store.path().join("a"));
        assert_eq!(matches!(migrated, Err(Error::Unsupported { .. })), is_refused, "{migrated:?}");
    }

    let several = [(&b"a"[..], &b"1"[..]), (b"a", b"2")];
    write(dir.path(), Some("many"), DatabaseFlags::DUP_SORT, &several);
    let store = tempfile::tempdir().unwrap();
    let refused = migrate(&*open(Engine::Lmdb, dir.path()).unwrap(), store.path());
    assert!(matches!(refused, Err(Error::Unsupported { .. })), "{refused:?}");
}

#[test]
fn a_failed_migration_leaves_nothing() {
    struct Failing;

    impl sievedb_migrate_others::Source for Failing {
        fn keyspaces(&self) -> sievedb_migrate_others::Result<Vec<String>> {
            Ok(vec!["default".to_owned()])
        }

        fn entries(
            &self,
            name: &str,
            add: &mut sievedb_migrate_others::Add<'_>,
        ) -> sievedb_migrate_others::Result<()> {
            add(b"a", b"1")?;
            Err(Error::Unsupported { name: name.to_owned(), reason: String::new() })
        }
    }

    let dir = tempfile::tempdir().unwrap();
    let failed = migrate(&Failing, &dir.path().join("store"));
    assert!(matches!(failed, Err(Error::Unsupported { .. })), "{failed:?}");
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
}
