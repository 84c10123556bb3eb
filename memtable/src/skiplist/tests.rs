//! The list in one thread, with towers of all heights and keys of all lengths.

use sievedb_format::Kind;

use super::*;

fn internal(user_key: &[u8], sequence: u64) -> InternalKey<'_> {
    InternalKey::new(user_key, Trailer::new(sequence, Kind::Put))
}

fn nodes(list: &SkipList) -> impl Iterator<Item = Node<'_>> {
    std::iter::successors(list.first(), |node| node.next())
}

/// Key lengths around multiples of a word, and keys that have slabs of their own.
#[test]
fn keys_of_all_lengths_in_towers_of_all_heights() {
    let list = SkipList::with_seed(SEED_STEP);
    let mut keys = Vec::new();
    let (short_max, long) = if cfg!(miri) { (9, 5_000) } else { (70, 1_000_003) };
    for len in (0..short_max).chain([255, 256, 257, 4_096, long]) {
        for height in 1..=HEIGHT_MAX {
            let mut key = vec![7; len];
            key.push(height as u8);
            list.insert_with_height(height, internal(&key, 1), &key);
            keys.push((key, height));
        }
    }
    keys.sort_unstable();
    for level in 0..HEIGHT_MAX {
        // SAFETY: a tower reached on a level has that level.
        let link = |tower: Tower<'_>| Node::new(unsafe { tower.link(level) }.load(Acquire));
        let mut next = link(list.tower());
        for (key, _) in keys.iter().filter(|(_, height)| *height > level) {
            let node = next.expect("the level has more nodes");
            assert!(node.head.addr().get().is_multiple_of(WORD_BYTES));
            assert!(node.key() == internal(key, 1), "{} bytes, level {level}", key.len());
            assert!(node.value() == key, "{} bytes", key.len());
            next = link(node.tower());
        }
        assert!(next.is_none(), "level {level}");
    }
    for (at, (key, _)) in keys.iter().enumerate() {
        let before = at.checked_sub(1).map(|before| internal(&keys[before].0, 1));
        assert_eq!(list.last_before(internal(key, 1)).map(Node::key), before);
        assert_eq!(list.lower_bound(internal(key, 1)).map(Node::key), Some(internal(key, 1)));
    }
    assert_eq!(list.last().map(Node::key), keys.last().map(|(key, _)| internal(key, 1)));
}

/// A level has a quarter of the nodes of the level below, so that a search takes few steps.
#[test]
fn each_level_has_a_quarter_of_the_level_below() {
    const ENTRIES: usize = if cfg!(miri) { 1 << 12 } else { 1 << 16 };
    let list = SkipList::with_seed(SEED_STEP);
    let mut heights = [0_usize; HEIGHT_MAX + 1];
    (0..ENTRIES).for_each(|_| heights[list.random_height()] += 1);
    assert_eq!(heights[0], 0);
    for level in 1..5 {
        let found: usize = heights[level + 1..].iter().sum();
        let expected = ENTRIES as f64 / f64::from(1 << (2 * level));
        // The seed is fixed: each run draws the same heights.
        let error = (found as f64 - expected).abs() / expected.sqrt();
        assert!(error < 5.0, "level {level}: expected {expected}, found {found}");
    }
}

/// With equal heights, an order of inserts for slow searches could be prepared.
#[test]
fn each_list_draws_other_heights() {
    let draw = |list: &SkipList| (0..100).map(|_| list.random_height()).collect::<Vec<_>>();
    assert_ne!(draw(&SkipList::new()), draw(&SkipList::new()));
}

#[test]
fn an_equal_key_is_inserted_first() {
    let list = SkipList::with_seed(SEED_STEP);
    for value in [b"first", b"later"] {
        list.insert(internal(b"key", 1), value);
    }
    let values: Vec<&[u8]> = nodes(&list).map(|node| node.value()).collect();
    assert_eq!(values, [b"later", b"first"]);
}

/// Inserts three parts of the keys, in random, ascending and descending order. With two stripes,
/// runs of the later parts end at keys of the earlier ones.
#[test]
fn entries_inserted_together_are_sorted() {
    let count = if cfg!(miri) { 60 } else { 5_000_u32 };
    let random = |index: u32| index.wrapping_mul(0x9e37_79b1);
    let orders: [(&str, &dyn Fn(u32) -> u32); 4] = [
        ("random", &random),
        ("ascending", &|index| index),
        ("descending", &|index| count - index),
        ("two stripes", &|index| (index % 2) * count + index * 7 % count),
    ];
    for (name, order) in orders {
        let list = SkipList::with_seed(SEED_STEP);
        let mut want: Vec<_> = (0..count).map(|index| order(index).to_be_bytes()).collect();
        for parts in want.chunks(count as usize / 3) {
            list.insert_all(parts.iter().map(|key| (internal(key, 1), &key[..])));
            list.insert_all([]);
        }
        want.sort_unstable();
        assert_eq!(list.len(), want.len(), "{name}");
        assert!(nodes(&list).all(|node| node.key().user_key == node.value()), "{name}");
        let keys = nodes(&list).map(|node| node.key().user_key);
        assert!(keys.eq(want.iter().map(|key| &key[..])), "{name}");
        for key in &want {
            let found = list.lower_bound(internal(key, 1)).map(Node::key);
            assert_eq!(found, Some(internal(key, 1)), "{name}");
        }
        // Each level is sorted, and part of the one below.
        for level in 1..HEIGHT_MAX {
            // SAFETY: a tower reached on a level has that level.
            let link = |tower: Tower<'_>| Node::new(unsafe { tower.link(level) }.load(Acquire));
            let on_level = std::iter::successors(link(list.tower()), |node| link(node.tower()));
            assert!(on_level.map(Node::key).is_sorted(), "{name}, level {level}");
        }
    }

    let list = SkipList::with_seed(SEED_STEP);
    let entries = [b"first", b"later"].map(|value| (internal(b"", 1), &value[..]));
    list.insert_all(entries);
    let values: Vec<&[u8]> = nodes(&list).take(2).map(|node| node.value()).collect();
    assert_eq!(values, [b"later", b"first"]);
}

/// Ascending keys with others between and below them, one by one and together, so that ends are
/// used, out of date, and noted again.
#[test]
fn ascending_keys_are_inserted_at_the_ends() {
    let list = SkipList::with_seed(SEED_STEP);
    let count = if cfg!(miri) { 100 } else { 3_000_u32 };
    let mut at_ends = 0;
    let mut want = Vec::new();
    let mut insert = |number: u32| {
        let key = number.to_be_bytes();
        let mut neighbors = [Neighbors::at_head(&list)];
        let is_at_end = list.find_at_ends(internal(&key, 1), &mut neighbors);
        let is_last = want.iter().all(|other| *other < key);
        assert!(is_last || !is_at_end, "{number} is not the last");
        if is_at_end {
            at_ends += 1;
            assert_eq!(neighbors[0].before.map(Node::key), list.last().map(Node::key));
        }
        list.insert(internal(&key, 1), &key);
        want.push(key);
    };
    for number in 1..count {
        insert(10 * number);
        if number % 7 == 0 {
            insert(10 * number - 5);
        }
    }
    assert_eq!(at_ends, count - 2, "all except the first one and those between");
    let together = [11 * count, 11 * count + 1].map(u32::to_be_bytes);
    list.insert_all(together.iter().map(|key| (internal(key, 1), &key[..])));
    let next = (12 * count).to_be_bytes();
    let mut neighbors = [Neighbors::at_head(&list)];
    assert!(!list.find_at_ends(internal(&next, 1), &mut neighbors), "the end is out of date");
    list.insert(internal(&next, 1), &next);
    want.extend(together.into_iter().chain([next]));
    want.sort_unstable();
    assert!(nodes(&list).map(Node::value).eq(want.iter().map(|key| &key[..])));
}
