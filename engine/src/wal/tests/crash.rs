//! Random logs with random power cuts: synced batches are replayed, and nothing after a gap.

use std::collections::HashSet;

use super::*;
use crate::{
    fs::{Call, Fault, FaultFs, Loss, Times},
    tests::{ENOSPC, Random, seeds},
};

/// Actions of the log's writer that the checks need.
struct Story {
    memory: Arc<MemoryFs>,
    /// (journal length, last sequence synced then).
    synced: Vec<(usize, u64)>,
    /// Payload of each batch; the batch with sequence `n` is number `n - 1`.
    payloads: Vec<Bytes>,
    /// Payloads of the groups that failed on a full disk. They may survive, in whole or in part,
    /// until a segment continues from before them.
    refused: HashSet<Bytes>,
    named: Vec<u64>,
}

/// Appends, syncs, rotates and runs out of space. The log is synced in order, as the engine does.
fn write_log(random: &mut Random) -> Story {
    let memory = new_fs();
    let fs = FaultFs::new(memory.clone());
    let mut story = Story {
        memory: memory.clone(),
        synced: vec![],
        payloads: vec![],
        refused: HashSet::new(),
        named: vec![2],
    };
    let mut mark = NO_MARK;
    let mut writer = create(&fs, 2, None, mark);
    story.synced.push((memory.operations(), 0));
    let mut unsynced: Vec<Arc<dyn crate::fs::AppendFile>> = Vec::new();
    let mut next_id = 3;
    for _ in 0..random.below(24) {
        if random.one_in(12) {
            writer.reserve(writer.offset() + random.below(3000));
        }
        match random.below(10) {
            0..6 => {
                let first = story.payloads.len() as u64 + 1;
                let size = if random.one_in(8) { 2000 } else { 20 };
                let group: Vec<_> = (first..=first + random.below(3))
                    .map(|sequence| {
                        put(sequence, &vec![sequence as u8; random.below(size) as usize])
                    })
                    .collect();
                let full = random.one_in(8);
                if full {
                    let written = random.below(400) as usize;
                    let fault = Fault::new(ENOSPC, Times::Once).calls(&[Call::Append]);
                    fs.inject(fault.written_bytes(written));
                }
                let payloads = group.iter().map(|record| record.payload.bytes().clone());
                match writer.append(&group, mark) {
                    Ok(()) => story.payloads.extend(payloads),
                    Err(error) => {
                        assert!(full && error.is_no_space());
                        story.refused.extend(payloads);
                        unsynced.push(writer.file().clone());
                        writer = create(&fs, next_id, Some(writer.position()), mark);
                        next_id += 1 + random.below(2);
                    }
                }
            }
            6..8 => {
                if random.one_in(2) {
                    writer.reserve(writer.offset() + random.below(3000));
                }
                unsynced.drain(..).for_each(|file| file.sync_data().unwrap());
                writer.sync_data().unwrap();
                mark = writer.position();
                story.synced.push((memory.operations(), story.payloads.len() as u64));
            }
            _ => {
                if random.one_in(2) {
                    writer.seal(mark).unwrap();
                }
                unsynced.push(writer.file().clone());
                writer = create(&fs, next_id, Some(writer.position()), mark);
                next_id += 1 + random.below(2);
            }
        }
    }
    story
}

#[test]
fn a_crash_leaves_a_prefix_with_everything_that_was_synced() {
    let (mut torn, mut kept_unsynced, mut holes) = (0, 0, 0);
    for seed in seeds(300) {
        let mut random = Random::new(seed);
        let story = write_log(&mut random);
        let created = story.synced[0].0;
        for _ in 0..12 {
            let total = story.memory.operations();
            let cut = created + random.below((total - created) as u64 + 1) as usize;
            let loss = match random.below(4) {
                0 => Loss::Nothing,
                1 => Loss::Everything,
                _ => Loss::Random { seed: random.next(), torn: random.one_in(2) },
            };
            let crashed = Arc::new(story.memory.crash(cut, &loss));
            let case = format!("seed {seed}, cut at {cut} of {total}, {loss:?}");
            let replayed = collect(&crashed, &story.named, NO_MARK);
            let (batches, replayed) = replayed.unwrap_or_else(|e| panic!("{case}: {e:?}"));
            let synced = story.synced.iter().rev().find(|(at, _)| *at <= cut).unwrap().1;
            assert!(batches.len() as u64 >= synced, "{case}: {} of {synced}", batches.len());
            for (index, (sequence, payload)) in batches.iter().enumerate() {
                assert_eq!(*sequence, index as u64 + 1, "{case}");
                let written = story.payloads.get(index) == Some(payload);
                let refused = *sequence > synced && story.refused.contains(payload);
                assert!(written || refused, "{case}: batch {sequence}");
            }
            torn += u32::from(replayed.torn.is_some());
            kept_unsynced += u32::from(batches.len() as u64 > synced);
            holes +=
                u32::from(replayed.torn.is_some() && !orphans(&*crashed, &replayed).is_empty());
        }
    }
    // Otherwise the test would cover nothing.
    if std::env::var_os("SIEVE_SEED").is_none() {
        assert!(torn > 100 && kept_unsynced > 100 && holes > 10, "{torn} {kept_unsynced} {holes}");
    }
}

#[test]
fn the_next_recovery_finds_the_same() {
    for seed in seeds(100) {
        let mut random = Random::new(seed);
        let story = write_log(&mut random);
        let created = story.synced[0].0;
        let total = story.memory.operations();
        let cut = created + random.below((total - created) as u64 + 1) as usize;
        let loss = Loss::Random { seed: random.next(), torn: true };
        let crashed = Arc::new(story.memory.crash(cut, &loss));
        let (first, replayed) = collect(&crashed, &story.named, NO_MARK).unwrap();
        // A recovery begins a segment and is interrupted before the manifest names it.
        let id = on_disk(&*crashed).unwrap().last().unwrap() + 1;
        let continued = if random.one_in(2) { replayed.end } else { None };
        let begin = crashed.operations();
        create(&*crashed, id, continued, NO_MARK);
        let during = begin + random.below((crashed.operations() - begin) as u64 + 1) as usize;
        let loss = Loss::Random { seed: random.next(), torn: true };
        let again = Arc::new(crashed.crash(during, &loss));
        let (second, _) = collect(&again, &story.named, NO_MARK).unwrap();
        assert_eq!(first, second, "seed {seed}");
    }
}
