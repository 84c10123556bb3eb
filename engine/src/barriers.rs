//! Asymmetric memory barriers, for two sides of which one executes far more often.

use std::sync::atomic::{Ordering::SeqCst, compiler_fence, fence};

/// A store-load barrier in a light and a heavy form. A light and a heavy barrier are ordered for
/// all threads.
///
/// On Linux the light barrier is a compiler fence and free. The heavy barrier makes all running
/// threads of the process execute a barrier (`membarrier`), and takes until the slowest thread
/// answers an interrupt. Elsewhere, and where the system refuses that call, both are fences.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Barriers {
    Asymmetric,
    Symmetric,
    /// The system has refused `membarrier` since the store was opened.
    #[cfg(test)]
    Refused,
}

impl Barriers {
    /// Returns the cheapest barriers of this system.
    pub(crate) fn detect() -> Self {
        if system::is_there() && !is_refused() { Self::Asymmetric } else { Self::Symmetric }
    }

    pub(crate) fn is_symmetric(self) -> bool {
        self == Self::Symmetric
    }

    /// Executes the heavy barrier. Returns `false` if the system refused it and only a fence was
    /// executed.
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

#[inline(always)]
pub(crate) fn light(is_symmetric: bool) {
    if is_symmetric {
        fence(SeqCst);
    } else {
        compiler_fence(SeqCst);
    }
}

/// Returns `true` if the system has refused a heavy barrier that it allowed before.
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

    /// Registers the process, which must precede the other calls.
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
