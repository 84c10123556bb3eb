//! Workloads with other styles of compaction.

use sievedb::{CompactionStyle, Durability::Disk, Fifo, SizeTiered};

use super::key;
use crate::{model::DEFAULT, recorder::Recorder, settings::small_keyspace};

fn open_with(r: &mut Recorder, style: impl Into<CompactionStyle>) {
    r.set_keyspace(small_keyspace().compaction_style(style));
    r.reopen();
}

/// Each key is in every second or third run: a merge of runs that are not neighbors uncovers
/// values.
fn overwrite(r: &mut Recorder, round: usize) {
    for number in 0..6 {
        match (number + round) % 3 {
            0 => r.insert(DEFAULT, key(number), 150),
            1 if round.is_multiple_of(2) => r.remove(DEFAULT, key(number)),
            _ => {}
        }
    }
    r.flush();
}

/// Merges of all sizes, above older runs and with the oldest, beside a snapshot.
pub(super) fn tiered(r: &mut Recorder) {
    for number in 0..30 {
        r.insert(DEFAULT, key(number), 400);
    }
    r.compact();
    open_with(r, SizeTiered::new().merge_runs_min(3).runs_max(5));
    for round in 0..8 {
        if round == 4 {
            r.hold_snapshot();
        }
        overwrite(r, round);
    }
    r.remove_ranges(&[(DEFAULT, "key0002", "key0004")], Disk);
    overwrite(r, 8);
    r.check();
    r.release_all();
    r.reopen();
    overwrite(r, 9);
    r.compact();
    r.insert_with(DEFAULT, key(9), 20, Disk);
}

/// A keyspace changes its style again and again. FIFO has room for everything.
pub(super) fn changed(r: &mut Recorder) {
    let styles = [
        SizeTiered::new().merge_runs_min(2).space_percent_max(10_000).into(),
        CompactionStyle::Leveled,
        Fifo::new(1 << 30).into(),
        SizeTiered::new().merge_runs_min(2).runs_max(2).into(),
    ];
    for (style, step) in styles.into_iter().zip(0..) {
        open_with(r, style);
        (0..3).for_each(|round| overwrite(r, 3 * step + round));
        r.check();
    }
    r.insert_with(DEFAULT, key(9), 20, Disk);
}
