//! Runs many cases of a test and lists the failing ones.

use std::{
    any::Any,
    panic::{AssertUnwindSafe, catch_unwind},
    process,
    sync::mpsc::{self, RecvTimeoutError, Sender},
    thread,
    time::Duration,
};

use super::{ALLOCATION_BYTES_MAX, allocation};

/// A case that takes longer hangs; a typical one takes a millisecond.
const CASE_TIME_MAX: Duration = Duration::from_secs(60);
const FAILURES_SHOWN: usize = 20;

/// Runs cases one by one. A case fails by an error, a panic, or a large allocation. A case that
/// hangs ends the process.
pub(super) struct Cases {
    count: usize,
    failures: Vec<String>,
    watchdog: Sender<String>,
}

impl Cases {
    pub(super) fn new() -> Self {
        let (watchdog, names) = mpsc::channel::<String>();
        thread::spawn(move || {
            let mut running = String::from("the first case");
            loop {
                match names.recv_timeout(CASE_TIME_MAX) {
                    Ok(name) => running = name,
                    Err(RecvTimeoutError::Disconnected) => return,
                    Err(RecvTimeoutError::Timeout) => {
                        eprintln!("hangs: {running}");
                        process::abort();
                    }
                }
            }
        });
        Self { count: 0, failures: Vec::new(), watchdog }
    }

    /// Returns the number of cases so far.
    pub(super) fn count(&self) -> usize {
        self.count
    }

    /// Runs a case.
    pub(super) fn run(&mut self, name: &str, case: impl FnOnce() -> Result<(), String>) {
        self.count += 1;
        self.watchdog.send(name.to_owned()).expect("the watchdog listens");
        allocation::reset_largest();
        let outcome = catch_unwind(AssertUnwindSafe(case));
        let largest = allocation::largest_bytes();
        let failure = match outcome {
            Err(cause) => format!("panicked: {}", message(&*cause)),
            Ok(Err(failure)) => failure,
            Ok(Ok(())) if largest > ALLOCATION_BYTES_MAX => format!("allocated {largest} bytes"),
            Ok(Ok(())) => return,
        };
        self.failures.push(format!("{name}: {failure}"));
    }

    /// # Panics
    ///
    /// If a case failed, or there were fewer than `count_min` cases.
    pub(super) fn finish(self, count_min: usize) {
        let Self { count, failures, .. } = self;
        let shown = &failures[..failures.len().min(FAILURES_SHOWN)];
        assert!(shown.is_empty(), "{} of {count} failed:\n{}", failures.len(), shown.join("\n"));
        assert!(count >= count_min, "{count} cases, {count_min} expected");
    }
}

fn message(cause: &(dyn Any + Send)) -> &str {
    let text = cause.downcast_ref::<&str>().copied();
    text.or_else(|| cause.downcast_ref::<String>().map(String::as_str)).unwrap_or("")
}

#[test]
#[should_panic(
    expected = "3 of 4 failed:\nan error: no\na panic: panicked: oh\na large one: alloc"
)]
fn failures_include_the_case_name() {
    let mut cases = Cases::new();
    cases.run("fine", || Ok(()));
    cases.run("an error", || Err("no".into()));
    cases.run("a panic", || panic!("oh"));
    cases.run("a large one", || {
        drop(std::hint::black_box(Vec::<u8>::with_capacity(ALLOCATION_BYTES_MAX + 1)));
        Ok(())
    });
    cases.finish(4);
}

#[test]
#[should_panic(expected = "0 cases, 1 expected")]
fn too_few_cases_fail() {
    Cases::new().finish(1);
}
