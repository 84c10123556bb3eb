//! Damage to `CURRENT` is always detected: the file is written once.

use bytes::Bytes;
use sievedb::ReadMode;

use super::{
    cases::Cases,
    reading::Verdict,
    sample::Sample,
    script::{End, sample},
    tables::flipped,
};

fn run(cases: &mut Cases, sample: &Sample, what: &str, bytes: Bytes) {
    cases.run(&format!("CURRENT: {what}"), || {
        let files = sample.with("CURRENT", bytes);
        let verdict = Verdict::of(sample, &files, ReadMode::Pread, &[sample.last_state()])?;
        let manifest = sample.names("MANIFEST-", "").pop().expect("a manifest");
        verdict.check_errors(sample, &["CURRENT", &manifest])?;
        match verdict {
            Verdict::Refused(_) => Ok(()),
            Verdict::Read { .. } => Err("opened".to_owned()),
        }
    });
}

#[test]
fn damage_to_current_is_refused() {
    let sample = sample(End::Closed);
    let mut cases = Cases::new();
    let good = &sample.files["CURRENT"];
    for at in 0..good.len() {
        for flip in (0..8).map(|bit| 1 << bit).chain([0xff]) {
            run(&mut cases, &sample, &format!("byte {at} ^ {flip:#04x}"), flipped(good, at, flip));
        }
        run(&mut cases, &sample, &format!("cut to {at}"), good.slice(..at));
    }
    for more in [1, 8, 4096] {
        let bytes = [good, &vec![0; more][..]].concat().into();
        run(&mut cases, &sample, &format!("{more} bytes longer"), bytes);
    }
    run(&mut cases, &sample, "zeros", vec![0; good.len()].into());
    println!("CURRENT: {} cases", cases.count());
    cases.finish(10 * good.len() + 4);
}
