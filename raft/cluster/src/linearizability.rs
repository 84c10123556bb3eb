//! A checker of linearizability for histories of registers.
//!
//! A history is linearizable if its operations could have taken effect one after another, each
//! between its call and its return (Herlihy and Wing, "Linearizability", TOPLAS 1990). Keys are
//! independent, so the history of each key is checked alone. The search is that of Wing and Gong
//! ("Testing and Verifying Concurrent Objects", JPDC 1993), which remembers states that it has seen
//! (Lowe, "Testing for Linearizability", CCPE 2017).

use std::collections::{BTreeMap, BTreeSet, HashSet};

/// The value of a register, `None` if it is absent.
pub type Value = Option<String>;

/// A call, and what it returned.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// Returned the value.
    Read(Value),
    /// Stored a value. `before` is the returned value before; `None` if the call did not return.
    Write {
        /// The new value.
        value: String,
        /// The returned value before.
        before: Option<Value>,
    },
    /// Stored `value` if the value before was `expected`.
    CompareAndSet {
        /// The expected value.
        expected: Value,
        /// The new value.
        value: String,
        /// The returned value before; `None` if the call did not return.
        before: Option<Value>,
    },
}

/// An operation of a client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Operation {
    /// The key.
    pub key: String,
    /// The call and its result.
    pub action: Action,
    /// The time of the call.
    pub begin: u64,
    /// The time of the return. `None` if the call did not return: it may take effect at any time
    /// after its call, or never.
    pub end: Option<u64>,
}

impl Operation {
    /// Returns the value after the operation takes effect at `value`, or `None` if it cannot.
    fn apply(&self, value: &Value) -> Option<Value> {
        let fits = |before: &Option<Value>| before.as_ref().is_none_or(|before| before == value);
        match &self.action {
            Action::Read(found) => (found == value).then(|| value.clone()),
            Action::Write { value: new, before } => fits(before).then(|| Some(new.clone())),
            Action::CompareAndSet { expected, value: new, before } => {
                let stores = expected == value;
                fits(before).then(|| if stores { Some(new.clone()) } else { value.clone() })
            }
        }
    }

    /// Returns the values that show that another operation has taken effect.
    fn observes(&self) -> impl Iterator<Item = &String> {
        let (first, second) = match &self.action {
            Action::Read(value) => (Some(value), None),
            Action::Write { before, .. } => (before.as_ref(), None),
            Action::CompareAndSet { expected, before, .. } => (Some(expected), before.as_ref()),
        };
        first.into_iter().chain(second).flatten()
    }

    fn stored(&self) -> Option<&String> {
        match &self.action {
            Action::Read(_) => None,
            Action::Write { value, .. } | Action::CompareAndSet { value, .. } => Some(value),
        }
    }
}

/// Returns the keys whose histories are not linearizable. All registers are absent at first.
#[must_use]
pub fn violations(history: &[Operation]) -> Vec<String> {
    let mut keys = BTreeMap::<&str, Vec<&Operation>>::new();
    for operation in history {
        keys.entry(&operation.key).or_default().push(operation);
    }
    let illegal = keys.into_iter().filter(|(_, operations)| !is_linearizable(operations));
    illegal.map(|(key, _)| key.to_owned()).collect()
}

/// Operations that have taken effect, one bit each.
type Bits = Vec<u64>;

fn is_linearizable(history: &[&Operation]) -> bool {
    // An operation that did not return, and whose value no other one observes, need not have taken
    // effect.
    let observed: BTreeSet<_> = history.iter().flat_map(|operation| operation.observes()).collect();
    let matters = |operation: &&Operation| {
        operation.end.is_some() || operation.stored().is_some_and(|value| observed.contains(value))
    };
    let mut operations: Vec<_> = history.iter().copied().filter(matters).collect();
    operations.sort_by_key(|operation| operation.begin);
    let mut missing = operations.iter().filter(|operation| operation.end.is_some()).count();

    let mut done: Bits = vec![0; operations.len().div_ceil(64)];
    let mut value: Value = None;
    let mut seen = HashSet::new();
    // The operations that have taken effect, with the value before, and the next to try after each.
    let mut path: Vec<(usize, Value)> = Vec::new();
    let mut next = 0;
    loop {
        if missing == 0 {
            return true;
        }
        match candidate(&operations, &done, next, &value) {
            Some((at, after)) => {
                set(&mut done, at, true);
                if seen.insert((done.clone(), after.clone())) {
                    missing -= usize::from(operations[at].end.is_some());
                    path.push((at, std::mem::replace(&mut value, after)));
                    next = 0;
                } else {
                    set(&mut done, at, false);
                    next = at + 1;
                }
            }
            None => {
                let Some((at, before)) = path.pop() else { return false };
                set(&mut done, at, false);
                missing += usize::from(operations[at].end.is_some());
                (value, next) = (before, at + 1);
            }
        }
    }
}

/// Returns the first operation from `next` on that can take effect now, and the value after it.
///
/// An operation can do so if none of the others has returned before its call.
fn candidate(
    operations: &[&Operation],
    done: &Bits,
    next: usize,
    value: &Value,
) -> Option<(usize, Value)> {
    let open = |at: usize| done[at / 64] & (1 << (at % 64)) == 0;
    let mut first_end = u64::MAX;
    for (at, operation) in operations.iter().enumerate() {
        if operation.begin > first_end {
            return None;
        }
        if !open(at) {
            continue;
        }
        if at >= next
            && let Some(after) = operation.apply(value)
        {
            return Some((at, after));
        }
        first_end = first_end.min(operation.end.unwrap_or(u64::MAX));
    }
    None
}

fn set(bits: &mut Bits, at: usize, to: bool) {
    let bit = 1 << (at % 64);
    if to { bits[at / 64] |= bit } else { bits[at / 64] &= !bit }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn operation(begin: u64, end: Option<u64>, action: Action) -> Operation {
        Operation { key: "k".to_owned(), action, begin, end }
    }

    fn read(begin: u64, end: u64, value: Option<&str>) -> Operation {
        operation(begin, Some(end), Action::Read(value.map(str::to_owned)))
    }

    fn write(begin: u64, end: Option<u64>, value: &str) -> Operation {
        operation(begin, end, Action::Write { value: value.to_owned(), before: None })
    }

    fn set_if(begin: u64, end: Option<u64>, expected: &str, new: &str, before: &str) -> Operation {
        let before = end.map(|_| Some(before.to_owned()));
        let (expected, value) = (Some(expected.to_owned()), new.to_owned());
        operation(begin, end, Action::CompareAndSet { expected, value, before })
    }

    fn legal(history: &[Operation]) -> bool {
        violations(history).is_empty()
    }

    #[test]
    fn reads_return_the_last_write() {
        assert!(legal(&[write(0, Some(1), "a"), read(2, 3, Some("a"))]));
        assert!(!legal(&[write(0, Some(1), "a"), read(2, 3, None)]));
        assert!(!legal(&[write(0, Some(1), "a"), write(2, Some(3), "b"), read(4, 5, Some("a"))]));
    }

    #[test]
    fn concurrent_writes_have_either_order() {
        let writes = [write(0, Some(9), "a"), write(1, Some(8), "b")];
        for value in ["a", "b"] {
            assert!(legal(&[&writes[..], &[read(10, 11, Some(value))]].concat()));
        }
        let both = [read(10, 11, Some("a")), read(12, 13, Some("b"))];
        assert!(!legal(&[&writes[..], &both].concat()));
        let during = [read(2, 3, Some("a")), read(4, 5, Some("b")), read(10, 11, Some("b"))];
        assert!(legal(&[&writes[..], &during].concat()));
    }

    #[test]
    fn calls_without_return_take_effect_late_or_never() {
        let lost = write(0, None, "a");
        assert!(legal(&[lost.clone(), read(5, 6, None), read(7, 8, Some("a"))]));
        assert!(legal(&[lost.clone(), read(5, 6, None)]));
        assert!(!legal(&[lost.clone(), read(5, 6, Some("a")), read(7, 8, None)]));
        // Not before it began.
        assert!(!legal(&[read(0, 1, Some("b")), write(2, None, "b")]));
    }

    #[test]
    fn comparisons_see_the_value_before() {
        let first = write(0, Some(1), "a");
        assert!(legal(&[first.clone(), set_if(2, Some(3), "a", "b", "a"), read(4, 5, Some("b"))]));
        assert!(legal(&[first.clone(), set_if(2, Some(3), "x", "b", "a"), read(4, 5, Some("a"))]));
        assert!(!legal(&[first.clone(), set_if(2, Some(3), "a", "b", "a"), read(4, 5, Some("a"))]));
        assert!(!legal(&[first.clone(), set_if(2, Some(3), "x", "b", "x")]));
        assert!(legal(&[first, set_if(2, None, "a", "b", ""), read(4, 5, Some("b"))]));
    }

    #[test]
    fn long_histories_are_checked_and_one_stale_read_is_found() {
        let mut history = Vec::new();
        for number in 0..400 {
            let at = 10 * number;
            history.push(write(at, Some(at + 8), &number.to_string()));
            history.push(write(at + 1, (number % 9 > 0).then_some(at + 14), &format!("x{number}")));
            history.push(read(at + 8, at + 15, Some(&number.to_string())));
        }
        assert!(legal(&history));
        history.push(read(2000, 2001, Some("100")));
        assert_eq!(violations(&history), ["k"]);
    }
}
