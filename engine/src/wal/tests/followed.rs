//! Logs that grow while they are read.

use super::*;
use crate::{
    log::Payload,
    wal::followed::{Followed, FollowedLog},
};

#[test]
fn compressed_batches_pause_a_read_by_their_own_length() {
    const VALUE_BYTES: usize = 2000;
    let fs = new_fs();
    let mut writer = create(&*fs, 3, None, NO_MARK);
    append(&mut writer, 1..=1, NO_MARK);
    let (_, replayed) = sequences(&fs, &[3], NO_MARK).unwrap();
    for sequence in 2..=11 {
        let mut batch = BatchEncoder::new();
        batch.put(1, Kind::Put, b"key", &[7; VALUE_BYTES]);
        let payload = Payload::compressed(batch.finish());
        writer.append(&[PendingRecord { sequence, payload }], NO_MARK).unwrap();
    }
    assert!(writer.offset() < 2 * VALUE_BYTES as u64);
    let logs = BTreeMap::from([(3, writer.secret())]);
    let mut log = FollowedLog::new(fs, FOLDER.into(), STORE, replayed.segments);
    let mut steps = Vec::new();
    loop {
        let mut batches = 0;
        let followed = log.read(&logs, 2 * VALUE_BYTES as u64, |_| {
            batches += 1;
            Ok(())
        });
        steps.push(batches);
        if followed.unwrap() == Followed::ToEnd {
            break;
        }
    }
    assert_eq!(steps, [2, 2, 2, 2, 2, 0]);
}
