//! Damage to `CLOSED`: an invalid file marks nothing as synced, and the store opens as after a
//! crash.

use bytes::Bytes;
use sievedb::ReadMode;

use super::{
    cases::Cases,
    reading::Verdict,
    sample::Sample,
    script::{End, sample, sibling},
    tables::flipped,
};

fn run(cases: &mut Cases, sample: &Sample, what: &str, bytes: Option<Bytes>) {
    cases.run(&format!("CLOSED: {what}"), || {
        let mut files = sample.files.clone();
        match bytes {
            Some(bytes) => files.insert("CLOSED".to_owned(), bytes),
            None => files.remove("CLOSED"),
        };
        let verdict = Verdict::of(sample, &files, ReadMode::Pread, &[sample.last_state()])?;
        match verdict {
            Verdict::Read { errors, .. } if errors.is_empty() => Ok(()),
            Verdict::Read { errors, .. } => Err(format!("opened, and then {errors:?}")),
            Verdict::Refused(_) => Err("refused".to_owned()),
        }
    });
}

#[test]
fn damage_to_closed_is_harmless() {
    let sample = sample(End::Closed);
    let mut cases = Cases::new();
    let good = &sample.files["CLOSED"];
    for at in 0..good.len() {
        let (flip, what) = (1 << (at % 8), format!("byte {at}"));
        run(&mut cases, &sample, &what, Some(flipped(good, at, flip)));
        run(&mut cases, &sample, &format!("cut to {at}"), Some(good.slice(..at)));
    }
    run(&mut cases, &sample, "missing", None);
    run(
        &mut cases,
        &sample,
        "of another store",
        Some(sibling(End::Closed).files["CLOSED"].clone()),
    );
    run(&mut cases, &sample, "zeros", Some(vec![0; good.len()].into()));
    // A valid pointer with an older position.
    run(&mut cases, &sample, "as CURRENT", Some(sample.files["CURRENT"].clone()));
    cases.finish(2 * good.len() + 4);
}
