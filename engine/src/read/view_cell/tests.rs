//! Views under real threads and real barriers.

use std::{
    sync::{
        Barrier,
        atomic::{AtomicBool, AtomicUsize},
    },
    thread,
};

use super::*;

/// A view whose words are equal until it is freed.
struct View<'a> {
    words: [AtomicUsize; 8],
    /// Number of views that are not freed.
    live: &'a AtomicUsize,
}

impl<'a> View<'a> {
    fn new(number: usize, live: &'a AtomicUsize) -> Arc<Self> {
        live.fetch_add(1, SeqCst);
        Arc::new(Self { words: std::array::from_fn(|_| AtomicUsize::new(number)), live })
    }

    /// Returns its number, if it is whole.
    fn number(&self) -> usize {
        let number = self.words[0].load(Relaxed);
        assert!(self.words.iter().all(|word| word.load(Relaxed) == number && number > 0));
        number
    }
}

impl Drop for View<'_> {
    fn drop(&mut self) {
        self.words.iter().for_each(|word| word.store(0, Relaxed));
        self.live.fetch_sub(1, SeqCst);
    }
}

/// Real threads and real barriers; `commit::tests` covers schedules. `SIEVE_LONG=1` takes a hundred
/// times as many views.
#[test]
fn readers_see_whole_views_that_never_grow_older() {
    for barriers in [Barriers::detect(), Barriers::Symmetric, Barriers::Refused] {
        read_while_views_change(barriers);
    }
}

fn read_while_views_change(barriers: Barriers) {
    let many = if std::env::var_os("SIEVE_LONG").is_some() { 100 } else { 1 };
    let last = many * if cfg!(miri) { 50 } else { 3_000 };
    let live = &AtomicUsize::new(0);
    let cell = &ViewCell::with_barriers(View::new(1, live), barriers);
    let is_done = &AtomicBool::new(false);
    thread::scope(|scope| {
        for reader in 0..3 {
            scope.spawn(move || {
                let mut seen = 0;
                while !is_done.load(SeqCst) {
                    let view = cell.load();
                    let number = view.number();
                    assert!(number >= seen, "{number} after {seen}");
                    seen = number;
                    if number % 4 == reader {
                        assert!(cell.load().number() >= number, "a second view is no older");
                        thread::yield_now();
                    }
                    assert_eq!(view.number(), number);
                }
            });
        }
        for number in 2..=last {
            cell.store(View::new(number, live));
        }
        is_done.store(true, SeqCst);
    });
    assert_eq!(cell.load().number(), last);
    // Threads that ended before the switch keep two views.
    let kept = if barriers == Barriers::Refused { 2 } else { 0 };
    let live = live.load(SeqCst);
    assert!((1..=1 + kept).contains(&live), "{barriers:?}: {live} views are kept");
}

/// Views are freed even if the heavy barrier is refused. The first two are freed once each thread
/// has read again.
#[test]
fn f3_views_are_freed_when_the_heavy_barrier_is_refused() {
    let live = &AtomicUsize::new(0);
    let cell = &ViewCell::with_barriers(View::new(1, live), Barriers::Refused);
    let (begin, idle) = (&Barrier::new(2), &Barrier::new(2));
    thread::scope(|scope| {
        scope.spawn(move || {
            assert_eq!(cell.load().number(), 1);
            begin.wait();
            idle.wait();
            assert_eq!(cell.load().number(), 101);
        });
        begin.wait();
        for number in 2..=100 {
            cell.store(View::new(number, live));
            assert_eq!(cell.load().number(), number);
            assert!(live.load(SeqCst) <= 3, "two views, and the present one");
        }
        // The view is read, so its reader frees it.
        let outer = cell.load();
        cell.store(View::new(101, live));
        assert_eq!(cell.load().number(), 101, "a second view of the same thread");
        assert_eq!(live.load(SeqCst), 4);
        drop(outer);
        assert_eq!(live.load(SeqCst), 3, "one thread has not read since");
        idle.wait();
    });
    assert_eq!(live.load(SeqCst), 1, "views without readers are freed");
}

#[test]
fn a_seldom_reader_gets_no_slot() {
    let live = &AtomicUsize::new(0);
    let cell = ViewCell::new(View::new(1, live));
    let before = cell.load_seldom();
    cell.store(View::new(2, live));
    assert_eq!((before.number(), cell.load_seldom().number()), (1, 2));
    assert_eq!(cell.take_new_slots_bytes(), 0, "no slot");
    drop(before);
    assert_eq!(live.load(SeqCst), 1, "the replaced view is freed");
    assert_eq!(cell.load().number(), 2);
    assert!(cell.take_new_slots_bytes() > 0, "a slot");
    // The slot is used, if there is one.
    let seldom = cell.load_seldom();
    assert!(seldom.slot.is_some());
}
