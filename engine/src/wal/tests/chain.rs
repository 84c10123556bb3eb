//! Segments of the log, by scenarios in `testdata/recovery` and by all cuts of a segment.
//!
//! | command                                   | output                                   |
//! |-------------------------------------------|------------------------------------------|
//! | `segment ID [after=ID] [end=OFFSET] [A-B]` | the end of a new segment with batches A to B |
//! | `seal ID`, `unlink ID`                    |                                          |
//! | `replay [named=ID,..] [mark=ID] [floor=ID]` | the replay of the log, or its error    |

use super::*;
use crate::{
    Error,
    fs::{Call, Fault, FaultFs, Loss, Times},
    tests::{ENOSPC, corrupt_at, scenario, with_file},
};

/// A log under construction.
struct Log {
    fs: Arc<MemoryFs>,
    writers: BTreeMap<u64, Writer>,
}

impl Default for Log {
    fn default() -> Self {
        Self { fs: new_fs(), writers: BTreeMap::new() }
    }
}

#[test]
fn scenarios() {
    scenario::check("recovery", |log: &mut Log, command, _| log.run(command));
}

impl Log {
    fn run(&mut self, command: &str) -> String {
        let words: Vec<_> = command.split(' ').collect();
        let option =
            |name| words.iter().find_map(|word| word.strip_prefix(name)?.strip_prefix('='));
        let number = |text: &str| text.parse::<u64>().expect("a number");
        match words[0] {
            "segment" => {
                let id = number(words[1]);
                let previous = option("after").map(|previous| {
                    let end = self.writers[&number(previous)].position();
                    at(end.file_id, option("end").map_or(end.offset, number))
                });
                let mut writer = create(&*self.fs, id, previous, NO_MARK);
                if let Some((first, last)) = words.last().and_then(|word| word.split_once('-')) {
                    append(&mut writer, number(first)..=number(last), NO_MARK);
                }
                let end = format!("{}\n", writer.position());
                self.writers.insert(id, writer);
                end
            }
            "seal" => {
                let writer = self.writers.get_mut(&number(words[1])).expect("a segment");
                writer.seal(NO_MARK).unwrap();
                format!("{}\n", writer.position())
            }
            "unlink" => {
                self.fs.unlink(path(number(words[1])).as_ref()).unwrap();
                String::new()
            }
            "replay" => {
                let named: Vec<_> =
                    option("named").map_or(vec![], |ids| ids.split(',').map(number).collect());
                let mark = option("mark").map_or(NO_MARK, |id| at(number(id), 0));
                let floor = option("floor").map_or(0, number);
                match collect_from(&self.fs, floor, &named, mark) {
                    Ok((batches, replayed)) => verdict(&*self.fs, &batches, &replayed),
                    Err(Error::Corrupt { path, offset, source }) => {
                        format!("{} is corrupt near byte {offset}: {source}\n", path.display())
                    }
                    Err(error) => panic!("{error}"),
                }
            }
            command => panic!("{command}"),
        }
    }
}

fn verdict(fs: &dyn Fs, batches: &[(u64, Bytes)], replayed: &Replayed) -> String {
    let sequences: Vec<_> = batches.iter().map(|(sequence, _)| *sequence).collect();
    assert_eq!(replayed.last_sequence, sequences.last().copied().unwrap_or(0));
    let end = replayed.end.map_or("none".to_owned(), |end| end.to_string());
    let orphans = orphans(fs, replayed);
    let torn =
        replayed.torn.as_ref().map_or(String::new(), |torn| format!(", torn at {}", torn.position));
    format!("batches {sequences:?} of {:?}, end {end}, orphans {orphans:?}{torn}\n", ids(replayed))
}

/// Segments 3, 5 and 8 with two batches each. 3 is sealed.
fn three_segments() -> (Arc<MemoryFs>, [Position; 3]) {
    let fs = new_fs();
    let mut first = create(&*fs, 3, None, NO_MARK);
    append(&mut first, 1..=2, NO_MARK);
    first.seal(NO_MARK).unwrap();
    let mut second = create(&*fs, 5, Some(first.position()), NO_MARK);
    append(&mut second, 3..=4, NO_MARK);
    let mut third = create(&*fs, 8, Some(second.position()), NO_MARK);
    append(&mut third, 5..=6, NO_MARK);
    (fs, [first.position(), second.position(), third.position()])
}

#[test]
fn ids_ascend_beyond_six_digits() {
    let names = ["000009.log", "1000000.log", "999999.log", "000007.sst", "LOCK", "9.log"];
    assert_eq!(segment_ids(&names.map(String::from)), [9, 999_999, 1_000_000]);
}

#[test]
fn n3_an_unnamed_segment_that_continues_an_obsolete_one_is_an_orphan() {
    let (fs, ends) = three_segments();
    // Created after 8 and never named. Its id was reassigned as the floor.
    create(&*fs, 9, Some(ends[2]), NO_MARK);
    fs.unlink(path(8).as_ref()).unwrap();
    for floor in [0, 8] {
        corrupt_at(&collect_from(&fs, floor, &[], NO_MARK).unwrap_err(), "000008.log");
    }
    let (batches, replayed) = collect_from(&fs, 9, &[], NO_MARK).unwrap();
    assert_eq!((batches, orphans(&*fs, &replayed)), (vec![], vec![3, 5, 9]));
}

#[test]
fn garbage_behind_the_logical_end_is_ignored() {
    // Bytes left by a full disk: none, part of a record, a whole record, all of the group.
    for written_bytes in [0, 20, 64, 72, 10_000] {
        let memory = new_fs();
        let fs = FaultFs::new(memory.clone());
        let mut full = create(&fs, 3, None, NO_MARK);
        append(&mut full, 1..=2, NO_MARK);
        let fault = Fault::new(ENOSPC, Times::Once).calls(&[Call::Append]);
        fs.inject(fault.written_bytes(written_bytes));
        assert!(full.append(&[put(3, b"lost"), put(4, b"lost")], NO_MARK).is_err());
        let mut next = create(&fs, 5, Some(full.position()), at(5, 0));
        append(&mut next, 3..=4, NO_MARK);
        let (batches, replayed) = collect(&memory, &[3], at(5, 0)).unwrap();
        let got: Vec<u64> = batches.iter().map(|(sequence, _)| *sequence).collect();
        assert_eq!(got, up_to(4), "{written_bytes} bytes");
        assert!(batches.iter().all(|(_, payload)| !payload.ends_with(b"lost")));
        assert_eq!(replayed.torn, None, "{written_bytes} bytes");
    }
}

#[test]
fn a_hole_ends_the_log_and_what_lies_behind_does_not_count() {
    let (fs, ends) = three_segments();
    let second = fs.read(path(5)).unwrap().len();
    for cut in 1..=2 {
        // A lost append: the file ends where a record ends.
        let record = (ends[1].offset as usize - 120) / 2;
        let torn = with_file(&fs, &path(5), |bytes| bytes.truncate(second - cut * record));
        let (got, replayed) = sequences(&torn, &[3, 5, 8], NO_MARK).unwrap();
        assert_eq!(got, up_to(4 - cut as u64));
        let behind = fs.read(path(8)).unwrap().len() as u64;
        assert_eq!(
            replayed.torn.as_ref().unwrap().bytes,
            behind,
            "the segment behind is truncated, too"
        );
        assert_eq!((ids(&replayed), orphans(&*torn, &replayed)), (vec![3, 5], vec![8]));
        // The next recovery continues from the torn end, and so does a second one.
        let end = replayed.end.unwrap();
        create(&*torn, 9, Some(end), NO_MARK);
        let (again, replayed) = sequences(&torn, &[3, 5], NO_MARK).unwrap();
        assert_eq!(again, got);
        assert_eq!((orphans(&*torn, &replayed), replayed.torn), (vec![8], None));
        // With a later mark it is damage.
        let error = sequences(&torn, &[3, 5, 8], at(8, 0)).unwrap_err();
        assert_eq!(corrupt_at(&error, "000005.log"), end.offset);
    }
}

#[test]
fn a_segment_whose_creation_did_not_end_is_an_orphan() {
    let (fs, ends) = three_segments();
    create(&*fs, 9, Some(ends[2]), NO_MARK);
    let begun = fs.read(path(9)).unwrap().len();
    for cut in 0..begun {
        let torn = with_file(&fs, &path(9), |bytes| bytes.truncate(cut));
        let (got, replayed) = sequences(&torn, &[3], NO_MARK).unwrap();
        let orphaned = orphans(&*torn, &replayed);
        assert_eq!((got, orphaned, replayed.torn), (up_to(6), vec![9], None), "cut {cut}");
        let zeros = with_file(&fs, &path(9), |bytes| bytes[..=cut].fill(0));
        let (got, replayed) = sequences(&zeros, &[3], NO_MARK).unwrap();
        assert_eq!((got, orphans(&*zeros, &replayed)), (up_to(6), vec![9]), "zeros to {cut}");
    }
    // Abandoned on a full disk, but complete: the segment that was used instead is valid.
    let mut used = create(&*fs, 10, Some(ends[2]), NO_MARK);
    append(&mut used, 7..=7, NO_MARK);
    let (got, replayed) = sequences(&fs, &[3], NO_MARK).unwrap();
    assert_eq!((got, orphans(&*fs, &replayed)), (up_to(7), vec![9]));
}

#[test]
fn a_segment_that_lost_its_beginning_after_it_was_used_is_damage() {
    let (fs, _) = three_segments();
    for flipped in 0..110 {
        let bad = with_file(&fs, &path(8), |bytes| bytes[flipped] ^= 0x40);
        let error = sequences(&bad, &[3, 5], NO_MARK).unwrap_err();
        corrupt_at(&error, "000008.log");
    }
}

#[test]
fn a_full_disk_leaves_no_half_segment() {
    for (call, suffix) in [(Call::Create, ""), (Call::Append, "")] {
        let memory = new_fs();
        let fs = FaultFs::new(memory.clone());
        let fault = Fault::new(ENOSPC, Times::Once).calls(&[call]).suffix(suffix);
        fs.inject(fault.written_bytes(50));
        let error = segment(3, None, NO_MARK).create(&fs, FOLDER.as_ref()).unwrap_err();
        assert!(error.is_no_space());
        assert!(on_disk(&*memory).unwrap().is_empty());
    }
}

#[test]
fn a_new_segment_is_durable_with_its_name() {
    let fs = new_fs();
    create(&*fs, 3, None, NO_MARK);
    let crashed = Arc::new(fs.crash(fs.operations(), &Loss::Everything));
    assert!(sequences(&crashed, &[3], NO_MARK).unwrap().0.is_empty());
}
