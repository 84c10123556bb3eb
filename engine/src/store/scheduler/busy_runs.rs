//! Level-0 runs that running compactions hold, and merges of newer runs.
//!
//! Held runs delay no write, since a delay would not end their compaction sooner: see
//! [`throttle`](crate::store::writer).

use std::borrow::Cow;

use crate::{
    compaction::{choice::Compaction, levels::Levels},
    read::tree::Tree,
    store::Store,
    store::writer::throttle::{newest_left, runs_without_delay},
    sync::atomic::Ordering::Relaxed,
};

impl Store {
    /// Chooses a merge of runs of level 0 of `tree` that a request with this limit excludes, beside
    /// those `running` in it. Without this merge the newer runs would stop writes until the request
    /// is done.
    pub(super) fn choose_newer(
        &self,
        tree: &Tree,
        running: &[Compaction],
        id_limit: u64,
    ) -> Option<Compaction> {
        if !self.may_rewrite(tree) {
            return None;
        }
        self.with_picker(tree, running, None, |picker| picker.pick_newer_level0(id_limit))
    }

    /// Notes how many runs of level 0 that the `running` compactions of `tree` hold delay no write.
    /// If they are more, writes may go on. The caller holds the lock of the state.
    pub(super) fn note_busy(&self, tree: &Tree, running: &[Compaction]) {
        let view = tree.view_seldom();
        let metas = view.version.metas();
        let levels = Levels::new(metas.iter().map(Cow::as_ref), running);
        let numbers: Vec<u64> = levels.level0().iter().map(|run| run[0].run).collect();
        let allowed = tree.options().compaction_style.level0_runs_allowed();
        let before = tree.level0_newest_left.load(Relaxed).checked_sub(1);
        let newest = newest_left(&numbers, allowed, before);
        tree.level0_newest_left.store(newest.map_or(0, |newest| newest + 1), Relaxed);
        let left = numbers.iter().filter(|&&run| newest.is_some_and(|newest| run <= newest));
        let busy = runs_without_delay(levels.level0_runs_busy(), left.count());
        if tree.level0_runs_busy.swap(busy, Relaxed) < busy {
            self.scheduler.progress.notify_all();
        }
    }
}
