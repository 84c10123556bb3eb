//! A compaction filter for histories, whose removals a model need not follow.
//!
//! The history leaves out keys that begin with `gone`. Each is written in one batch with the same
//! value under a key that begins with `mark` and ends alike. So the store may lack the former, at
//! any time, but never have an older value of it.

use std::{collections::BTreeMap, str};

use bytes::Bytes;
use sievedb::{CompactionContext, CompactionFilter, Decision};

const GONE: &[u8] = b"gone";
const MARK: &[u8] = b"mark";

/// Removes keys that begin with `gone`, and replaces other values by themselves.
///
/// Of the numbers at the end of keys, those that 3 divides stay, and the odd ones remove the key
/// behind them too.
#[derive(Debug)]
pub struct RemoveGone;

impl CompactionFilter for RemoveGone {
    fn name(&self) -> &str {
        "remove gone"
    }

    fn filter(&self, _: &CompactionContext<'_>, key: &[u8], value: &[u8]) -> Decision {
        if !is_gone(key) {
            return Decision::Replace(value.to_vec());
        }
        let number = str::from_utf8(&key[GONE.len()..]).ok().and_then(|text| text.parse().ok());
        match number.unwrap_or(0_u32) {
            number if number % 3 == 0 => Decision::Keep,
            number if number % 2 == 1 => {
                Decision::RemoveAndSkipUntil(format!("gone{}", number + 2).into())
            }
            _ => Decision::Remove,
        }
    }
}

/// Returns whether histories leave out `key`.
#[must_use]
pub fn is_gone(key: &[u8]) -> bool {
    key.starts_with(GONE)
}

/// Returns the first of `entries` that histories leave out and that is older than its mark.
#[must_use]
pub fn outdated(entries: &BTreeMap<Bytes, Bytes>) -> Option<&Bytes> {
    let gone = entries.iter().filter(|(key, _)| is_gone(key));
    let is_outdated = |&(key, value): &(&Bytes, &Bytes)| {
        let mark = [MARK, &key[GONE.len()..]].concat();
        entries.get(&mark[..]) != Some(value)
    };
    gone.filter(|entry| is_outdated(entry)).map(|(key, _)| key).next()
}
