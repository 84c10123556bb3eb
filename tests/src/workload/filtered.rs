//! Workload with a compaction filter.

use std::sync::Arc;

use sievedb::Durability::{Disk, OsBuffer};

use crate::{filtered::RemoveGone, model::Change, recorder::Recorder, settings::small_keyspace};

const NAME: &str = "filtered";

/// Values that a compaction filter removes and replaces, over older ones, on all levels.
pub(super) fn filtered(r: &mut Recorder) {
    r.create_with(NAME, Some(&small_keyspace().compaction_filter(Arc::new(RemoveGone))));
    for round in 0..3 {
        for number in 1..6 {
            let value = r.new_value(60);
            let put = |prefix: &str| Change::Put {
                keyspace: NAME.into(),
                key: format!("{prefix}{number}").into(),
                value: value.clone(),
            };
            let durability = if number == 5 { Disk } else { OsBuffer };
            r.write(vec![put("mark"), put("gone")], durability);
        }
        r.insert(NAME, "key", 40);
        match round {
            0 => r.compact(),
            1 => r.flush(),
            _ => r.reopen(),
        }
    }
    r.compact();
    // A failed call may have ended the compaction, and the read may fail.
    if r.failures().is_empty() {
        let keyspace = r.handle(NAME).expect("it was created");
        let left: Vec<_> =
            keyspace.prefix("gone").keys().collect::<Result<_, _>>().unwrap_or_default();
        assert!(left.iter().all(|key| **key == *b"gone3"), "not filtered: {left:?}");
    }
    r.reopen();
}
