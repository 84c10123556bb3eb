//! 10 million URLs of 77 bytes: memory of an exact set and of filters.

use std::{collections::HashSet, fmt::Write as _};

use serde_json::json;
use sievedb_filter::{Ribbon, key_hash, params::columns_for_fpr, standalone::BloomFilter};
use sievedb_workload::{KeySet, Keys};

use crate::{
    Common, Outcome, Report,
    allocation::bytes_of,
    known::{self, Figure},
    text,
};

const URLS: u64 = 10_000_000;
const ABSENT: u64 = 1_000_000;
const SMALL: u64 = 100;

pub(crate) fn run(common: &Common) -> Report {
    let divisor = if common.small { SMALL } else { 1 };
    let set = KeySet::urls(common.seed, URLS / divisor, ABSENT / divisor);
    let bar = text::bar(5, "URLs");
    let (exact, exact_bytes) =
        bytes_of(|| each(&set.stored, |url| Box::<[u8]>::from(url)).collect::<HashSet<_>>());
    let key_bytes: usize = exact.iter().map(|url| url.len()).sum();
    if exact.len() as u64 != set.stored.len() {
        return Err("URLs repeat".into());
    }
    drop(exact);
    bar.inc(1);
    let hash = |url: &[u8]| key_hash(url, 0);
    let stored: Vec<u64> = each(&set.stored, hash).collect();
    let absent: Vec<u64> = each(&set.absent, hash).collect();

    let known_bytes = |bytes: &str| if common.small { String::new() } else { bytes.to_owned() };
    let mut figures = vec![
        Figure::new("the URLs alone", known_bytes("770 MB"), text::bytes(key_bytes as f64)),
        Figure::new("exact set, a HashSet of boxed URLs", "", text::bytes(exact_bytes as f64)),
    ];
    let mut results = vec![json!({ "structure": "exact set", "bytes": exact_bytes })];
    let rates = [(0.01, "1 %", "12 MB"), (0.001, "0.1 %", "18 MB")];
    for (rate, name, known) in rates {
        let (filter, bytes) = bytes_of(|| {
            let mut filter = Box::new(BloomFilter::with_rate(stored.len() as u64, rate));
            for &hash in &stored {
                filter.insert_hash(hash);
            }
            filter
        });
        let fpr = verify(&stored, &absent, |hash| filter.may_contain_hash(hash))?;
        figures.push(figure(format!("BloomFilter, {name}"), known_bytes(known), bytes, fpr));
        results
            .push(json!({ "structure": "BloomFilter", "rate": rate, "bytes": bytes, "fpr": fpr }));
        bar.inc(1);
    }
    for (rate, name, known) in rates {
        let (filter, bytes) = bytes_of(|| Box::new(Ribbon::build(&stored, columns_for_fpr(rate))));
        let fpr = verify(&stored, &absent, |hash| filter.may_contain_hash(hash))?;
        let known = known_bytes(&format!("less than {known}"));
        figures.push(figure(format!("Ribbon, {name}"), known, bytes, fpr));
        results.push(json!({ "structure": "Ribbon", "rate": rate, "bytes": bytes, "fpr": fpr }));
        bar.inc(1);
    }
    bar.finish_and_clear();

    let mut out = String::new();
    let [stored, absent] = [stored.len(), absent.len()].map(|count| text::count(count as u64));
    writeln!(out, "{stored} URLs, bytes really allocated; rates with {absent} absent URLs:\n")?;
    out += &known::table(&figures);
    let json = json!({ "urls": set.stored.len(), "results": results });
    Ok(Outcome { text: out, json, fault: None })
}

fn figure(what: String, known: String, bytes: usize, fpr: f64) -> Figure {
    Figure::new(what, known, format!("{}, rate {}", text::bytes(bytes as f64), text::per_cent(fpr)))
}

/// Maps all keys in order by `into`.
fn each<T>(keys: &Keys, into: impl Fn(&[u8]) -> T) -> impl Iterator<Item = T> {
    let mut key = Vec::new();
    (0..keys.len()).map(move |index| {
        key.clear();
        keys.append(index, &mut key);
        into(&key)
    })
}

/// Returns the measured rate.
///
/// # Errors
///
/// Returns an error on a false negative.
fn verify(
    stored: &[u64],
    absent: &[u64],
    may_contain: impl Fn(u64) -> bool,
) -> Result<f64, String> {
    if !stored.iter().all(|&hash| may_contain(hash)) {
        return Err("a stored URL was denied".to_owned());
    }
    let found = absent.iter().filter(|&&hash| may_contain(hash)).count();
    Ok(found as f64 / absent.len() as f64)
}
