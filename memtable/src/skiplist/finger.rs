//! A finger at the end of the list, for ascending keys.
//!
//! A search from a finger (Pugh, "A Skip List Cookbook", 1990) starts at a known node instead of
//! the head. The finger holds the last node on each level, as one thread saw them: an entry with a
//! greater key finds its place without a comparison on most levels. One thread holds the finger at
//! a time. Others do not wait: they search from the head.

use std::sync::atomic::{
    AtomicBool, AtomicPtr,
    Ordering::{Acquire, Relaxed, Release},
};

use super::{HEIGHT_MAX, Head, Neighbors, Node, as_ptr};

/// Nodes near the end of the list.
#[derive(Debug, Default)]
pub(super) struct Finger {
    is_held: AtomicBool,
    /// A node on each level, or null: on level 0 the greatest, on a higher one never a greater.
    ends: [AtomicPtr<Head>; HEIGHT_MAX],
}

/// The finger, held by this thread.
#[derive(Debug)]
pub(super) struct HeldFinger<'l>(&'l Finger);

impl Finger {
    /// Returns the finger if `is_less` holds for all its nodes, and no other thread holds it.
    #[inline]
    pub(super) fn hold_if(&self, is_less: impl Fn(Node<'_>) -> bool) -> Option<HeldFinger<'_>> {
        // Acquire: another thread may have written the node.
        let end = |order| Node::new(self.ends[0].load(order));
        // Most keys that are not ascending end here, without a write to shared memory.
        if !end(Acquire).is_some_and(&is_less) {
            return None;
        }
        let held = self.hold()?;
        // The last holder may have moved the end.
        end(Relaxed).is_some_and(is_less).then_some(held)
    }

    /// Returns the finger, unless another thread holds it.
    #[inline]
    pub(super) fn hold(&self) -> Option<HeldFinger<'_>> {
        (!self.is_held.swap(true, Acquire)).then(|| HeldFinger(self))
    }
}

impl<'l> HeldFinger<'l> {
    /// Returns the node on `level`.
    #[inline]
    pub(super) fn end(&self, level: usize) -> Option<Node<'l>> {
        Node::new(self.0.ends[level].load(Relaxed))
    }

    /// Moves the finger to `node`, which was inserted between `neighbors` and is linked on `height`
    /// levels.
    #[inline]
    pub(super) fn move_to(
        self,
        node: Node<'l>,
        height: usize,
        neighbors: &[Neighbors<'l>; HEIGHT_MAX],
    ) {
        for (level, neighbors) in neighbors.iter().enumerate().skip(height) {
            self.0.ends[level].store(as_ptr(neighbors.before), Relaxed);
        }
        for end in &self.0.ends[..height] {
            // Release: other threads compare its key.
            end.store(node.head.as_ptr(), Release);
        }
    }
}

impl Drop for HeldFinger<'_> {
    fn drop(&mut self) {
        self.0.is_held.store(false, Release);
    }
}
