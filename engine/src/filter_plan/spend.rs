//! Bytes go where they save the most reads.

use super::curve::Curve;

/// What is in memory counts for so much more than what would have to be read or built: no table gives
/// bytes to another one for less. Noise of the measured use is below that; and at the best division
/// the sum of the rates is so flat that a factor of 1.25 costs less than one per cent.
pub(super) const HELD_FACTOR: f64 = 1.25;

/// A filter to spend bytes on.
#[derive(Debug, Clone, Copy)]
pub(super) struct Buyer {
    /// Index of its keyspace.
    pub(super) keyspace: u32,
    pub(super) curve: Curve,
    /// Share of all lookups that ask it, from 0 to 1.
    pub(super) weight: f64,
    /// Size that is in memory already; 0 if none.
    pub(super) held: f64,
}

/// A filter becomes larger, in bytes that are all worth the same.
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
    /// What a byte saves.
    fn worth(&self) -> f64 {
        let factor = if self.is_held { HELD_FACTOR } else { 1.0 };
        self.gain * factor / self.bytes.max(1.0)
    }
}

/// How bytes were spent.
#[derive(Debug, Clone)]
pub(super) struct Spent {
    /// A size for each buyer.
    pub(super) sizes: Vec<f64>,
    /// For each keyspace, what another byte would save; 0 if all have all they can have.
    pub(super) worths: Vec<f64>,
}

/// A size for each of `buyers`, so that together they expect the fewest false positives, when they may
/// take `bytes` in all and those of each keyspace as many as `keyspace_bytes` says.
///
/// The step that saves the most for a byte is taken first. As each step of a filter saves less than the
/// one before, nothing is gained by looking further ahead. Sorts the steps: `n log n` in their number.
///
/// With more bytes the same steps are taken and then others, so more bytes never do worse, and a few
/// more change few filters.
pub(super) fn spend(buyers: &[Buyer], bytes: f64, keyspace_bytes: &[f64]) -> Spent {
    let mut steps = Vec::new();
    for (buyer, index) in buyers.iter().zip(0_u32..) {
        add_steps(buyer, index, &mut steps);
    }
    // The bits of positive numbers are in their order. Of equals the earlier buyer comes first.
    let mut order: Vec<(u64, u32)> =
        steps.iter().zip(0..).map(|(step, index)| (!step.worth().to_bits(), index)).collect();
    order.sort_unstable();

    let mut left = bytes;
    let mut keyspaces_left = keyspace_bytes.to_vec();
    let mut sizes = vec![0.0; buyers.len()];
    let mut worths = vec![0.0_f64; keyspace_bytes.len()];
    for (_, index) in order {
        let step = &steps[index as usize];
        let buyer = &buyers[step.buyer as usize];
        let keyspace = buyer.keyspace as usize;
        let size = &mut sizes[step.buyer as usize];
        if *size != step.from {
            continue; // A step before was not taken.
        }
        let room = left.min(keyspaces_left[keyspace]).max(0.0);
        let taken = if step.bytes <= room {
            *size = step.to;
            step.bytes
        } else {
            worths[keyspace] = worths[keyspace].max(step.worth());
            if !buyer.curve.has_fractions_from(step.from) {
                continue;
            }
            *size += (step.to - step.from) * room / step.bytes;
            room
        };
        left -= taken;
        keyspaces_left[keyspace] -= taken;
    }
    Spent { sizes, worths }
}

/// The steps of `buyer` up to its largest size, each worth less than the one before.
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
        // What is worth more than the step before is only had together with it.
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
    // What saves nothing comes last, if at all.
    if steps[first..].last().is_some_and(|step| step.gain <= 0.0) {
        steps.pop();
    }
}
