//! Damage to the manifest. Nothing but its very end may be missing without being noticed, and what
//! the last edits say can then be learned from the logs and tables that are still there.

use bytes::Bytes;
use sievedb::ReadMode;

use super::{
    cases::Cases,
    reading::Verdict,
    sample::Sample,
    script::{End, sample},
    tables::flipped,
};

/// Runs the case that the manifest has other bytes; whether the store was refused.
fn run(cases: &mut Cases, sample: &Sample, name: &str, what: &str, bytes: Bytes) -> bool {
    let mut refused = false;
    cases.run(&format!("{name}: {what}"), || {
        let files = sample.with(name, bytes);
        let last = sample.last_state();
        let verdict = Verdict::of(sample, &files, ReadMode::Pread, &[last])?;
        match verdict {
            Verdict::Read { errors, .. } if !errors.is_empty() => {
                Err(format!("opened, and then {errors:?}"))
            }
            Verdict::Read { .. } => Ok(()),
            Verdict::Refused(_) => {
                refused = true;
                // It may show at a file that is gone, and that the rest of the manifest names.
                let older = (1..20).map(|id| format!("{id:06}.log"));
                let older = older.chain((1..20).map(|id| format!("{id:06}.sst")));
                let names: Vec<_> = older.chain([name.to_owned(), "CURRENT".to_owned()]).collect();
                let names: Vec<_> = names.iter().map(String::as_str).collect();
                verdict.check_errors(sample, &names)
            }
        }
    });
    refused
}

#[test]
fn a_flipped_byte_of_a_manifest_is_refused_or_does_no_harm() {
    for end in [End::PowerCut, End::Closed] {
        let sample = sample(end);
        let (mut cases, mut refused) = (Cases::new(), 0);
        let name = sample.names("MANIFEST-", "").pop().expect("a manifest");
        let good = &sample.files[&name];
        for at in 0..good.len() {
            let flip = 1 << (at % 8);
            let (what, bytes) = (format!("byte {at} ^ {flip:#04x}"), flipped(good, at, flip));
            refused += usize::from(run(&mut cases, &sample, &name, &what, bytes));
        }
        println!("manifest, bytes, {end:?}: {} cases, {refused} refused", cases.count());
        assert!(refused > good.len() * 3 / 4, "{refused} of {}", good.len());
        cases.finish(good.len());
    }
}

#[test]
fn a_manifest_of_another_length_is_refused_or_does_no_harm() {
    for end in [End::PowerCut, End::Closed] {
        let sample = sample(end);
        let (mut cases, mut refused) = (Cases::new(), 0);
        let name = sample.names("MANIFEST-", "").pop().expect("a manifest");
        let good = &sample.files[&name];
        for bytes in 0..good.len() {
            let (what, bytes) = (format!("cut to {bytes}"), good.slice(..bytes));
            refused += usize::from(run(&mut cases, &sample, &name, &what, bytes));
        }
        println!("manifest, lengths, {end:?}: {} cases, {refused} refused", cases.count());
        assert!(refused > good.len() * 3 / 4, "{refused} of {}", good.len());
        for more in [1, 8, 40, 4096] {
            for byte in [0, 0xff] {
                let bytes = [good, &vec![byte; more][..]].concat().into();
                let what = format!("{more} bytes {byte:#04x} more");
                assert!(!run(&mut cases, &sample, &name, &what, bytes), "a torn tail: {what}");
            }
        }
        cases.finish(good.len() + 8);
    }
}
