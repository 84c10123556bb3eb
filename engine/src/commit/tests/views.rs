//! No view is freed while a reader has it, and none is kept afterwards.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering::SeqCst as StdSeqCst},
};

use super::{below, explore};
use crate::{barriers::Barriers, read::view_cell::ViewCell, sync::thread};

const WRITERS: usize = 2;
const READERS: usize = 2;
const VIEWS: usize = 2;
const LOOKUPS: usize = 3;

/// Counts the views that are not freed. A plain counter: no step of the schedule.
struct View {
    number: usize,
    freed: Arc<[AtomicUsize; WRITERS * VIEWS + 1]>,
}

impl Drop for View {
    fn drop(&mut self) {
        self.freed[self.number].fetch_add(1, StdSeqCst);
    }
}

impl View {
    fn assert_whole(&self) {
        assert_eq!(self.freed[self.number].load(StdSeqCst), 0, "view {} is read", self.number);
    }
}

#[test]
fn a_view_lives_as_long_as_its_readers() {
    explore(5000, || read_while_views_change(Barriers::detect(), 0));
}

/// The heavy barrier is refused: two views may be kept for threads that do not read again.
#[test]
fn f3_a_view_lives_as_long_as_its_readers_without_heavy_barriers() {
    explore(5000, || read_while_views_change(Barriers::Refused, 2));
}

fn read_while_views_change(barriers: Barriers, kept_max: usize) {
    let freed: Arc<[AtomicUsize; WRITERS * VIEWS + 1]> = Arc::default();
    let view = |number| Arc::new(View { number, freed: Arc::clone(&freed) });
    let cell = &ViewCell::with_barriers(view(WRITERS * VIEWS), barriers);
    thread::scope(|scope| {
        for writer in 0..WRITERS {
            let views = [0, 1].map(|i| view(writer * VIEWS + i));
            scope.spawn(move || views.into_iter().for_each(|view| cell.store(view)));
        }
        for _ in 0..READERS {
            scope.spawn(move || {
                for _ in 0..LOOKUPS {
                    let outer = cell.load();
                    outer.assert_whole();
                    thread::yield_now();
                    if below(3) == 0 {
                        // As a closure within `get_with`.
                        let inner = cell.load();
                        outer.assert_whole();
                        if below(2) == 0 {
                            drop(outer);
                            thread::yield_now();
                        }
                        inner.assert_whole();
                    } else {
                        outer.assert_whole();
                    }
                }
            });
        }
    });
    let present = cell.load().number;
    let mut kept = 0;
    for (number, freed) in freed.iter().enumerate() {
        let times = freed.load(StdSeqCst);
        assert!(times <= usize::from(number != present), "view {number} of {present}");
        kept += usize::from(times == 0 && number != present);
    }
    assert!(kept <= kept_max, "{kept} views are kept");
}
