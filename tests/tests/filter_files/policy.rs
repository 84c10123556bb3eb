//! An existing store that is opened with another policy gets filters of that policy.

use sievedb::{
    FilterPolicy,
    FilterPolicyKind::{Auto, Bloom, Fuse, None as Off, Ribbon},
    FilterRebuildReason::{NoFilter, OffPlan},
};

use super::fixture::{KEYS, Listener, STORE_DIR, check, filled, options, paths, ruled_out};

#[test]
fn each_policy_replaces_the_previous_one() {
    let fs = filled(FilterPolicy::new(Off));
    let absent = KEYS as usize / 4;
    // Policy, the only reason for a rebuilt filter, and the minimum number of rejected absent keys.
    let cases = [
        (Bloom, 10.0, Some(NoFilter), absent * 9 / 10),
        (Ribbon, 16.0, Some(OffPlan), absent * 99 / 100),
        (Ribbon, 16.0, None, absent * 99 / 100),
        (Fuse, 9.0, Some(OffPlan), absent * 95 / 100),
        (Off, 10.0, Some(OffPlan), 0),
        (Auto, 10.0, Some(NoFilter), absent * 9 / 10),
        (Auto, 0.0, Some(OffPlan), 0),
    ];
    for (kind, bits, reason, least) in cases {
        let policy = FilterPolicy::new(kind).bits_per_key(bits);
        let name = format!("{kind:?}, {bits} bits");
        let listener = std::sync::Arc::<Listener>::default();
        let open = || options(fs.clone(), policy, 0).listener(listener.clone()).open(STORE_DIR);
        let db = open().unwrap();
        db.keyspace("other").unwrap();
        db.wait_for_background().unwrap();
        check(&db);
        let told = listener.take();
        // The other keyspace keeps the policy of its creation.
        assert!(told.rebuilt.iter().all(|(_, found)| Some(*found) == reason), "{name}: {told:?}");
        assert_eq!(told.rebuilt.is_empty(), reason.is_none(), "{name}: {told:?}");
        assert_eq!(db.stats().background.filters_rebuilt, told.rebuilt.len() as u64, "{name}");
        let found = ruled_out(&db);
        // Some keys are outside of all tables' bounds.
        assert!(found >= least && (least > 0 || found < 10), "{name}: {found} of {absent}");
        // Replaced filters and their files are removed.
        let filters = if least > 0 { db.stats().keyspaces[0].tables as usize } else { 0 };
        assert_eq!(paths(&fs, ".filter").len(), filters, "{name}");
        assert!(db.verify().unwrap().is_good(), "{name}: {}", db.verify().unwrap());
        drop(db);
        let db = open().unwrap();
        assert_eq!(ruled_out(&db), found, "{name}, opened again");
        db.wait_for_background().unwrap();
        assert_eq!(listener.take(), Default::default(), "{name}: the work was done");
        check(&db);
    }
}

/// The same in an open store, in each keyspace, and durably.
#[test]
fn policy_change_in_an_open_store_rebuilds_filters() {
    for workers in [0, 2] {
        let fs = filled(FilterPolicy::default());
        let listener = std::sync::Arc::<Listener>::default();
        let open = || {
            let options = options(fs.clone(), FilterPolicy::default(), workers);
            options.listener(listener.clone()).open(STORE_DIR).unwrap()
        };
        let db = open();
        let other = db.keyspace("other").unwrap();
        db.wait_for_background().unwrap();
        listener.take();
        let tables = |at: usize| db.stats().keyspaces[at].tables as usize;
        let both = tables(0) + tables(1);
        let steps = [
            (Ribbon, Some(OffPlan)),
            (Bloom, Some(OffPlan)),
            (Bloom, None),
            (Off, Some(OffPlan)),
            (Bloom, Some(NoFilter)),
        ];
        for (kind, reason) in steps {
            db.default_keyspace().set_filter_policy(FilterPolicy::new(kind)).unwrap();
            other.set_filter_policy(FilterPolicy::new(kind)).unwrap();
            check(&db);
            db.wait_for_background().unwrap();
            let told = listener.take().rebuilt;
            assert!(told.iter().all(|(_, found)| Some(*found) == reason), "{kind:?}: {told:?}");
            let want = if reason.is_some() { both } else { 0 };
            assert_eq!(told.len(), want, "{kind:?}: {told:?}");
            check(&db);
            assert_eq!(ruled_out(&db) > KEYS as usize / 4 * 8 / 10, kind != Off, "{kind:?}");
        }
        drop((db, other));
        let db = open();
        // The default keyspace has the policy of the open.
        db.wait_for_background().unwrap();
        let told = listener.take().rebuilt;
        assert!(told.iter().all(|(_, found)| *found == OffPlan), "{told:?}");
        assert!(told.len() <= db.stats().keyspaces[0].tables as usize, "{told:?}");
        check(&db);
    }
}
