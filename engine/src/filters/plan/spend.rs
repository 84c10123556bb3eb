//! Division of bytes among filters, by the reads that they save.

use super::curve::Curve;

/// Factor on the value of bytes in memory: bytes that would be read or built must save more to
/// replace them. Noise of the measured use is below it. At the best division the sum of the rates
/// is so flat that a factor of 1.25 costs less than one percent.
pub(super) const HELD_FACTOR: f64 = 1.25;

/// A filter to spend bytes on.
#[derive(Debug, Clone, Copy)]
pub(super) struct Buyer {
    /// Index of its keyspace.
    pub(super) keyspace: u32,
    pub(super) curve: Curve,
    /// Share of all lookups that probe the filter, from 0 to 1.
    pub(super) weight: f64,
    /// Size in memory; 0 if none.
    pub(super) held: f64,
}

/// Growth of a filter, in bytes of equal value.
#[derive(Debug, Clone, Copy)]
struct Step {
    buyer: u32,
    from: f64,
    to: f64,
    bytes: f64,
    /// False positives per lookup that it saves.
    gain: f64,
    is_held: bool,
}

impl Step {
    /// Returns the value of a byte: the false positives that it saves, times [`HELD_FACTOR`] if it
    /// is held.
    fn worth(&self) -> f64 {
        let factor = if self.is_held { HELD_FACTOR } else { 1.0 };
        self.gain * factor / self.bytes.max(1.0)
    }
}

/// Result of [`spend`].
#[derive(Debug, Clone)]
pub(super) struct Spent {
    /// A size for each buyer.
    pub(super) sizes: Vec<f64>,
    /// Value of another byte for each keyspace; 0 if all its filters have their maximum size.
    pub(super) worths: Vec<f64>,
    /// Unspent bytes of the total; 0 if it was too small for a step.
    pub(super) left: f64,
}

/// Returns a size for each of `buyers`, for the fewest expected false positives. All together take
/// at most `bytes`, and those of a keyspace at most its entry in `keyspace_bytes`.
///
/// Greedy: takes the step with the most value per byte first. Each step of a filter has less value
/// than the one before, so looking ahead gains nothing. Takes linear time in the steps: they are
/// sorted only where the bytes run out.
///
/// More bytes take the same steps, and then others. So they never do worse, and a few more change
/// few filters.
pub(super) fn spend(buyers: &[Buyer], bytes: f64, keyspace_bytes: &[f64]) -> Spent {
    let mut steps = Vec::new();
    for (buyer, index) in buyers.iter().zip(0_u32..) {
        add_steps(buyer, index, &mut steps);
    }
    // The bits of positive floats have their order. Among equals the earlier buyer comes first.
    let mut order: Vec<Rank> =
        steps.iter().zip(0..).map(|(step, index)| (!step.worth().to_bits(), index)).collect();
    let (sizes, worths) = (vec![0.0; buyers.len()], vec![0.0_f64; keyspace_bytes.len()]);
    let spent = Spent { sizes, worths, left: 0.0 };
    let (left, left_of) = (bytes, keyspace_bytes.to_vec());
    let mut spending = Spending { buyers, steps: &steps, left, left_of, is_refused: false, spent };
    spending.take(&mut order);
    let left = if spending.is_refused { 0.0 } else { spending.left.max(0.0) };
    Spent { left, ..spending.spent }
}

/// Sort key of a step, most value first, and its index.
type Rank = (u64, u32);

/// Maximum number of sorted steps.
const SORTED_MAX: usize = 64;

struct Spending<'a> {
    buyers: &'a [Buyer],
    steps: &'a [Step],
    left: f64,
    /// Bytes left of each keyspace.
    left_of: Vec<f64>,
    /// A step was too large for the total.
    is_refused: bool,
    spent: Spent,
}

impl Spending<'_> {
    /// Takes the steps of `order` with the most value, as far as the bytes go.
    fn take(&mut self, order: &mut [Rank]) {
        if self.is_all_spent() || self.take_all(order) {
            return;
        }
        if order.len() <= SORTED_MAX {
            order.sort_unstable();
            for (_, step) in order {
                self.take_one(&self.steps[*step as usize]);
            }
            return;
        }
        let middle = order.len() / 2;
        order.select_nth_unstable(middle);
        let (first, second) = order.split_at_mut(middle);
        self.take(first);
        self.take(second);
    }

    /// Returns `true` if no more steps can be taken, and the `worths` of all keyspaces are known.
    fn is_all_spent(&self) -> bool {
        let mut keyspaces = self.left_of.iter().zip(&self.spent.worths);
        keyspaces.all(|(left, worth)| self.left.min(*left) <= 0.0 && *worth > 0.0)
    }

    /// Takes all of `order`, in any order, if there are bytes for all. Returns `true` if it did.
    fn take_all(&mut self, order: &[Rank]) -> bool {
        let mut bytes = vec![0.0; self.left_of.len()];
        for step in order.iter().map(|(_, step)| &self.steps[*step as usize]) {
            // A refused step excludes later steps of its filter.
            if self.spent.worths[self.keyspace(step)] > 0.0 {
                return false;
            }
            bytes[self.keyspace(step)] += step.bytes;
        }
        let all: f64 = bytes.iter().sum();
        if all > self.left || bytes.iter().zip(&self.left_of).any(|(bytes, left)| bytes > left) {
            return false;
        }
        for step in order.iter().map(|(_, step)| &self.steps[*step as usize]) {
            let size = &mut self.spent.sizes[step.buyer as usize];
            *size = size.max(step.to);
        }
        self.left -= all;
        for (left, bytes) in self.left_of.iter_mut().zip(bytes) {
            *left -= bytes;
        }
        true
    }

    /// Takes `step`, or the part of it that the bytes cover.
    fn take_one(&mut self, step: &Step) {
        let keyspace = self.keyspace(step);
        let curve = &self.buyers[step.buyer as usize].curve;
        let size = &mut self.spent.sizes[step.buyer as usize];
        if *size != step.from {
            return; // An earlier step was not taken.
        }
        let room = self.left.min(self.left_of[keyspace]).max(0.0);
        let taken = if step.bytes <= room {
            *size = step.to;
            step.bytes
        } else {
            self.is_refused |= step.bytes > self.left;
            let worth = &mut self.spent.worths[keyspace];
            *worth = worth.max(step.worth());
            if !curve.has_fractions_from(step.from) {
                return;
            }
            *size += (step.to - step.from) * room / step.bytes;
            room
        };
        self.left -= taken;
        self.left_of[keyspace] -= taken;
    }

    fn keyspace(&self, step: &Step) -> usize {
        self.buyers[step.buyer as usize].keyspace as usize
    }
}

/// Adds the steps of `buyer` up to its maximum size, each of less value than the previous one.
fn add_steps(buyer: &Buyer, index: u32, steps: &mut Vec<Step>) {
    let first = steps.len();
    let Buyer { curve, weight, held, .. } = buyer;
    let (mut from, mut from_bytes, mut from_fpr) = (0.0, 0.0, 1.0);
    curve.for_each_size(*held, |to| {
        let (bytes, fpr) = (curve.bytes(to), curve.fpr(to));
        let mut step = Step {
            buyer: index,
            from,
            to,
            bytes: bytes - from_bytes,
            gain: weight * (from_fpr - fpr),
            is_held: to <= *held,
        };
        (from, from_bytes, from_fpr) = (to, bytes, fpr);
        // A step of more value than the previous one is merged with it.
        while let Some(before) = steps[first..].last().copied() {
            if before.worth() >= step.worth() {
                break;
            }
            steps.pop();
            step.from = before.from;
            step.bytes += before.bytes;
            step.gain += before.gain;
        }
        steps.push(step);
    });
    // Only the last step can save nothing.
    if steps[first..].last().is_some_and(|step| step.gain <= 0.0) {
        steps.pop();
    }
}
