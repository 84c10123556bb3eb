//! Damage to logs. Damage below a synced mark in a later record or in the manifest is refused.
//! Otherwise the log is truncated at the first invalid record. When a store is closed, the manifest
//! marks the whole log as synced.

use sievedb::ReadMode;

use super::{
    cases::Cases,
    log_record::{LogRecord, log_records, vouched},
    reading::Verdict,
    sample::{LogPosition, Sample, file_id},
    script::{End, sample},
    tables::flipped,
};

/// Numbers of damaged logs by result.
#[derive(Debug, Default)]
struct Tally {
    refused: usize,
    /// Truncated, with a shorter history.
    shorter: usize,
    /// With the whole history: the damage hit no record.
    whole: usize,
}

/// Damage to a log.
struct Damage<'a> {
    name: &'a str,
    bytes: bytes::Bytes,
    what: String,
    /// Start of the first invalid record.
    lost: LogPosition,
    /// The place is below a synced mark, so the history must not end there.
    is_vouched: bool,
}

impl Tally {
    fn run(&mut self, cases: &mut Cases, sample: &Sample, damage: Damage<'_>) {
        let Damage { name, bytes, what, lost, is_vouched } = damage;
        cases.run(&format!("{name}: {what}"), || {
            let files = sample.with(name, bytes);
            let (last, shorter) = (sample.last_state(), sample.state_before(lost));
            let legal = if is_vouched { &[last][..] } else { &[last, shorter] };
            let verdict = Verdict::of(sample, &files, ReadMode::Pread, legal)?;
            let logs = sample.names("", ".log");
            let logs: Vec<_> = logs.iter().map(String::as_str).collect();
            verdict.check_errors(sample, &logs)?;
            match verdict {
                Verdict::Refused(error) if !is_vouched => {
                    return Err(format!("a crash may leave this, and it is refused: {error:?}"));
                }
                Verdict::Refused(_) => self.refused += 1,
                Verdict::Read { errors, .. } if !errors.is_empty() => {
                    return Err(format!("opened, and then {errors:?}"));
                }
                Verdict::Read { state, .. } if state == last => self.whole += 1,
                Verdict::Read { .. } => self.shorter += 1,
            }
            Ok(())
        });
    }
}

/// The start of a log, with the record that names the previous log, was durable before the manifest
/// named the log.
fn is_start(records: &[LogRecord], position: LogPosition) -> bool {
    let first = records.iter().find(|record| record.file_id == position.0);
    position.1 < first.expect("a log has a start record").place.end
}

fn flips(end: End) {
    let sample = sample(end);
    let (mut cases, mut tally, mut total) = (Cases::new(), Tally::default(), 0);
    let records = log_records(&sample);
    for name in sample.names("", ".log") {
        let (good, id) = (&sample.files[&name], file_id(&name));
        total += good.len();
        for at in 0..good.len() {
            let hit = |record: &&LogRecord| record.file_id == id && record.place.start <= at as u64;
            // The file header counts as the first record.
            let hit = records.iter().rfind(hit).map_or(0, |record| record.place.start);
            let lost = (id, hit);
            let others = vouched(&records, |record| (record.file_id, record.place.start) != lost);
            let is_vouched = end == End::Closed
                || others.max(sample.flushed) > lost
                || is_start(&records, (id, at as u64));
            let flip = 1 << (at % 8);
            let (bytes, what) = (flipped(good, at, flip), format!("byte {at} ^ {flip:#04x}"));
            let damage = Damage { name: &name, bytes, what, lost, is_vouched };
            tally.run(&mut cases, &sample, damage);
        }
    }
    println!("logs, bytes, {end:?}: {} cases, {tally:?}", cases.count());
    assert!(tally.refused > 1000, "{tally:?}");
    assert!(tally.whole <= total / 8, "damage is passed over: {tally:?}");
    match end {
        End::PowerCut => assert!(tally.shorter > 100, "{tally:?}"),
        End::Closed => assert_eq!(tally.shorter, 0, "{tally:?}"),
    }
    cases.finish(total);
}

#[test]
fn flipped_byte_of_a_log_is_refused_or_in_the_tail() {
    flips(End::PowerCut);
}

#[test]
fn flipped_byte_of_a_finished_log_is_refused() {
    flips(End::Closed);
}

fn cuts(end: End) {
    let sample = sample(end);
    let (mut cases, mut tally, mut total) = (Cases::new(), Tally::default(), 0);
    let records = log_records(&sample);
    for name in sample.names("", ".log") {
        let (good, id) = (&sample.files[&name], file_id(&name));
        total += good.len();
        for bytes in 0..good.len() {
            let cut = bytes as u64;
            let whole = |record: &LogRecord| record.file_id != id || record.place.end <= cut;
            let lost = records.iter().find(|record| !whole(record));
            let lost = (id, lost.expect("the cut takes part of a record").place.start);
            let others = vouched(&records, whole).max(sample.flushed);
            let is_vouched = end == End::Closed || others > lost || is_start(&records, lost);
            let (bytes, what) = (good.slice(..bytes), format!("cut to {bytes}"));
            let damage = Damage { name: &name, bytes, what, lost, is_vouched };
            tally.run(&mut cases, &sample, damage);
        }
    }
    println!("logs, lengths, {end:?}: {} cases, {tally:?}", cases.count());
    assert!(tally.refused > 1000, "{tally:?}");
    assert_eq!(tally.shorter > 100, end == End::PowerCut, "{tally:?}");
    assert!(end == End::PowerCut || tally.shorter == 0, "{tally:?}");
    cases.finish(total);
}

#[test]
fn truncated_log_is_refused_or_ends_early() {
    cuts(End::PowerCut);
}

#[test]
fn truncated_finished_log_is_refused() {
    cuts(End::Closed);
}

#[test]
fn garbage_after_the_end_of_a_log_is_truncated() {
    for end in [End::PowerCut, End::Closed] {
        let sample = sample(end);
        let (mut cases, mut tally) = (Cases::new(), Tally::default());
        let name = sample.names("", ".log").pop().expect("a log");
        let good = &sample.files[&name];
        for more in [1, 7, 8, 40, 64, 4096] {
            for (byte, last) in [(0, 0), (0x01, 0x01), (0xff, 0xff), (0, 0x01)] {
                let mut bytes = [good, &vec![byte; more][..]].concat();
                *bytes.last_mut().expect("some more") = last;
                let bytes = bytes.into();
                let lost = (file_id(&name), good.len() as u64);
                let what = format!("{more} bytes {byte:#04x} more, the last {last:#04x}");
                let damage = Damage { name: &name, bytes, what, lost, is_vouched: false };
                tally.run(&mut cases, &sample, damage);
            }
        }
        assert_eq!(tally.whole, cases.count(), "{tally:?}");
        cases.finish(24);
    }
}
