//! Refreshes beside a prune.

use std::sync::Arc;

use sievedb::{Retention, fs::Fs};
use sievedb_doubles::{Fault, FaultFs, MemoryFs, Times};
use sievedb_tests::settings::STORE_DIR;

use super::{
    entries, options,
    refresh::next_backup,
    replicas::{check_store, complete, open},
    set, set_on,
};

#[test]
fn a_refresh_passes_a_backup_that_was_pruned() {
    let mut failed = 0;
    for call in 0..60 {
        let disk = Arc::new(MemoryFs::new());
        let db = options(&disk).open(STORE_DIR).unwrap();
        next_backup(&disk, &db, 0);
        let faults = Arc::new(FaultFs::new(Arc::clone(&disk) as Arc<dyn Fs>));
        let set_of = set_on(Arc::clone(&faults) as Arc<dyn Fs>);
        let replica = open(&set_of, &options(&disk)).unwrap();
        complete(&replica);
        next_backup(&disk, &db, 1);
        faults.inject(Fault::new(5, Times::ForGood).after(call));
        let refreshed = replica.refresh();
        faults.heal();
        if refreshed.is_ok() || replica.stats().backup != Some(2) {
            continue;
        }
        failed += 1;
        let wanted = next_backup(&disk, &db, 3);
        set(&disk).prune(&Retention::new().last(1)).unwrap();
        assert!(replica.refresh().unwrap(), "call {call}");
        assert_eq!(entries(replica.db()), wanted, "call {call}");
        complete(&replica);
        drop(replica);
        check_store(&options(&disk), &wanted);
    }
    assert!(failed > 1, "only {failed} committed backups were not shown");
}
