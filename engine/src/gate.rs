//! Accepts or rejects calls: only the process that opened the store may use it, while it is open.
//!
//! Every call checks the gate, including lookups, so its state is one word of memory. On Linux the
//! word is on a page that the kernel fills with zeros in a forked child (`MADV_WIPEONFORK`, Linux
//! 4.14). Elsewhere the process id is compared, which costs a system call.

#[cfg(any(not(target_os = "linux"), miri))]
use self::compared::Word;
#[cfg(all(target_os = "linux", not(miri)))]
use self::wiped::Word;

/// Value of the word on a wiped page.
const WIPED: u32 = 0;
const OPEN: u32 = 1;
const CLOSING: u32 = 2;
const CLOSED: u32 = 3;

/// Calls that a store accepts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Access {
    /// All calls.
    Open,
    /// No calls: the store is closing. Calls in flight may continue.
    Closing,
    /// No calls: the store is closed.
    Closed,
    /// No calls: this process is a fork of the one that opened the store.
    Forked,
}

#[derive(Debug)]
pub(crate) struct Gate {
    word: Word,
}

impl Gate {
    /// Returns the open gate of a store of this process.
    pub(crate) fn new() -> Self {
        Self { word: Word::new(OPEN) }
    }

    #[inline]
    pub(crate) fn is_open(&self) -> bool {
        self.word.load() == OPEN
    }

    /// Returns `true` if this process is a fork of the one that opened the store.
    pub(crate) fn is_forked(&self) -> bool {
        self.access() == Access::Forked
    }

    pub(crate) fn access(&self) -> Access {
        match self.word.load() {
            WIPED => Access::Forked,
            OPEN => Access::Open,
            CLOSING => Access::Closing,
            _ => Access::Closed,
        }
    }

    /// Rejects all calls from now on. A closed store stays closed.
    pub(crate) fn begin_close(&self) {
        self.word.replace(OPEN, CLOSING);
    }

    pub(crate) fn close(&self) {
        self.word.store(CLOSED);
    }

    /// Simulates a forked child, or ends the simulation.
    #[cfg(all(test, target_os = "linux", not(any(miri, feature = "shuttle"))))]
    pub(crate) fn set_forked(&self, is_forked: bool) {
        self.word.store(if is_forked { WIPED } else { OPEN });
    }
}

/// A word on a page that the kernel wipes in a child.
#[cfg(all(target_os = "linux", not(miri)))]
mod wiped {
    use std::{
        ptr::{self, NonNull},
        sync::atomic::{
            AtomicU32,
            Ordering::{AcqRel, Acquire, Release},
        },
    };

    use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};

    use super::compared;

    /// The kernel rounds up to its pages.
    const PAGE_BYTES: usize = 4 << 10;

    #[derive(Debug)]
    pub(super) enum Word {
        Wiped(Page),
        /// The kernel refused the page, so the process id is compared.
        Compared(compared::Word),
    }

    impl Word {
        pub(super) fn new(value: u32) -> Self {
            match Page::new() {
                Some(page) => {
                    page.word().store(value, Release);
                    Self::Wiped(page)
                }
                None => Self::Compared(compared::Word::new(value)),
            }
        }

        #[inline]
        pub(super) fn load(&self) -> u32 {
            match self {
                Self::Wiped(page) => page.word().load(Acquire),
                Self::Compared(word) => word.load(),
            }
        }

        pub(super) fn store(&self, value: u32) {
            match self {
                Self::Wiped(page) => page.word().store(value, Release),
                Self::Compared(word) => word.store(value),
            }
        }

        /// Stores `new` if the value is `present`.
        pub(super) fn replace(&self, present: u32, new: u32) {
            match self {
                Self::Wiped(page) => {
                    let _ = page.word().compare_exchange(present, new, AcqRel, Acquire);
                }
                Self::Compared(word) => word.replace(present, new),
            }
        }
    }

    /// A page of its own.
    #[derive(Debug)]
    pub(super) struct Page(NonNull<AtomicU32>);

    // SAFETY: the value owns its page, which contains an atomic.
    unsafe impl Send for Page {}
    // SAFETY: as above.
    unsafe impl Sync for Page {}

    impl Page {
        fn new() -> Option<Self> {
            let (access, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE);
            // SAFETY: the kernel chooses an address where nothing is mapped.
            let mapped = unsafe { mmap_anonymous(ptr::null_mut(), PAGE_BYTES, access, flags) };
            let page = Self(NonNull::new(mapped.ok()?.cast())?);
            // SAFETY: this value owns the page, which holds no data yet.
            let advised =
                unsafe { madvise(page.0.as_ptr().cast(), PAGE_BYTES, Advice::LinuxWipeOnFork) };
            advised.is_ok().then_some(page)
        }

        #[inline]
        fn word(&self) -> &AtomicU32 {
            // SAFETY: the page is mapped until the drop, aligned, and zero or written as an atomic.
            unsafe { self.0.as_ref() }
        }
    }

    impl Drop for Page {
        fn drop(&mut self) {
            // SAFETY: no reference to the page outlives this owner. After a failure the page stays
            // mapped.
            let _ = unsafe { munmap(self.0.as_ptr().cast(), PAGE_BYTES) };
        }
    }
}

/// A word that another process reads as wiped.
mod compared {
    use std::sync::atomic::{
        AtomicU32,
        Ordering::{AcqRel, Acquire, Release},
    };

    use rustix::process::{Pid, getpid};

    use super::WIPED;

    #[derive(Debug)]
    pub(super) struct Word {
        opened_by: Pid,
        value: AtomicU32,
    }

    impl Word {
        pub(super) fn new(value: u32) -> Self {
            Self { opened_by: getpid(), value: AtomicU32::new(value) }
        }

        pub(super) fn load(&self) -> u32 {
            if getpid() == self.opened_by { self.value.load(Acquire) } else { WIPED }
        }

        pub(super) fn store(&self, value: u32) {
            self.value.store(value, Release);
        }

        /// Stores `new` if the value is `present`.
        pub(super) fn replace(&self, present: u32, new: u32) {
            let _ = self.value.compare_exchange(present, new, AcqRel, Acquire);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A shutdown that loses a race must not let calls edit the manifest of a closed store.
    #[test]
    fn a_closed_gate_stays_closed() {
        let gate = Gate::new();
        gate.begin_close();
        assert_eq!(gate.access(), Access::Closing);
        gate.close();
        gate.begin_close();
        assert_eq!(gate.access(), Access::Closed);
    }
}
