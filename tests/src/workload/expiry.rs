//! Workloads with values that expire.

use sievedb::Durability::{Disk, OsBuffer};

use super::key;
use crate::{
    model::{Change, DEFAULT},
    recorder::{Recorder, TTL},
    settings::small_keyspace,
};

/// Values that expire over lasting ones and below them, in memtables and tables, and a wall clock
/// that jumps ahead and back while the store is closed.
pub(super) fn jumps(r: &mut Recorder) {
    for round in 0..2 {
        for number in 0..6 {
            r.insert(DEFAULT, key(2 * number), 100);
            r.insert_expiring(DEFAULT, key(2 * number + 1), 200);
        }
        r.insert_expiring(DEFAULT, key(0), 40);
        r.insert(DEFAULT, key(1), 40);
        r.flush();
        r.insert_expiring(DEFAULT, key(2), 40);
        r.remove(DEFAULT, key(3));
        let expiring = r.new_expiring(DEFAULT, key(12), 40, false);
        let value = r.new_value(40);
        let lasting = Change::Put { keyspace: DEFAULT.into(), key: key(13).into(), value };
        r.write(vec![expiring, lasting], Disk);
        r.jump();
        r.insert(DEFAULT, key(14), 40);
        r.insert_expiring(DEFAULT, key(15), 40);
        // An edit of the manifest stores the clock.
        r.flush();
        r.clock_is_stored();
        r.jump_back();
        r.check();
        r.insert_expiring(DEFAULT, key(5), 40);
        if round == 0 {
            r.compact();
        }
    }
    r.wait_for_background();
    r.check();
}

/// A keyspace whose default TTL is changed and removed, beside flushes, transactions and a jump.
pub(super) fn defaults(r: &mut Recorder) {
    const NAME: &str = "sessions";
    r.create_with(NAME, Some(&small_keyspace().default_ttl(TTL)));
    let options = [Some(TTL), None, Some(2 * TTL), None];
    for (round, ttl) in options.into_iter().enumerate() {
        if round > 0 {
            r.set_default_ttl(NAME, ttl);
        }
        for number in 0..4 {
            r.insert_by_default(NAME, key(4 * round + number), 80);
        }
        let changes = vec![
            r.new_by_default(NAME, key(4 * round), 80),
            r.new_by_default(DEFAULT, key(round), 80),
        ];
        if round % 2 == 0 {
            r.transaction(changes, &[], Disk);
            r.flush_keyspace(NAME);
        } else {
            r.write(changes, OsBuffer);
        }
    }
    r.reopen();
    r.insert_by_default(NAME, key(20), 80);
    r.jump();
    r.insert_by_default(NAME, key(21), 80);
    r.set_default_ttl(NAME, Some(TTL));
    // An edit of the manifest stores the clock.
    r.clock_is_stored();
    r.insert_by_default(NAME, key(22), 80);
    r.compact();
    r.jump();
}
