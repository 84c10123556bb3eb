//! Barriers of memory for two sides of which one passes far more often than the other.

use std::sync::atomic::{Ordering::SeqCst, compiler_fence, fence};

/// A barrier between the writes and the reads of a thread, in two forms: of a light and a heavy
/// one, one is before the other for all threads.
///
/// On Linux the light one is for the compiler alone and costs nothing: the heavy one makes all
/// threads of the process that run pass a barrier (`membarrier`), and takes as long as the slowest
/// of them needs to answer an interrupt. Elsewhere, and where the system refuses that call, both
/// are fences.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Barriers {
    /// The system makes every thread pass a barrier.
    Asymmetric,
    /// Both sides are fences.
    Symmetric,
    /// The system refuses the heavy barrier: it was forbidden after the store was opened.
    #[cfg(test)]
    Refused,
}

impl Barriers {
    /// Returns the cheapest barriers that this system has.
    pub(crate) fn detect() -> Self {
        if system::is_there() && !is_refused() { Self::Asymmetric } else { Self::Symmetric }
    }

    /// Returns whether both sides are fences.
    pub(crate) fn is_symmetric(self) -> bool {
        self == Self::Symmetric
    }

    /// Passes the heavy barrier. Returns `false` if the system refused it, and only a fence was
    /// passed: the system had no memory for the call, or forbids it since [`detect`](Self::detect).
    #[must_use]
    pub(crate) fn heavy(self) -> bool {
        fence(SeqCst);
        match self {
            Self::Asymmetric => system::pass(),
            Self::Symmetric => true,
            #[cfg(test)]
            Self::Refused => false,
        }
    }
}

/// The light barrier: a fence if the barriers are symmetric.
#[inline(always)]
pub(crate) fn light(is_symmetric: bool) {
    if is_symmetric {
        fence(SeqCst);
    } else {
        compiler_fence(SeqCst);
    }
}

/// Returns whether the system refused a heavy barrier that it had allowed before.
pub(crate) fn is_refused() -> bool {
    system::is_refused()
}

#[cfg(all(target_os = "linux", not(miri)))]
mod system {
    use std::sync::{
        LazyLock,
        atomic::{AtomicBool, Ordering::Relaxed},
    };

    use rustix::thread::{MembarrierCommand, MembarrierQuery, membarrier, membarrier_query};

    /// Registration of the process, which has to precede the other calls.
    static IS_THERE: LazyLock<bool> = LazyLock::new(|| {
        membarrier_query().contains(MembarrierQuery::PRIVATE_EXPEDITED)
            && membarrier(MembarrierCommand::RegisterPrivateExpedited).is_ok()
            && membarrier(MembarrierCommand::PrivateExpedited).is_ok()
    });

    static IS_REFUSED: AtomicBool = AtomicBool::new(false);

    pub(super) fn is_there() -> bool {
        *IS_THERE
    }

    pub(super) fn is_refused() -> bool {
        IS_REFUSED.load(Relaxed)
    }

    pub(super) fn pass() -> bool {
        let passed = membarrier(MembarrierCommand::PrivateExpedited).is_ok();
        if !passed {
            IS_REFUSED.store(true, Relaxed);
        }
        passed
    }
}

#[cfg(not(all(target_os = "linux", not(miri))))]
mod system {
    pub(super) fn is_there() -> bool {
        false
    }

    pub(super) fn is_refused() -> bool {
        false
    }

    pub(super) fn pass() -> bool {
        true
    }
}
