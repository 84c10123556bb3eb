//! What one thread may rely on, with towers of all heights and keys of all lengths.

use sievedb_format::Kind;

use super::*;

fn internal(user_key: &[u8], sequence: u64) -> InternalKey<'_> {
    InternalKey::new(user_key, Trailer::new(sequence, Kind::Put))
}

fn nodes(list: &SkipList) -> impl Iterator<Item = Node<'_>> {
    std::iter::successors(list.first(), |node| node.next())
}

/// Keys of all lengths beside the words, in towers of all heights, and keys that are slabs by
/// themselves.
#[test]
fn keys_of_all_lengths_lie_in_towers_of_all_heights() {
    let list = SkipList::new();
    let mut keys = Vec::new();
    for len in (0..70).chain([255, 256, 257, 4_096, 1_000_003]) {
        for height in 1..=HEIGHT_MAX {
            let mut key = vec![7; len];
            key.push(height as u8);
            list.insert_tower(height, internal(&key, 1), &key);
            keys.push((key, height));
        }
    }
    keys.sort_unstable();
    for level in 0..HEIGHT_MAX {
        // SAFETY: a tower that is met on a level has it.
        let link = |tower: Tower<'_>| Node::new(unsafe { tower.link(level) }.load(Acquire));
        let mut next = link(list.tower());
        for (key, _) in keys.iter().filter(|(_, height)| *height > level) {
            let node = next.expect("the level goes on");
            assert!(node.head.addr().get().is_multiple_of(WORD_BYTES));
            assert!(node.key() == internal(key, 1), "{} bytes, level {level}", key.len());
            assert!(node.value() == key, "{} bytes", key.len());
            next = link(node.tower());
        }
        assert!(next.is_none(), "level {level}");
    }
    for (at, (key, _)) in keys.iter().enumerate() {
        let before = at.checked_sub(1).map(|before| internal(&keys[before].0, 1));
        assert_eq!(list.before(internal(key, 1)).map(Node::key), before);
        assert_eq!(list.at_or_behind(internal(key, 1)).map(Node::key), Some(internal(key, 1)));
    }
    assert_eq!(list.last().map(Node::key), keys.last().map(|(key, _)| internal(key, 1)));
}

/// Of `n` entries one in 4^level is on a level, so that a search takes few steps.
#[test]
fn a_quarter_of_each_level_is_on_the_next() {
    const ENTRIES: usize = 1 << 16;
    let list = SkipList::new();
    let mut heights = [0_usize; HEIGHT_MAX + 1];
    (0..ENTRIES).for_each(|_| heights[list.next_height()] += 1);
    assert_eq!(heights[0], 0);
    for level in 1..5 {
        let found: usize = heights[level + 1..].iter().sum();
        let expected = ENTRIES as f64 / f64::from(1 << (2 * level));
        // Heights are drawn from one seed: this is the same in each run.
        let error = (found as f64 - expected).abs() / expected.sqrt();
        assert!(error < 5.0, "level {level}: {found} instead of {expected}");
    }
}

#[test]
fn an_entry_with_the_same_key_stays_behind() {
    let list = SkipList::new();
    for value in [b"first", b"later"] {
        list.insert(internal(b"key", 1), value);
    }
    let values: Vec<&[u8]> = nodes(&list).map(|node| node.value()).collect();
    assert_eq!(values, [b"later", b"first"]);
}
