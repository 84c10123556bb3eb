//! Barriers of memory for two sides of which one passes far more often than the other.

use std::sync::atomic::{Ordering::SeqCst, compiler_fence, fence};

/// A barrier between the writes and the reads of a thread, in two forms: of a light and a heavy one, one is
/// before the other for all threads.
///
/// On Linux the light one is for the compiler alone and costs nothing: the heavy one makes all threads of
/// the process that run pass a barrier (`membarrier`), and takes as long as the slowest of them needs to
/// answer an interrupt. Elsewhere, and where the system refuses that call, both are fences.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Barriers {
    is_asymmetric: bool,
}

impl Barriers {
    /// Fences on both sides, as on a system without the call.
    #[cfg(test)]
    pub(crate) const SYMMETRIC: Self = Self { is_asymmetric: false };

    /// The cheapest that this system has.
    pub(crate) fn detect() -> Self {
        Self { is_asymmetric: system::is_there() }
    }

    /// Costs a fence at most.
    #[inline(always)]
    pub(crate) fn light(self) {
        if self.is_asymmetric {
            compiler_fence(SeqCst);
        } else {
            fence(SeqCst);
        }
    }

    /// A call to the system, or a fence. `false` if the system refused, and it was no barrier: it had no memory
    /// for it, or forbids it since [`detect`](Self::detect).
    #[must_use]
    pub(crate) fn heavy(self) -> bool {
        fence(SeqCst);
        !self.is_asymmetric || system::pass()
    }
}

#[cfg(all(target_os = "linux", not(miri)))]
mod system {
    use std::sync::LazyLock;

    use rustix::thread::{MembarrierCommand, MembarrierQuery, membarrier, membarrier_query};

    /// Of the process: a call that has to come before the others.
    static IS_THERE: LazyLock<bool> = LazyLock::new(|| {
        membarrier_query().contains(MembarrierQuery::PRIVATE_EXPEDITED)
            && membarrier(MembarrierCommand::RegisterPrivateExpedited).is_ok()
            && pass()
    });

    pub(super) fn is_there() -> bool {
        *IS_THERE
    }

    pub(super) fn pass() -> bool {
        membarrier(MembarrierCommand::PrivateExpedited).is_ok()
    }
}

#[cfg(not(all(target_os = "linux", not(miri))))]
mod system {
    pub(super) fn is_there() -> bool {
        false
    }

    pub(super) fn pass() -> bool {
        true
    }
}
