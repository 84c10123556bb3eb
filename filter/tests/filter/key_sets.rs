//! Keys and hashes that are hard for filters.

/// Returns key sets that break weak hashes and careless code.
pub(crate) fn adversarial_keys() -> Vec<(&'static str, Vec<Vec<u8>>)> {
    vec![
        ("none", vec![]),
        ("the empty key", vec![vec![]]),
        ("one byte", (0..=u8::MAX).map(|byte| vec![byte]).collect()),
        ("zeros of every length", (0..300).map(|n| vec![0; n]).collect()),
        ("the longest key", vec![vec![0; 64 << 10], vec![0xff; 64 << 10]]),
        ("one key, many times", vec![b"same".to_vec(); 1000]),
        ("counters", (0..20_000_u64).map(|i| i.to_be_bytes().to_vec()).collect()),
        ("decimal counters", (0..20_000).map(|i| format!("user{i:020}").into_bytes()).collect()),
        ("a shared prefix", (0..2000).map(|i| format!("{}{i}", "/a".repeat(500)).into()).collect()),
        (
            "one bit each",
            (0..4096_usize)
                .map(|bit| {
                    let mut key = vec![0; 512];
                    key[bit / 8] = 1 << (bit % 8);
                    key
                })
                .collect(),
        ),
    ]
}

/// Returns hashes that share lines or probes, or are extreme: callers may pass any hash.
pub(crate) fn hostile_hashes() -> Vec<(&'static str, Vec<u64>)> {
    vec![
        ("one line", (0..5000).collect()),
        ("one set of probes", (0..5000).map(|i| i << 32).collect()),
        ("extremes", vec![0, u64::MAX, 1, u64::MAX - 1, 1 << 63]),
        ("one bit", (0..64).map(|bit| 1 << bit).collect()),
        ("all the same", vec![42; 5000]),
    ]
}
