//! A small executor: the engine needs none in particular.

use std::{
    collections::VecDeque,
    future::Future,
    pin::{Pin, pin},
    sync::{Arc, Condvar, Mutex, PoisonError},
    task::{Context, Poll, Wake, Waker},
    thread::{self, Thread},
};

/// Wakes a thread.
struct Unparks(Thread);

impl Wake for Unparks {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Runs one future on this thread.
pub(crate) fn block_on<F: Future>(future: F) -> F::Output {
    let mut future = pin!(future);
    let waker = Waker::from(Arc::new(Unparks(thread::current())));
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(output) => return output,
            Poll::Pending => thread::park(),
        }
    }
}

/// Polls once.
pub(super) fn poll_once<F: Future + Unpin>(future: &mut F) -> Poll<F::Output> {
    Pin::new(future).poll(&mut Context::from_waker(Waker::noop()))
}

pub(super) type Task<'a> = Pin<Box<dyn Future<Output = ()> + 'a>>;

/// Numbers of the tasks that can make progress.
#[derive(Default)]
struct Ready {
    tasks: Mutex<VecDeque<usize>>,
    added: Condvar,
}

impl Ready {
    fn add(&self, task: usize) {
        self.tasks.lock().unwrap_or_else(PoisonError::into_inner).push_back(task);
        self.added.notify_one();
    }

    fn next(&self) -> usize {
        let mut tasks = self.tasks.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            if let Some(task) = tasks.pop_front() {
                return task;
            }
            tasks = self.added.wait(tasks).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

struct WakesTask {
    ready: Arc<Ready>,
    task: usize,
}

impl Wake for WakesTask {
    fn wake(self: Arc<Self>) {
        self.ready.add(self.task);
    }
}

/// Runs all `tasks` on this thread.
pub(super) fn run_all(mut tasks: Vec<Task<'_>>) {
    let ready = Arc::new(Ready::default());
    let wakers: Vec<_> = (0..tasks.len())
        .map(|task| Waker::from(Arc::new(WakesTask { ready: Arc::clone(&ready), task })))
        .collect();
    (0..tasks.len()).for_each(|task| ready.add(task));
    let (mut left, mut done) = (tasks.len(), vec![false; tasks.len()]);
    while left > 0 {
        let task = ready.next();
        if !done[task]
            && tasks[task].as_mut().poll(&mut Context::from_waker(&wakers[task])).is_ready()
        {
            done[task] = true;
            left -= 1;
        }
    }
}
