//! Secondary indexes agree with their data.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    thread,
};

use serde::{Deserialize, Serialize};
use sievedb_typed::{
    Error, Index, IndexChanges, Indexed, Result, Schema, TypedKeyspace,
    sievedb::{self, Db, TransactionOptions},
    transaction,
};

use crate::{seed, store};

#[derive(Serialize, Deserialize, Debug, PartialEq, Clone)]
struct User {
    city: String,
    tags: Vec<u8>,
}

type Users = Indexed<u32, User>;
type ByCity = Index<String, u32, User>;
type ByTag = Index<u8, u32, User>;

fn user(city: &str, tags: &[u8]) -> User {
    User { city: city.to_owned(), tags: tags.to_vec() }
}

fn data(db: &Db) -> TypedKeyspace<u32, User> {
    TypedKeyspace::open(db, "users", Schema::new("user", 1)).unwrap()
}

fn open(db: &Db) -> (Users, ByCity, ByTag) {
    let mut users = Indexed::new(db, data(db)).unwrap();
    let by_city = users.index("by city", 1, |_, user: &User| [user.city.clone()]).unwrap();
    let by_tag = users.index("by tag", 1, |_, user: &User| user.tags.clone()).unwrap();
    (users, by_city, by_tag)
}

/// Checks both indexes against the data, by reading all of them.
fn check(users: &Users, by_city: &ByCity, by_tag: &ByTag) {
    let data: BTreeMap<_, _> = users.keyspace().iter().map(Result::unwrap).collect();
    let of_data = |keys: &dyn Fn(&User) -> Vec<Vec<u8>>| -> BTreeSet<_> {
        data.iter().flat_map(|(id, user)| keys(user).into_iter().map(|key| (key, *id))).collect()
    };
    let found = by_city.iter().map(Result::unwrap).inspect(|(city, id, user)| {
        assert_eq!((&data[id], city), (user, &user.city));
    });
    let found: BTreeSet<_> = found.map(|(city, id, _)| (city.into_bytes(), id)).collect();
    assert_eq!(found, of_data(&|user| vec![user.city.clone().into_bytes()]));
    let found: BTreeSet<_> =
        by_tag.keys().map(Result::unwrap).map(|(tag, id)| (vec![tag], id)).collect();
    assert_eq!(found, of_data(&|user| user.tags.iter().map(|tag| vec![*tag]).collect()));
}

#[test]
fn index_follows_each_write() {
    let (_dir, db) = store();
    let (users, by_city, by_tag) = open(&db);
    users.insert(7, user("Graz", &[1, 2, 2])).unwrap();
    users.insert(8, user("Graz", &[])).unwrap();
    users.insert(9, user("Graz\0", &[2])).unwrap();
    let before = db.snapshot();
    users.insert(8, user("Linz", &[2])).unwrap();
    users.remove(7).unwrap();
    users.remove(70).unwrap();
    check(&users, &by_city, &by_tag);

    let ids = |found: sievedb_typed::IndexMatches<_, u32, User>| -> Vec<u32> {
        found.map(|entry| entry.unwrap().0).collect()
    };
    assert_eq!(ids(by_city.get("Graz")), []);
    assert_eq!(by_city.get("Linz").next().unwrap().unwrap(), (8, user("Linz", &[2])));
    let then = by_city.at(&before).unwrap();
    assert_eq!(ids(then.get("Graz")), [7, 8]);
    assert_eq!(then.get("Graz").next_back().unwrap().unwrap(), (8, user("Graz", &[])));
    let found: Vec<_> = by_tag.range(2..).rev().map(|entry| entry.unwrap().1).collect();
    assert_eq!(found, [9, 8]);
    assert_eq!(by_tag.range(..2).count(), 0);
    assert_eq!(by_city.range("Graz".."H").map(|entry| entry.unwrap().1).collect::<Vec<_>>(), [9]);

    let new = users.update_fetch(8, |old| old.map(|old| user(&old.city, &[5]))).unwrap();
    assert_eq!(new, Some(user("Linz", &[5])));
    assert_eq!(users.update_fetch(80, |_| None).unwrap(), None);
    let old = users.fetch_update(8, |old| old.map(|old| user(&old.city, &[6]))).unwrap();
    assert_eq!(old, Some(user("Linz", &[5])));
    check(&users, &by_city, &by_tag);
    assert_eq!(users.rebuild().unwrap(), IndexChanges::default());
}

#[test]
fn concurrent_writers_keep_index_and_data_equal() {
    const THREADS: u64 = 4;
    const WRITES: u64 = 300;
    let (_dir, db) = store();
    let (users, by_city, by_tag) = open(&db);
    let (other_users, ..) = open(&db);
    let seed = seed();
    let is_done = AtomicBool::new(false);
    thread::scope(|scope| {
        let writers: Vec<_> = (0..THREADS)
            .map(|thread| {
                let users = if thread == 0 { &other_users } else { &users };
                scope.spawn(move || {
                    let mut random = seed ^ (thread << 32);
                    for _ in 0..WRITES {
                        // splitmix64.
                        random = random.wrapping_add(0x9e37_79b9_7f4a_7c15);
                        let mixed = (random ^ (random >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
                        let mixed = mixed ^ (mixed >> 27);
                        let city = ["Graz", "Linz", "Wien"][(mixed >> 8) as usize % 3];
                        let (id, tag) = ((mixed % 5) as u32, (mixed >> 16) as u8 % 4);
                        match (mixed >> 24) % 4 {
                            0 => users.remove(id).unwrap(),
                            1 => {
                                let change = |old: Option<User>| {
                                    let mut user = old.unwrap_or_else(|| user(city, &[]));
                                    user.tags.push(tag);
                                    user.tags.truncate(3);
                                    Some(user)
                                };
                                users.update_fetch(id, change).unwrap();
                            }
                            _ => users.insert(id, user(city, &[tag, tag + 1])).unwrap(),
                        }
                    }
                })
            })
            .collect();
        // A reader sees index and data at one point in time, and a rebuild finds nothing.
        let reader = scope.spawn(|| {
            while !is_done.load(Relaxed) {
                for entry in by_city.iter() {
                    let (city, _, user) = entry.unwrap();
                    assert_eq!(city, user.city);
                }
                assert_eq!(users.rebuild().unwrap(), IndexChanges::default());
            }
        });
        for writer in writers {
            writer.join().unwrap();
        }
        is_done.store(true, Relaxed);
        reader.join().unwrap();
    });
    check(&users, &by_city, &by_tag);
    assert_eq!(users.rebuild().unwrap(), IndexChanges::default());
}

#[test]
fn concurrent_updates_are_all_counted() {
    let (_dir, db) = store();
    let counts = TypedKeyspace::<u8, u64>::open(&db, "counts", Schema::new("count", 1)).unwrap();
    let mut counts = Indexed::new(&db, counts).unwrap();
    let by_count = counts.index("by count", 1, |_, count: &u64| [*count]).unwrap();
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..50 {
                    counts.update_fetch(1, |count| Some(count.unwrap_or(0) + 1)).unwrap();
                }
            });
        }
    });
    assert_eq!(counts.keyspace().get(1).unwrap(), Some(200));
    assert_eq!(by_count.keys().map(Result::unwrap).collect::<Vec<_>>(), [(200, 1)]);
}

#[test]
fn transactions_write_several_keyspaces() {
    let (_dir, db) = store();
    let (users, by_city, by_tag) = open(&db);
    users.insert(7, user("Graz", &[1])).unwrap();
    let moves = TypedKeyspace::<u64, u32>::open(&db, "moves", Schema::new("move", 1)).unwrap();
    let options = TransactionOptions::new();
    let mut calls = 0;
    transaction(&db, options, |transaction| {
        calls += 1;
        let mut user = users.keyspace().get_in(transaction, 7)?.unwrap();
        if calls == 1 {
            // A conflicting write.
            users.insert(7, self::user("Bruck", &[4])).unwrap();
        }
        user.tags.push(9);
        users.insert_in(transaction, 7, user)?;
        users.insert_in(transaction, 7, self::user("Wien", &[2]))?;
        users.insert_in(transaction, 8, self::user("Wien", &[2]))?;
        users.remove_in(transaction, 8)?;
        moves.insert_in(transaction, 1, 7)
    })
    .unwrap();
    assert_eq!((calls, moves.get(1).unwrap()), (2, Some(7)));
    assert_eq!(by_city.keys().map(Result::unwrap).collect::<Vec<_>>(), [("Wien".to_owned(), 7)]);
    check(&users, &by_city, &by_tag);

    // A typed error rolls back.
    users.keyspace().untyped().insert([0, 0, 0, 9], [0xff]).unwrap();
    let error = transaction(&db, options, |transaction| {
        users.insert_in(transaction, 7, user("Linz", &[]))?;
        users.insert_in(transaction, 9, user("Linz", &[]))
    });
    assert!(matches!(error, Err(Error::Value { .. })), "{error:?}");
    assert_eq!(users.keyspace().get(7).unwrap(), Some(user("Wien", &[2])));
    assert_eq!(by_city.get("Linz").count(), 0);
}

#[test]
fn rebuild_corrects_an_index() {
    let (_dir, db) = store();
    let (users, by_city, by_tag) = open(&db);
    for id in 0..600 {
        users.insert(id, user("Graz", &[1])).unwrap();
    }
    // Writes that bypass the index.
    let data = users.keyspace();
    data.remove(3).unwrap();
    data.insert(4, user("Linz", &[1, 2])).unwrap();
    data.insert(601, user("Linz", &[])).unwrap();
    db.keyspace("by tag").unwrap().insert("", "not an index entry").unwrap();
    let stale = by_city.get("Graz").find_map(Result::err).unwrap();
    assert!(matches!(&stale, Error::StaleIndex { index, .. } if **index == *"by city"), "{stale}");
    assert_eq!(users.rebuild().unwrap(), IndexChanges { added: 3, removed: 4, expiries: 0 });
    check(&users, &by_city, &by_tag);
    assert_eq!(users.rebuild().unwrap(), IndexChanges::default());
}

#[test]
fn index_is_built_when_it_is_opened() {
    let (dir, db) = store();
    data(&db).insert(7, user("Graz", &[1])).unwrap();
    let (users, by_city, by_tag) = open(&db);
    check(&users, &by_city, &by_tag);
    drop((users, by_city, by_tag));
    db.close().unwrap();

    // Another version of the function, with keys of another type.
    let db = Db::open(dir.path()).unwrap();
    data(&db).insert(8, user("Wien", &[1])).unwrap();
    let mut users = Indexed::new(&db, data(&db)).unwrap();
    let by_length: Index<u64, u32, User> =
        users.index("by city", 2, |_, user: &User| [user.city.len() as u64]).unwrap();
    assert_eq!(by_length.keys().map(Result::unwrap).collect::<Vec<_>>(), [(4, 7), (4, 8)]);

    // An index of the same version is not rebuilt.
    data(&db).insert(9, user("Linz", &[1])).unwrap();
    let mut users = Indexed::new(&db, data(&db)).unwrap();
    let by_length = users.index("by city", 2, |_, user: &User| [user.city.len() as u64]).unwrap();
    assert_eq!(by_length.keys().count(), 2);

    // A migration of the data rebuilds the index.
    drop(users);
    let schema = Schema::new("user", 2).migrate(1, |_: User| user("Bruck", &[]));
    let migrated = TypedKeyspace::<u32, User>::open(&db, "users", schema).unwrap();
    let mut users = Indexed::new(&db, migrated).unwrap();
    let by_length = users.index("by city", 2, |_, user: &User| [user.city.len() as u64]).unwrap();
    assert_eq!(by_length.get(5).count(), 3);
    assert_eq!(by_length.keys().count(), 3);
}

#[test]
fn other_keyspaces_are_not_mistaken_for_an_index() {
    let (_dir, db) = store();
    let (users, ..) = open(&db);
    users.insert(7, user("Graz", &[1])).unwrap();
    let by_city = |_: &u32, user: &User| [user.city.clone()];
    db.keyspace("other").unwrap().insert("key", "value").unwrap();
    let mut users = Indexed::new(&db, data(&db)).unwrap();
    let error = users.index("other", 1, by_city).unwrap_err();
    assert!(matches!(error, Error::NoSchema { .. }), "{error}");
    let error = users.index("users", 1, by_city).unwrap_err();
    assert!(matches!(error, Error::SchemaRecord { .. }), "{error}");

    let schema = Schema::new("user", 1);
    let others = TypedKeyspace::<u32, User>::open(&db, "others", schema).unwrap();
    let mut others = Indexed::new(&db, others).unwrap();
    let error = others.index("by city", 1, by_city).unwrap_err();
    assert!(matches!(error, Error::SchemaMismatch { .. }), "{error}");

    let (_other_dir, other) = store();
    let error = Indexed::new(&other, data(&db)).unwrap_err();
    assert!(matches!(error.engine(), Some(sievedb::Error::ForeignKeyspace { .. })), "{error}");
}
